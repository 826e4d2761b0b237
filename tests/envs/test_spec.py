"""Observation specifications: how observations of each space are stored."""

import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from monotau.config.parse import build
from monotau.config.plain import to_plain
from monotau.envs import ObservationSpec
from monotau.errors import ConfigError, EnvironmentFault
from monotau.networks.inputs import part_of


def box(shape: tuple[int, ...], dtype: Any = np.float32, high: Any = 1) -> spaces.Box:
    return spaces.Box(0, high, shape, dtype)


def spec_of(space: gym.Space) -> ObservationSpec:
    return ObservationSpec.from_space(space)


def test_a_discrete_space_is_a_state_to_look_up():
    assert spec_of(spaces.Discrete(7)) == ObservationSpec(
        kind="discrete", shape=(), dtype="int64", channels_last=False, scale=1.0, size=7, start=0
    )


def test_a_one_dimensional_box_is_a_vector():
    assert spec_of(box((4,))) == ObservationSpec(
        kind="vector", shape=(4,), dtype="float32", channels_last=False, scale=1.0, size=4, start=0
    )


def test_a_box_without_axes_is_a_vector_of_one_number():
    spec = spec_of(box(()))
    assert (spec.kind, spec.shape, spec.size) == ("vector", (), 1)
    np.testing.assert_array_equal(spec.frame(np.array([0.25, 0.5], np.float32)), np.array([0.25, 0.5], np.float32))


@pytest.mark.parametrize(
    ("shape", "kind", "channels_last"),
    [
        ((84, 84, 3), "image", True),
        ((10, 10, 4), "image", True),
        ((3, 84, 84), "image", False),
        ((84, 84, 84), "image", True),  # a tie counts as channels last, as MinAtar's Seaquest (10, 10, 10) needs
        ((12, 10, 10), "image", False),  # two equal sides are height and width, whatever the number of channels
        ((10, 10, 12), "image", True),
        ((3, 10, 9), "image", False),
        ((10, 9, 3), "image", True),
        ((5, 5, 3), "image", True),
        ((3, 5, 5), "image", False),
        ((4, 5, 3), "vector", False),
        ((3, 5, 4), "vector", False),
        ((4, 4, 4), "vector", False),
    ],
)
def test_the_smaller_outer_axis_of_an_image_is_its_channels(shape, kind, channels_last):
    spec = spec_of(box(shape))
    assert (spec.kind, spec.channels_last, spec.shape) == (kind, channels_last, shape)


@pytest.mark.parametrize(
    ("shape", "dtype", "kind"),
    [
        ((36, 36), np.uint8, "image"),
        ((84, 100), np.uint8, "image"),
        ((35, 84), np.uint8, "vector"),
        ((84, 35), np.uint8, "vector"),
        ((84, 84), np.float32, "vector"),
    ],
)
def test_only_a_large_byte_matrix_is_a_grey_image(shape, dtype, kind):
    spec = spec_of(box(shape, dtype))
    assert (spec.kind, spec.shape, spec.channels_last) == (kind, shape, False)


@pytest.mark.parametrize(
    ("given_dtype", "stored"),
    [
        (np.uint8, "uint8"),
        (np.bool_, "bool"),
        (np.float16, "float32"),
        (np.float32, "float32"),
        (np.float64, "float32"),
        (np.int8, "float32"),
        (np.int32, "float32"),
        (np.int64, "float32"),
    ],
)
def test_each_dtype_has_one_stored_dtype(given_dtype, stored):
    spec = spec_of(box((3,), given_dtype))
    assert spec.dtype == stored
    frames = spec.frame(np.array([[0, 1, 1]], given_dtype))
    assert frames.dtype == stored
    np.testing.assert_array_equal(frames.astype(int), [[0, 1, 1]])


def test_only_bytes_up_to_255_everywhere_are_scaled():
    assert spec_of(box((3,), np.uint8, 255)).scale == 1 / 255
    assert spec_of(box((3,), np.uint8, 1)).scale == 1.0
    assert spec_of(box((3,), np.uint8, np.array([255, 254, 255], np.uint8))).scale == 1.0
    assert spec_of(box((3,), np.float32, 255)).scale == 1.0
    assert spec_of(box((3,), np.int32, 255)).scale == 1.0


@pytest.mark.parametrize("start", [-3, 0, 5])
def test_discrete_states_are_stored_from_zero(start):
    space = spaces.Discrete(4, start=start)
    frames = spec_of(space).frame(np.array([start, start + 3]))
    assert frames.dtype == np.int64
    np.testing.assert_array_equal(frames, [0, 3])


REFUSED = [
    spaces.Dict(a=spaces.Discrete(2), b=spaces.Text(4)),
    spaces.Tuple([spaces.Discrete(2), spaces.Sequence(spaces.Discrete(2))]),
    spaces.Text(4),
    box((2, 2, 2, 2)),
    box((0,)),
    None,
]


@pytest.mark.parametrize("space", REFUSED, ids=str)
def test_other_spaces_are_refused_with_a_way_out(space):
    with pytest.raises(
        ConfigError,
        match=r"observation space is .*must be Discrete, .* or a Dict or Tuple of these; .*ObservationWrapper",
    ) as caught:
        ObservationSpec.from_space(space)
    assert "\n" not in str(caught.value)


def test_a_refusal_stays_on_one_line_for_a_space_with_a_long_repr():
    space = spaces.Graph(
        box((50,), high=np.arange(50, dtype=np.float32)), box((90,), high=np.arange(90, dtype=np.float32))
    )
    with pytest.raises(ConfigError, match=r"observation space is Graph.* \.\.\., but") as caught:
        spec_of(space)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_an_observation_of_another_shape_is_a_fault():
    with pytest.raises(EnvironmentFault, match=r"observation has shape \(5,\).* space has shape \(4,\)"):
        spec_of(box((4,))).frame(np.zeros((2, 5), np.float32))


@pytest.mark.parametrize("state", [4, 8])
def test_a_state_outside_its_space_is_a_fault(state):
    with pytest.raises(EnvironmentFault, match=rf"state is {state}, but .* goes from 5 to 7"):
        spec_of(spaces.Discrete(3, start=5)).frame(np.array([5, state]))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_a_number_that_float32_cannot_hold_is_a_fault(value):
    with pytest.raises(
        EnvironmentFault, match=r"contains (nan|-?inf|1e\+?\d+), which float32 cannot hold as a finite number"
    ):
        spec_of(box((2,), np.float64)).frame(np.array([[0.0, value]]))


boxes = st.builds(
    box,
    st.lists(st.integers(1, 40), max_size=3).map(tuple),
    st.sampled_from([np.uint8, np.bool_, np.float16, np.float32, np.float64, np.int16]),
)
discretes = st.builds(spaces.Discrete, st.integers(1, 9), start=st.integers(-9, 9))
several = st.builds(
    lambda sizes, start: spaces.MultiDiscrete(sizes, start=[start] * len(sizes)),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(-9, 9),
)
flags = st.builds(spaces.MultiBinary, st.integers(1, 9) | st.sampled_from([(2, 3), (1, 4, 2)]))
simple = boxes | discretes | several | flags


@given(space=simple, seed=st.integers(0, 99))
def test_a_spec_survives_json_and_fits_every_sample(space, seed):
    spec = spec_of(space)
    assert build(ObservationSpec, json.loads(json.dumps(to_plain(spec, {})))) == spec
    space.seed(seed)
    frames = spec.frame(np.stack([space.sample() for _ in range(2)]))
    assert frames.shape == (2, *spec.shape)
    assert frames.dtype == spec.dtype


def test_several_discrete_states_share_the_range_that_covers_them_all():
    spec = spec_of(spaces.MultiDiscrete([2, 5], start=[3, -1]))
    assert (spec.kind, spec.shape, spec.start, spec.size) == ("discrete", (2,), -1, 6)
    np.testing.assert_array_equal(spec.frame(np.array([[3, -1], [4, 3]])), [[4, 0], [5, 4]])


PARTS = spaces.Dict(
    camera=box((6, 5, 3), np.uint8, 255),
    inner=spaces.Tuple([spaces.Discrete(4, start=2), box((3,), np.float64)]),
    flags=spaces.MultiBinary(2),
    speed=box(()),
)


def test_parts_are_stored_as_bytes_floats_first_and_images_last():
    spec = spec_of(PARTS)
    assert [part.name for part in spec.parts] == ["inner.1", "speed", "inner.0", "flags", "camera"]
    assert [part.bytes for part in spec.parts] == [12, 4, 8, 2, 90]
    assert (spec.kind, spec.shape, spec.dtype) == ("parts", (116,), "uint8")
    assert [part.name for part in spec.leading(floats=True).parts] == ["inner.1", "speed"]
    assert [part.name for part in spec.leading(floats=False).parts] == ["inner.1", "speed", "inner.0", "flags"]


def packed(spec: ObservationSpec, observation: Any) -> np.ndarray:
    return spec.pack(lambda part: np.asarray(part.of(observation))[None])[0]


nested = st.recursive(
    simple,
    lambda inner: (
        st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3).map(spaces.Dict)
        | st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple)
    ),
    max_leaves=5,
).filter(lambda space: isinstance(space, spaces.Dict | spaces.Tuple))


@given(space=nested, count=st.integers(1, 3), stack=st.integers(1, 2), seed=st.integers(0, 99))
def test_every_part_survives_packing(space, count, stack, seed):
    spec = spec_of(space)
    assert build(ObservationSpec, json.loads(json.dumps(to_plain(spec, {})))) == spec
    space.seed(seed)
    samples = [[space.sample() for _ in range(stack)] for _ in range(count)]
    frames = np.stack([[packed(spec, one) for one in row] for row in samples])
    assert frames.shape == (count, stack, *spec.shape)
    for index, part in enumerate(spec.parts):
        expected = np.stack([[part.spec.frame(np.asarray(part.of(one))[None])[0] for one in row] for row in samples])
        np.testing.assert_array_equal(part_of(torch.from_numpy(frames), spec, index).numpy(), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"speed": np.nan}, "In the part speed: The observation contains nan, which float32 cannot hold"),
        ({"inner": [2]}, r"In the part inner\.1: The observation has no part inner\.1"),
        ({"inner": (6, np.zeros(3))}, r"In the part inner\.0: The state is 6, but the Discrete .* goes from 2 to 5"),
        ({"flags": np.zeros(3, bool)}, r"In the part flags: The observation has shape \(3,\), but"),
    ],
)
def test_a_fault_names_its_part(change, message):
    observation = PARTS.sample() | change
    with pytest.raises(EnvironmentFault, match=message):
        packed(spec_of(PARTS), observation)


def test_an_empty_dict_is_refused():
    with pytest.raises(ConfigError, match=r"observation space is Dict\(\), but must have at least one part"):
        spec_of(spaces.Dict())


@pytest.mark.parametrize("space", [spaces.Discrete(10**9), spaces.MultiDiscrete([3, 2_000_000])], ids=str)
def test_more_discrete_states_than_a_network_can_hold_are_refused(space):
    with pytest.raises(ConfigError, match=r"has \d+ discrete states, but must have at most 1000000; a gymnasium\.Obs"):
        ObservationSpec.from_space(space)
    assert ObservationSpec.from_space(spaces.Discrete(10**6)).size == 10**6
