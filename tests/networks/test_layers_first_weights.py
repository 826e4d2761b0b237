"""Initial weights follow He's rule: a signal keeps its size from layer to layer, and all actions start alike."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from monotau.envs.spec import ObservationSpec
from monotau.networks import HEADS, TORSOS, Role
from monotau.networks.layers import CosineEmbedding, Layers, Linear, initialised
from monotau.networks.torsos import Torso
from monotau.networks.torsos.mlp import Mlp
from tests.support.networks import ATARI, image

SMALL_IMAGE = image(10, 10, 4, channels_last=True)
VECTOR = ObservationSpec(kind="vector", shape=(40,), dtype="float32", channels_last=False, scale=1.0, size=40)
SPECS = {"mlp": VECTOR, "small": SMALL_IMAGE, "compact": ATARI, "nature": ATARI, "dopamine": ATARI}
STYLES = {
    "plain": Layers(),
    "dueling": Layers(dueling=True),
    "noisy": Layers(noisy=True),
    "dueling and noisy": Layers(noisy=True, dueling=True),
}


def states(size: int) -> ObservationSpec:
    return ObservationSpec(kind="discrete", shape=(), dtype="int64", channels_last=False, scale=1.0, size=size)


def mean_square(tensor: torch.Tensor) -> float:
    return tensor.square().mean().item()


def make(name: str) -> tuple[Torso, torch.Tensor]:
    """Return a torso, and random inputs of unit size for its body."""
    torch.manual_seed(0)
    torso, spec = TORSOS[name]().build(SPECS[name], 1, "fp32"), SPECS[name]
    frames = torch.zeros(1, 1, *spec.shape, dtype=getattr(torch, spec.dtype))
    return torso, torch.randn(16, *torso.inputs(frames).shape[1:])


def test_every_torso_is_tested_here():
    assert set(SPECS) | {"joined"} == set(TORSOS)  # joined is made of the others


@torch.no_grad()
@pytest.mark.parametrize("name", SPECS)
def test_every_layer_of_a_torso_keeps_the_size_of_the_signal(name):
    torso, inputs = make(name)
    sizes = [mean_square(inputs)]
    for layer in torso.body.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            # The part that a ReLU passes on; it differs if a norm precedes the ReLU.
            layer.register_forward_hook(lambda _, __, outputs: sizes.append(mean_square(outputs.relu())))
            assert not layer.bias.any()
    features = torso.body(inputs)
    assert len(sizes) > 2
    for before, after in pairwise(sizes):
        assert 0.5 < after / before < 2, sizes
    assert 0.4 < mean_square(features) < 2.5


@torch.no_grad()
@pytest.mark.parametrize("name", SPECS)
def test_features_times_embedded_fractions_are_of_unit_size(name):
    torso, inputs = make(name)
    taus = torch.rand(16, 50, generator=torch.Generator().manual_seed(1))
    embedded = CosineEmbedding(64, torso.features)(taus)
    assert 0.5 < mean_square(embedded) < 2
    assert 0.4 < mean_square(torso.body(inputs)[:, None] * embedded) < 2.5


@torch.no_grad()
def test_features_of_a_discrete_state_are_as_large_however_many_states_there_are():
    sizes = []
    for count in (4, 500):
        torch.manual_seed(0)
        torso = Mlp().build(states(count), 1, "fp32")
        sizes.append(mean_square(torso(torch.arange(count)[:, None])))
    assert 0.5 < sizes[0] < 2
    assert sizes[1] == pytest.approx(sizes[0], rel=0.3)


@torch.no_grad()
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", HEADS)
def test_actions_start_alike(name, style):
    """Noise is off, because noisy networks prefer a random action by design."""
    torch.manual_seed(0)
    head = HEADS[name]().build(128, 6, STYLES[style])
    psi = math.sqrt(2) * torch.randn(32, 128).relu()  # of unit size
    values = head.values(psi, head.fractions(Role.ACT, 32, None), head.constants())
    assert 0 < values.std() < 0.2
    assert values.std(dim=1).mean() < 0.2


@pytest.mark.parametrize("make_layer", [Linear, lambda *sizes: initialised(nn.Linear(*sizes))], ids=["head", "torso"])
def test_weights_are_drawn_by_hes_rule_and_biases_are_zero(make_layer):
    torch.manual_seed(0)
    layer = make_layer(300, 200)
    assert layer.weight.std().item() == pytest.approx(math.sqrt(2 / 300), rel=0.02)
    assert layer.weight.abs().max().item() <= math.sqrt(6 / 300)
    assert layer.weight.mean().item() == pytest.approx(0, abs=1e-3)
    assert not layer.bias.any()


def test_the_weights_of_a_summand_are_drawn_for_the_inputs_of_the_whole_sum():
    torch.manual_seed(0)
    assert Linear(200, 300, fan_in=400).weight.std().item() == pytest.approx(math.sqrt(2 / 400), rel=0.02)
    assert Linear(200, 300, gain=0.1).weight.std().item() == pytest.approx(0.1 / math.sqrt(200), rel=0.02)
