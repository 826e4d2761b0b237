"""The network factory: networks have reproducible weights of their own, and making one draws nothing else."""

from dataclasses import replace

import pytest
import torch

from monotau.networks.factory import prefixed, unprefixed
from monotau.networks.inputs import InputScaling
from monotau.networks.optimiser import OptimiserConfig
from tests.support.networks import SMALL_HEADS, small_factory


def weights(network):
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


@pytest.mark.parametrize("head", SMALL_HEADS.values(), ids=SMALL_HEADS)
def test_a_network_has_the_same_weights_for_the_same_seed_and_name_and_others_otherwise(head):
    factory = small_factory(head)
    first = weights(factory.make("online"))
    assert torch.equal(weights(factory.make("online")), first)
    assert torch.equal(weights(small_factory(head).make("online")), first)
    assert not torch.equal(weights(factory.make("predictor")), first)
    assert not torch.equal(weights(replace(factory, seed=1).make("online")), first)


def test_a_network_has_an_output_for_every_action():
    observations = torch.zeros(4, 1, 5)
    network = small_factory(SMALL_HEADS["dqn"], actions=6).make("online")
    assert network.predict(observations, torch.empty(4, 0)).mean().shape == (4, 6)


def test_making_a_network_draws_nothing_from_the_global_generator():
    torch.manual_seed(3)
    expected = torch.rand(5)
    torch.manual_seed(3)
    small_factory().make("online")
    assert torch.equal(torch.rand(5), expected)


def test_all_networks_share_the_scaling_of_the_factory():
    scaling = InputScaling(small_factory().spec, 1, enabled=True)
    factory = replace(small_factory(), scaling=scaling)
    assert factory.make("online").torso.scaling is factory.make("predictor").torso.scaling is scaling
    assert small_factory().make("online").torso.scaling is None


def test_an_optimiser_gets_the_networks_and_the_settings_of_the_factory():
    factory = replace(small_factory(), optimiser=OptimiserConfig(method="rmsprop", learning_rate=0.125))
    network = factory.make("online")
    optimiser = factory.make_optimiser({"online": network})
    assert optimiser.networks == {"online": network}
    assert isinstance(optimiser.main, torch.optim.RMSprop)
    assert [group["lr"] for group in optimiser.main.param_groups] == [0.125]


def test_prefixes_are_added_and_taken_away():
    tensors = {"a": 1, "b.c": 2}
    both = prefixed("online", tensors) | prefixed("online2", {"a": 3})
    assert both == {"online.a": 1, "online.b.c": 2, "online2.a": 3}
    assert unprefixed("online", both) == tensors
