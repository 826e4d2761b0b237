"""Optimisers: which weights each of them moves, and how."""

from dataclasses import replace

import pytest
import torch

from monotau.networks.factory import OptimiserConfig
from tests.worlds import SMALL_HEADS, small_factory


def test_rmsprop_is_the_centred_one_of_the_nature_dqn():
    """Two steps by hand: v and m are moving averages with 0.95, the step is g / (sqrt(v - m^2) + epsilon)."""
    config = OptimiserConfig(method="rmsprop", learning_rate=0.1, epsilon=0.01)
    network = replace(small_factory(SMALL_HEADS["dqn"]), optimiser=config).make("online")
    trainer = replace(small_factory(SMALL_HEADS["dqn"]), optimiser=config).trainer(network)
    bias = network.head.last.advantages.bias
    value, square, mean = bias.detach()[0].item(), 0.0, 0.0
    for slope in (1.0, 3.0):
        trainer.descend((bias[0] * slope).sum())
        square, mean = 0.95 * square + 0.05 * slope**2, 0.95 * mean + 0.05 * slope
        value -= 0.1 * slope / ((square - mean**2) ** 0.5 + 0.01)
        assert bias.detach()[0].item() == pytest.approx(value, rel=1e-4)


def test_every_weight_belongs_to_one_optimiser():
    for name, head in SMALL_HEADS.items():
        network = small_factory(head).make("online")
        trainer = small_factory(head).trainer(network)
        groups = [g["params"] for optimiser in (trainer.main, *trainer.apart) for g in optimiser.param_groups]
        owned = [id(parameter) for group in groups for parameter in group]
        assert sorted(owned) == sorted(id(parameter) for parameter in network.parameters())
        assert bool(trainer.apart) == (name in ("fqf", "ndqfn-fqf"))
        assert isinstance(trainer.main, torch.optim.Adam)
