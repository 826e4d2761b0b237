"""Torsos: feature sizes, scaling of pixels, and independence from the memory layout of images."""

import pytest
import torch

from monotau.envs.spec import ObservationSpec
from monotau.errors import ConfigError
from monotau.networks.inputs import prepare
from monotau.networks.torsos import TORSOS, default_torso
from monotau.networks.torsos.images import Compact, Dopamine, Nature, Small
from monotau.networks.torsos.mlp import Mlp
from tests.support.networks import ATARI, image

VECTOR = ObservationSpec(kind="vector", shape=(4,), dtype="float32", channels_last=False, scale=1.0, size=4)
STATES = ObservationSpec(kind="discrete", shape=(), dtype="int64", channels_last=False, scale=1.0, size=6)


def test_atari_features_have_the_published_sizes():
    frames = torch.randint(0, 256, (2, 4, 84, 84), dtype=torch.uint8)
    for torso, size in ((Nature(), 3136), (Dopamine(), 7744), (Compact(width=100), 100)):
        made = torso.build(ATARI, 4, "fp32")
        assert made.features == size
        assert made(frames).shape == (2, size)


def test_the_features_of_the_compact_torso_cannot_all_die():
    """The biases below would make every feature negative if there were no norm."""
    torso = Compact(width=50).build(ATARI, 4, "fp32")
    with torch.no_grad():
        torso.body[1].bias.fill_(-1000.0).add_(torch.randn(50))
    features = torso(torch.randint(0, 256, (8, 4, 84, 84), dtype=torch.uint8))
    assert ((features > 0).sum(dim=1) >= 10).all()
    assert torso.body[1].weight.requires_grad
    assert features.std(dim=0).max() > 1e-3  # and they still distinguish states


@pytest.mark.parametrize("torso", [Compact(), Nature()])
def test_the_backward_pass_uses_channels_last_memory_and_gives_the_same_gradients(torso, monkeypatch):
    frames = torch.randint(0, 256, (3, 4, 84, 84), dtype=torch.uint8)
    made = torso.build(ATARI, 4, "fp32")
    assert prepare(frames, ATARI).is_contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        assert prepare(frames, ATARI).is_contiguous()
        plain = made(frames)
    features = made(frames)
    torch.testing.assert_close(features.detach(), plain, rtol=1e-4, atol=1e-5)
    features.square().sum().backward()
    quick = [parameter.grad.clone() for parameter in made.parameters()]
    made.zero_grad()
    made.body(prepare(frames, ATARI).contiguous()).square().sum().backward()
    for one, other in zip(quick, made.parameters(), strict=True):
        torch.testing.assert_close(one, other.grad, rtol=1e-3, atol=1e-3)


def test_pixels_are_scaled_to_unit_range():
    white = torch.full((1, 4, 84, 84), 255, dtype=torch.uint8)
    assert prepare(white, ATARI).unique().tolist() == [1.0]


def test_channels_last_and_channels_first_give_the_same_features():
    last, first = image(10, 9, 3, channels_last=True), image(3, 10, 9)
    frames = torch.randint(0, 256, (2, 2, 10, 9, 3), dtype=torch.uint8)
    torch.testing.assert_close(prepare(frames, last), prepare(frames.permute(0, 1, 4, 2, 3), first))
    assert prepare(frames, last).shape == (2, 6, 10, 9)
    assert Small(channels=4, width=11).build(last, 2, "fp32")(frames).shape == (2, 11)


def test_a_discrete_state_is_one_hot_for_each_frame_of_the_stack():
    """The single nonzero entry is the root of the number of states, which makes the mean square 1."""
    one_hot = torch.tensor([[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]])
    torch.testing.assert_close(prepare(torch.tensor([[1, 5]]), STATES), 6**0.5 * one_hot)


def test_bool_images_become_zeros_and_ones():
    frames = torch.ones(1, 1, 10, 10, 4, dtype=torch.bool)
    spec = image(10, 10, 4, dtype="bool", channels_last=True, scale=1.0)
    assert prepare(frames, spec).unique().tolist() == [1.0]


@pytest.mark.parametrize(
    ("spec", "name"),
    [(ATARI, "nature"), (image(10, 10, 4, channels_last=True), "small"), (VECTOR, "mlp"), (STATES, "mlp")],
)
def test_each_kind_of_observation_has_a_torso(spec, name):
    assert default_torso(spec) == name
    torso = TORSOS[name]().build(spec, 2, "fp32")
    frames = torch.zeros(3, 2, *spec.shape, dtype=getattr(torch, spec.dtype))
    assert torso(frames).shape == (3, torso.features)


def test_images_may_be_taken_as_vectors():
    assert Mlp(width=5).build(ATARI, 1, "fp32")(torch.zeros(2, 1, 84, 84, dtype=torch.uint8)).shape == (2, 5)


@pytest.mark.parametrize("name", ["small", "compact", "nature", "dopamine"])
def test_a_torso_refuses_observations_it_cannot_process(name):
    with pytest.raises(ConfigError, match=f"torso '{name}' needs images of at least .* observations are vectors"):
        TORSOS[name]().build(VECTOR, 1, "fp32")


def test_sizes_below_one_are_refused():
    with pytest.raises(ConfigError, match=r"torso.width is 0, but must be at least 1"):
        Mlp(width=0)
    with pytest.raises(ConfigError, match=r"torso.channels is 0, but must be at least 1"):
        Small(channels=0)


def test_more_layers_than_can_learn_are_refused():
    with pytest.raises(ConfigError, match=r"torso\.layers is 101, but must be at most 100"):
        Mlp(layers=101)
