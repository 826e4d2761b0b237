"""What environments may hand over, and what stops a run before it is learned from."""

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch

from monotau import Agent, Divergence, EnvironmentFault
from monotau.cli import main
from monotau.distributions import PiecewiseLinear
from monotau.envs import EnvConfig, EnvFactory
from monotau.evaluate import evaluate
from monotau.rollout import Rollout
from tests.small_runs import SMALL


class Scripted(gym.Env):
    """Two-step episodes; the answer to the n-th step is what `script` says."""

    observation_space = gym.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, script=lambda step: (0.0, 1.0)):
        self.script, self.steps = script, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        observed, reward = self.script(self.steps)
        return np.full(2, observed, np.float32), reward, self.steps % 2 == 0, False, {}


def run(script, steps=20):
    rollout = Rollout(EnvFactory(EnvConfig(id=""), Scripted(script)), 1, 1, seed=0, first_step=0)
    return [rollout.step(np.zeros(1, np.int64)) for _ in range(steps)]


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), -float("inf"), 1e300])
def test_a_reward_that_float32_cannot_hold_stops_the_run_with_env_step_and_value(reward):
    with pytest.raises(EnvironmentFault, match=rf"Scripted, step 7: .* the reward {str(reward).replace('+', '.')}"):
        run(lambda step: (0.0, reward if step == 7 else 1.0))


def test_an_observation_that_is_not_a_number_stops_the_run_with_env_step_and_value():
    with pytest.raises(EnvironmentFault, match="Scripted, step 5: The observation holds the value nan"):
        run(lambda step: (float("nan") if step == 5 else 0.0, 1.0))


def test_an_error_inside_the_environment_is_named_with_env_and_step():
    def explode(step):
        if step == 3:
            raise RuntimeError("physics exploded")
        return 0.0, 1.0

    with pytest.raises(EnvironmentFault, match="Scripted, step 3: it raised RuntimeError: physics exploded"):
        run(explode)


def test_returns_and_lengths_are_those_of_whole_episodes():
    finished = [episode for outcome in run(lambda step: (0.0, float(step)), 6) for episode in outcome.returns]
    assert finished == [(0, 3.0, 2), (0, 7.0, 2), (0, 11.0, 2)]


def test_evaluation_gives_each_environment_its_share_and_cuts_what_is_too_long():
    settings = Agent("CartPole-v1", **SMALL).config.evaluation
    share = type(settings)(episodes=5, num_envs=2, episode_cap_steps=3)
    played = evaluate(
        EnvFactory(EnvConfig(id="CartPole-v1")),
        lambda seen: np.zeros(len(seen), np.int64),
        share,
        stack=1,
        seed=0,
    )
    assert played.returns == [3.0] * 5
    assert len(played.states) >= 6


def test_learning_that_leaves_the_finite_numbers_stops_with_the_step_and_the_rate():
    agent = Agent("CartPole-v1", "ndqfn", **(SMALL | {"optimiser": {"learning_rate": 1e30}, "log_every_steps": 100}))
    with pytest.raises(Divergence, match=r"ndqfn on CartPole-v1, step \d+: the loss is (nan|inf).*learning_rate"):
        agent.learn(1000)


def test_divergence_is_one_line_and_exit_code_3(monkeypatch, capsys):
    def diverge(*_):
        raise Divergence("the loss is nan")

    monkeypatch.setattr("monotau.cli.train_into", diverge)
    with pytest.raises(SystemExit) as stop:
        main(["train"])
    assert stop.value.code == 3
    assert capsys.readouterr().err.splitlines() == ["error: the loss is nan"]


def test_how_often_is_logged_does_not_change_what_is_learned():
    means = [
        Agent("CartPole-v1", "iqn-dpe", **(SMALL | {"log_every_steps": every}))
        .learn(200)
        .distribution(np.zeros(4))
        .mean()
        for every in (20, 90)
    ]
    assert torch.equal(*means)


def test_a_curve_that_is_not_a_number_counts_as_crossing():
    values = torch.tensor([[1.0, 2.0, float("nan"), 4.0, 5.0]])
    assert PiecewiseLinear(torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9]), values).crossing().item() == 0.5


CALLS = """
from monotau import Agent, ConfigError
import numpy as np
for call in (lambda: Agent(None), lambda: Agent(3), lambda: Agent("CartPole-v1").learn(1e2)):
    try:
        call()
    except ConfigError as error:
        print(error)
config = Agent("CartPole-v1", seed=np.int64(3), gamma=np.float32(0.5)).config
print(config.seed, config.gamma)
"""


def test_users_without_a_type_checker_get_errors_in_words_and_may_use_numpy_numbers():
    """In a process of its own, where the shape checks of the test run do not speak first."""
    done = subprocess.run([sys.executable, "-c", CALLS], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == "env is None, but must be an id, a gymnasium.Env or a callable that makes one."
    assert lines[1].startswith("env is 3, but must be")
    assert lines[2].startswith("total_steps is 100.0, but must be a positive multiple")
    assert lines[3] == "3 0.5"
