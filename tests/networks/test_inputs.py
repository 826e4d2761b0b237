"""Input scaling: networks see vectors of about unit size, whatever the units of the environment."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from monotau.agent import Agent
from monotau.envs.spec import ObservationSpec
from monotau.networks import inputs
from monotau.networks.inputs import LARGEST, InputScaling, prepare
from tests.support.networks import small_factory
from tests.support.small_runs import SMALL

INFINITE = float("inf")


def spec(low, high, dtype=np.float32) -> ObservationSpec:
    return ObservationSpec.from_space(spaces.Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype))


VECTOR = spec([-2, -INFINITE, 1], [2, INFINITE, 3])


def batches(count: int, size: int = 3, stack: int = 1) -> list[torch.Tensor]:
    """Return batches of unequal sizes whose means and deviations are far from 0 and 1."""
    rng = np.random.default_rng(0)
    means, deviations = np.array([1000.0, -3.0, 0.01])[:size], np.array([5.0, 40.0, 0.002])[:size]
    return [
        torch.from_numpy((means + deviations * rng.standard_normal((7 + number, stack, size))).astype(np.float32))
        for number in range(count)
    ]


def naive(seen: list[torch.Tensor], memory: int = 1_000) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation over batches: a plain average for the first `memory` batches, then a moving one."""
    mean = square = 0.0
    for number, batch in enumerate(seen, start=1):
        rate = 1 / min(number, memory)
        flat = batch.numpy().astype(np.float64).reshape(len(batch), -1)
        mean = mean + rate * (flat.mean(axis=0) - mean)
        square = square + rate * ((flat**2).mean(axis=0) - square)
    return mean, np.sqrt(square - mean**2)


def scaled(scaling: InputScaling, observations: torch.Tensor) -> np.ndarray:
    return scaling(prepare(observations, scaling.spec)).numpy()


def test_inputs_are_unchanged_before_the_first_batch():
    observations = torch.tensor([[[0.5, -7.0, 3.0]]])
    assert scaled(InputScaling(VECTOR, 1, enabled=True), observations).tolist() == [[0.5, -7.0, 3.0]]


@pytest.mark.parametrize("count", [1, 2, 9])
def test_inputs_are_scaled_by_the_statistics_of_past_batches_and_not_by_their_bounds(count):
    scaling, seen = InputScaling(VECTOR, 1, enabled=True), batches(count)
    for batch in seen:
        scaling.observe(batch)
    mean, deviation = naive(seen)
    expected = (seen[0][:, 0].numpy() - mean) / deviation
    np.testing.assert_allclose(scaled(scaling, seen[0]), expected, rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(scaling.mean.numpy(), mean, rtol=1e-12)
    np.testing.assert_allclose(1 / scaling.factor.numpy(), deviation, rtol=1e-3)


def test_statistics_forget_old_batches(monkeypatch):
    monkeypatch.setattr(inputs, "AVERAGED_BATCHES", 3)
    scaling, seen = InputScaling(VECTOR, 1, enabled=True), batches(8)
    for number, batch in enumerate(seen):
        scaling.observe(batch + 10 * number)
    mean, _ = naive([batch + 10 * number for number, batch in enumerate(seen)], memory=3)
    np.testing.assert_allclose(scaling.mean.numpy(), mean, rtol=1e-12)
    plain, _ = naive([batch + 10 * number for number, batch in enumerate(seen)])
    assert abs(mean - plain).min() > 1


def test_each_frame_of_a_stack_has_statistics_of_its_own():
    scaling, seen = InputScaling(VECTOR, 2, enabled=True), batches(5, stack=2)
    for batch in seen:
        scaling.observe(batch)
    mean, deviation = naive(seen)
    assert mean[1] != mean[4]
    observed = torch.tensor([[[1.0, 37.0, 1.5], [2.0, -9.0, 3.0]]])
    expected = ((observed.flatten().numpy() - mean) / deviation).clip(-LARGEST, LARGEST)
    np.testing.assert_allclose(scaled(scaling, observed)[0], expected, rtol=1e-2, atol=1e-3)


def test_constant_inputs_become_zero_and_extreme_inputs_are_clipped():
    scaling = InputScaling(VECTOR, 1, enabled=True)
    constant = torch.tensor([[[5.0, 0.0, 1e6]]]).expand(6, 1, 3)
    for _ in range(3):
        scaling.observe(constant)
    assert scaled(scaling, constant[:1]).tolist() == [[0, 0, 0]]
    wild = torch.tensor([[[1e9, -1e9, 1e6]]])
    assert scaled(scaling, wild).tolist() == [[LARGEST, -LARGEST, 0]]


def test_the_state_carries_over():
    one, other = (InputScaling(VECTOR, 2, enabled=True) for _ in range(2))
    for batch in batches(5, stack=2):
        one.observe(batch)
    other.load_state({name: tensor.clone() for name, tensor in one.state().items()})
    (more,) = batches(1, stack=2)
    assert torch.equal(one(prepare(more, VECTOR)), other(prepare(more, VECTOR)))
    for scaling in (one, other):
        scaling.observe(more)
    assert torch.equal(one(prepare(more, VECTOR)), other(prepare(more, VECTOR)))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(5),
        spaces.Box(0, 255, (10, 10, 3), np.uint8),
        spaces.Box(-INFINITE, INFINITE, (10, 10, 3), np.float32),
        spaces.Box(0, 255, (4,), np.uint8),
    ],
    ids=["states", "images", "images of floats", "bytes"],
)
def test_states_images_and_bytes_are_left_alone(space):
    made = ObservationSpec.from_space(space)
    scaling = InputScaling(made, 2, enabled=True)
    frames = torch.from_numpy(np.stack([np.stack([made.frame(space.sample()[None])[0]] * 2)]))
    prepared = prepare(frames, made)
    scaling.observe(frames)
    assert scaling(prepared) is prepared
    assert scaling.state() == {}


def test_nothing_is_scaled_where_it_is_switched_off():
    agents = [Agent("CartPole-v1", "ndqfn", scale_observations=on, **SMALL).learn(80) for on in (True, False)]
    observations = torch.tensor([[[1.2, 3.0, 0.1, -2.0]]])
    on, off = (agent.networks.learner.online.torso.inputs(observations)[0].tolist() for agent in agents)
    assert off == observations.flatten().tolist()
    assert all(one != other for one, other in zip(on, off, strict=True))
    assert [name.startswith("observations.") for name in agents[1].networks.state()].count(True) == 0


def test_all_networks_of_an_agent_see_through_one_scaling_and_an_update_counts_its_batch():
    agent = Agent("CartPole-v1", "ndqfn-dpe", **SMALL)
    networks = agent.networks
    each = (networks.learner.online, networks.learner.target, networks.explorer.predictor)
    assert all(network.torso.scaling is networks.scaling for network in each)
    agent.learn(80)
    assert networks.scaling.batches.item() == agent._training.updates > 0
    assert small_factory().make("online").torso.scaling is None
