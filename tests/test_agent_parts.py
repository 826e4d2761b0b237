"""Agents whose observations are Dicts or Tuples and whose actions are combinations."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from monotau.agent import Agent
from monotau.errors import ConfigError
from monotau.networks.torsos.joined import JoinedTorso
from tests.support.small_runs import SMALL


class Signals(gym.Env):
    """Pays 1 for the two actions that a colour in the picture and a number beside it show; one step per episode."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            picture=spaces.Box(0, 255, (5, 5, 2), np.uint8),
            shown=spaces.Tuple([spaces.Discrete(3, start=1), spaces.Box(-np.inf, np.inf, (2,), np.float32)]),
        )
        self.action_space = spaces.MultiDiscrete([2, 3])

    def _observation(self):
        self.answer = self.np_random.integers([2, 3])
        picture = np.zeros((5, 5, 2), np.uint8)
        picture[..., self.answer[0]] = 255
        noise = self.np_random.normal(100, 5, 2).astype(np.float32)
        return {"picture": picture, "shown": (int(self.answer[1]) + 1, noise)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        reward = float((action == self.answer).all())
        return self._observation(), reward, True, False, {}


UNSIZED = {name: value for name, value in SMALL.items() if name != "torso"}
"""Small settings that leave the torso to the observations."""


def made(**settings) -> Agent:
    return Agent(Signals, "ndqfn-dpe", **(UNSIZED | settings))


def observed(count: int) -> tuple[dict, np.ndarray]:
    """Return a batch of observations and the best actions."""
    env = Signals()
    seen, answers = [env.reset(seed=0)[0]], [env.answer]
    for _ in range(count - 1):
        seen.append(env._observation())
        answers.append(env.answer)
    shown = tuple(np.stack([np.asarray(one["shown"][index]) for one in seen]) for index in range(2))
    return {"picture": np.stack([one["picture"] for one in seen]), "shown": shown}, np.stack(answers)


def row(batch: dict, index: int) -> dict:
    return {"picture": batch["picture"][index], "shown": tuple(part[index] for part in batch["shown"])}


@pytest.mark.slow
def test_pictures_and_numbers_are_learned_together():
    rate, update = {"learning_rate": 3e-3}, {"every_steps": 2, "batch_size": 16, "sync_every_steps": 60}
    agent = Agent(
        Signals, "dqn", **(UNSIZED | {"head": {"hidden": 16}, "update": update, "optimiser": rate, "steps": 1200})
    )
    assert isinstance(agent.networks.learner.online.torso, JoinedTorso)
    agent.learn(1200)
    batch, answers = observed(40)
    actions, _ = agent.predict(batch)
    assert actions.shape == (40, 2)
    assert (actions == answers).all(axis=1).mean() > 0.9
    assert np.mean(agent.evaluate(episodes=20).returns) > 0.9


@pytest.mark.parametrize("stack", [1, 3])
def test_a_batch_gives_the_same_predictions_as_its_observations_one_by_one(stack):
    agent = made(env_settings={"frame_stack": stack})
    batch, _ = observed(4)
    means = agent.distribution(batch).mean()
    assert means.shape == (4, 6)
    for index in range(4):
        one = row(batch, index)
        torch.testing.assert_close(agent.distribution(one).mean(), means[index])
        np.testing.assert_array_equal(agent.predict(one)[0], np.unravel_index(int(means[index].argmax()), (2, 3)))


def test_a_saved_agent_knows_its_parts_and_actions(tmp_path):
    agent = made().learn(100)
    agent.save(tmp_path)
    batch, _ = observed(3)
    for loaded in (Agent.load(tmp_path), Agent.load(tmp_path, env=Signals)):
        torch.testing.assert_close(loaded.distribution(batch).mean(), agent.distribution(batch).mean(), rtol=0, atol=0)
        np.testing.assert_array_equal(loaded.predict(batch)[0], agent.predict(batch)[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"picture": None}, r"the observation is invalid. In the part picture: "),
        ({"shown": (2,)}, r"the observation is invalid. In the part shown\.1: The observation has no part shown\.1"),
        ({"shown": (9, [0.0, 1.0])}, r"the observation is invalid. In the part shown\.0: The state is 9"),
        (
            {"picture": np.zeros((4, 4, 2), np.uint8)},
            r"the observation is invalid. In the part picture: .* shape \(4, 4, 2\)",
        ),
    ],
)
def test_an_observation_without_its_parts_is_refused(change, message):
    batch, _ = observed(1)
    with pytest.raises(ConfigError, match=message):
        made().predict(row(batch, 0) | change)
