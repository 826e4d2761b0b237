"""Torsos: feature sizes, scaling of pixels, and independence from the memory layout of images."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.nn.functional import one_hot

from monotau.envs.spec import ObservationSpec
from monotau.errors import ConfigError
from monotau.networks.inputs import InputScaling, prepare
from monotau.networks.torsos import TORSOS, default_torso
from monotau.networks.torsos.images import Compact, Dopamine, Nature, Small
from monotau.networks.torsos.joined import Joined
from monotau.networks.torsos.mlp import Mlp
from tests.support.networks import ATARI, image

VECTOR = ObservationSpec(kind="vector", shape=(4,), dtype="float32", channels_last=False, scale=1.0, size=4)
STATES = ObservationSpec(kind="discrete", shape=(), dtype="int64", channels_last=False, scale=1.0, size=6)
PARTS = ObservationSpec.from_space(
    spaces.Dict(
        far=spaces.Box(0, 255, (40, 36, 1), np.uint8),
        near=spaces.Box(0, 1, (6, 7, 2), np.float32),
        pose=spaces.Box(-9, 9, (3,), np.float32),
        gear=spaces.Discrete(4, start=1),
    )
)


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
    [
        (ATARI, "nature"),
        (image(10, 10, 4, channels_last=True), "small"),
        (VECTOR, "mlp"),
        (STATES, "mlp"),
        (ObservationSpec.from_space(spaces.MultiDiscrete([2, 5])), "mlp"),
        (ObservationSpec.from_space(spaces.MultiBinary((2, 3))), "mlp"),
        (ObservationSpec.from_space(spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (4,))])), "mlp"),
        (PARTS, "joined"),
    ],
)
def test_each_kind_of_observation_has_a_torso(spec, name):
    assert default_torso(spec) == name
    torso = TORSOS[name]().build(spec, 2, "fp32")
    frames = torch.zeros(3, 2, *spec.shape, dtype=getattr(torch, spec.dtype))
    assert torso(frames).shape == (3, torso.features)


def some_parts(count: int, stack: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return stacked frames with parts, and the parts in the order of the spec: pose, gear, far, near."""
    generator = torch.Generator().manual_seed(1)
    pose = torch.randn(count, stack, 3, generator=generator)
    gear = torch.randint(4, (count, stack), generator=generator)
    far = torch.randint(256, (count, stack, 40, 36, 1), generator=generator, dtype=torch.uint8)
    near = torch.rand(count, stack, 6, 7, 2, generator=generator)
    flat = [
        part.reshape(count, stack, -1).contiguous().view(torch.uint8) for part in (pose, gear[..., None], far, near)
    ]
    return torch.cat(flat, dim=-1), [pose, gear, far, near]


@pytest.mark.parametrize("stack", [1, 3])
def test_joined_features_are_those_of_a_torso_for_each_image_and_one_for_the_rest(stack):
    torso = Joined(width=11, layers=1).build(PARTS, stack, "fp32")
    scaling = InputScaling(PARTS, stack, enabled=True)
    torso.use_scaling(scaling)
    frames, (pose, gear, far, near) = some_parts(5, stack)
    scaling.observe(frames)
    mean, deviation = pose.flatten(1).mean(dim=0), pose.flatten(1).std(dim=0, correction=0)
    vectors = torch.cat([(pose.flatten(1) - mean) / deviation, 2 * one_hot(gear, 4).flatten(1)], dim=1)
    by_size = {image.features: image for image in torso.images}
    assert sorted(by_size) == [64, 128]  # nature's last map has one pixel, small has 128 units
    expected = [torso.vectors.body(vectors), by_size[64](far), by_size[128](near)]
    torch.testing.assert_close(torso(frames), torch.cat(expected, dim=1), rtol=1e-4, atol=1e-4)
    assert torso.features == 11 + 64 + 128


def test_parts_without_vectors_are_joined_too():
    spec = ObservationSpec.from_space(spaces.Tuple([spaces.Box(0, 255, (6, 5, 3), np.uint8)] * 2))
    torso = TORSOS["joined"]().build(spec, 1, "fp32")
    torso.use_scaling(InputScaling(spec, 1, enabled=True))
    assert torso(torch.zeros(2, 1, 180, dtype=torch.uint8)).shape == (2, 256)


def test_an_mlp_takes_all_parts_as_one_vector():
    frames, (pose, gear, far, near) = some_parts(2, 1)
    expected = [pose.flatten(1), 2 * one_hot(gear, 4).flatten(1), prepare(far, PARTS.parts[2].spec).flatten(1)]
    expected.append(near.movedim(-1, 2).flatten(1))
    torch.testing.assert_close(prepare(frames, PARTS), torch.cat(expected, dim=1))
    assert Mlp(width=5).build(PARTS, 1, "fp32")(frames).shape == (2, 5)


@pytest.mark.parametrize(("spec", "hint"), [(VECTOR, "'mlp'"), (ATARI, "'mlp', small or nature")])
def test_the_joined_torso_needs_parts_with_an_image(spec, hint):
    with pytest.raises(ConfigError, match=f"torso 'joined' needs a Dict or Tuple with an image, but .* torso {hint}"):
        TORSOS["joined"]().build(spec, 1, "fp32")


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
