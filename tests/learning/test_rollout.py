"""Rollouts and evaluations: faults of environments, episode returns, and the cap on episode length."""

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
from monotau.learning.evaluate import evaluate
from monotau.learning.rollout import Rollout
from tests.support.small_runs import SMALL


class Scripted(gym.Env):
    """Has episodes of two steps; `script` gives observation and reward of the n-th step."""

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
    with pytest.raises(EnvironmentFault, match="Scripted, step 5: The observation contains nan"):
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


def test_evaluation_shares_episodes_among_environments_and_cuts_long_ones():
    settings = Agent("CartPole-v1", **SMALL).config.evaluation
    share = type(settings)(episodes=5, num_envs=2, episode_cap_steps=3)
    shown = []
    played = evaluate(
        EnvFactory(EnvConfig(id="CartPole-v1")),
        lambda seen, _: np.zeros(len(seen), np.int64),
        share,
        stack=1,
        seed=0,
        on_episode=lambda done, share: shown.append((done, share)),
    )
    assert played.returns == [3.0] * 5
    assert len(played.states) >= 6
    by_hand = [(1, 1 / 6), (2, 5 / 12), (3, 7 / 12), (4, 5 / 6), (5, 1.0)]  # lanes of three and of two episodes
    assert [done for done, _ in shown] == [done for done, _ in by_hand]
    assert [part for _, part in shown] == pytest.approx([part for _, part in by_hand])


def test_an_evaluation_plays_until_both_its_episodes_and_its_steps_are_done():
    settings = Agent("CartPole-v1", **SMALL).config.evaluation
    shown = []
    played = evaluate(
        EnvFactory(EnvConfig(id="CartPole-v1")),
        lambda seen, _: np.zeros(len(seen), np.int64),
        type(settings)(episodes=2, steps=10, episode_cap_steps=3),
        stack=1,
        seed=0,
        on_episode=lambda done, share: shown.append(share),
    )
    assert played.lengths == [3] * 4
    assert shown == pytest.approx([0.3, 0.6, 0.9, 1.0])


class Counted(gym.Env):
    """Observes episode and step, both counted from 1; episodes end after two steps only if the seed is odd."""

    observation_space = gym.spaces.Box(0, 999, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self):
        self.episode = self.seed = 0
        self.options = []

    def seen(self):
        return np.array([self.episode, self.steps], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed = self.seed if seed is None else seed
        self.options.append(options)
        self.episode, self.steps = self.episode + 1, 1
        return self.seen(), {}

    def step(self, action):
        self.steps += 1
        return self.seen(), float(self.steps), self.seed % 2 == 1 and self.steps > 2, False, {}


def watched(cap, episodes, num_envs, seed=0, stack=3):
    """Evaluate on Counted; return the evaluation and the observations acted on, environment by environment."""
    settings = Agent("CartPole-v1", **SMALL).config.evaluation
    acted = []

    def act(observations, masks):
        acted.append(observations.copy())
        return np.zeros(len(observations), np.int64)

    config = type(settings)(episodes=episodes, num_envs=num_envs, episode_cap_steps=cap)
    played = evaluate(EnvFactory(EnvConfig(id=""), Counted), act, config, stack=stack, seed=seed)
    return played, np.stack(acted, axis=1)


def test_an_episode_after_the_cap_starts_with_a_reset_an_empty_stack_and_zero_counts():
    played, acted = watched(cap=4, episodes=3, num_envs=1)
    assert (played.returns, played.lengths) == ([14.0] * 3, [4] * 3)  # 2 + 3 + 4 + 5
    no = [0, 0]
    episodes = acted[0].reshape(3, 4, 3, 2).tolist()
    for e, stacks in enumerate(episodes, start=1):
        assert stacks == [
            [no, no, [e, 1]],
            [no, [e, 1], [e, 2]],
            [[e, 1], [e, 2], [e, 3]],
            [[e, 2], [e, 3], [e, 4]],
        ]


def test_a_cut_leaves_the_other_environments_alone():
    played, acted = watched(cap=3, episodes=6, num_envs=2, seed=2)
    assert played.lengths == [3] * 3 + [2] * 3
    newest = acted[:, :, -1].astype(int).tolist()
    assert newest[0] == [[1, 1], [1, 2], [1, 3], [2, 1], [2, 2], [2, 3], [3, 1], [3, 2], [3, 3]]
    assert newest[1] == [[1, 1], [1, 2], [2, 1], [2, 2], [3, 1], [3, 2], [4, 1], [4, 2], [5, 1]]


def test_an_episode_that_ends_at_the_cap_is_counted_and_reset_once():
    played, acted = watched(cap=2, episodes=2, num_envs=1, seed=1)
    assert (played.returns, played.lengths) == ([5.0] * 2, [2] * 2)
    assert acted[0, :, -1].astype(int).tolist() == [[1, 1], [1, 2], [2, 1], [2, 2]]


def test_an_environment_that_is_reset_at_the_cap_gets_neither_seed_nor_options():
    env = Counted()
    rollout = Rollout(EnvFactory(EnvConfig(id=""), env), 1, 1, seed=4)
    rollout.step(np.zeros(1, np.int64))
    assert rollout.cut_beyond(2) == []
    assert rollout.cut_beyond(1) == [(0, 2.0, 1)]
    assert (env.episode, env.seed, env.options) == (3, 4, [None] * 3)  # the first reset looked for masks
    assert rollout.first.tolist() == [True]


def test_an_environment_that_cannot_be_reset_at_the_cap_is_named_with_the_step(monkeypatch):
    rollout = Rollout(EnvFactory(EnvConfig(id=""), Counted), 1, 1, seed=0)
    rollout.step(np.zeros(1, np.int64))

    def explode(self, **_):
        raise RuntimeError("no way back")

    monkeypatch.setattr(Counted, "reset", explode)
    with pytest.raises(EnvironmentFault, match="Counted, evaluation step 1: it raised RuntimeError: no way back"):
        rollout.cut_beyond(1)


def test_episodes_after_the_cap_follow_from_the_seed_and_do_not_start_alike():
    starts = []
    for seed in (0, 0, 1):
        rollout = Rollout(EnvFactory(EnvConfig(id="CartPole-v1")), 2, 1, seed=seed)
        seen = [rollout.observations.copy()]
        for _ in range(3):
            rollout.step(np.zeros(2, np.int64))
            rollout.cut_beyond(1)
            seen.append(rollout.observations.copy())
        starts.append(np.concatenate(seen))
        rollout.close()
    assert np.array_equal(starts[0], starts[1])
    assert not np.array_equal(starts[0], starts[2])
    assert len(np.unique(starts[0], axis=0)) == 8


def test_divergence_stops_the_run_and_names_the_step_and_the_learning_rate():
    agent = Agent("CartPole-v1", "ndqfn", **(SMALL | {"optimiser": {"learning_rate": 1e30}, "log_every_steps": 100}))
    with pytest.raises(Divergence, match=r"ndqfn on CartPole-v1, step \d+: the loss is (nan|inf).*learning_rate"):
        agent.learn(1000)


def test_divergence_is_one_line_and_exit_code_3(monkeypatch, capsys):
    def diverge(*_, **__):
        raise Divergence("the loss is nan")

    monkeypatch.setattr("monotau.runs.command.train_into", diverge)
    with pytest.raises(SystemExit) as stop:
        main(["train"])
    assert stop.value.code == 3
    assert capsys.readouterr().err.splitlines() == ["error: the loss is nan"]


def test_the_logging_interval_does_not_change_what_is_learned():
    means = [
        Agent("CartPole-v1", "iqn-dpe", **(SMALL | {"log_every_steps": every}))
        .learn(200)
        .distribution(np.zeros(4))
        .mean()
        for every in (20, 90)
    ]
    assert torch.equal(*means)


def test_nan_quantiles_count_as_crossing():
    values = torch.tensor([[1.0, 2.0, float("nan"), 4.0, 5.0]])
    assert PiecewiseLinear(torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9]), values).crossing().item() == 0.5


CALLS = """
from monotau import Agent, ConfigError, import_parts, train_agent
import numpy as np
agent = Agent("CartPole-v1")
calls = (
    lambda: Agent(None),
    lambda: Agent(3),
    lambda: agent.learn(1.5),
    lambda: Agent.load(None),
    lambda: agent.save(""),
    lambda: agent.export_onnx(None),
    lambda: agent.export_torch(3),
    lambda: train_agent("CartPole-v1", None),
    lambda: import_parts(5),
    lambda: agent.quantiles([0.0] * 4, None),
)
for call in calls:
    try:
        call()
    except ConfigError as error:
        print(error)
config = Agent("CartPole-v1", seed=np.int64(3), gamma=np.float32(0.5)).config
print(config.seed, config.gamma)
"""


def test_without_type_checks_users_get_readable_errors_and_may_pass_numpy_numbers():
    """Runs in a separate process, where the type checks of the tests do not raise first."""
    done = subprocess.run([sys.executable, "-c", CALLS], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == "env is None, but must be an id, a gymnasium.Env or a callable that makes one."
    assert lines[1].startswith("env is 3, but must be")
    assert lines[2].startswith("total_steps is 1.5, but must be a positive multiple")
    assert lines[3:-1] == [
        "directory is None, but must be the path of a directory.",
        "directory is '', but must be the path of a directory.",
        "path is None, but must be the path of a file.",
        "path is 3, but must be the path of a file.",
        "out is None, but must be the path of a directory.",
        "--import is 5, but must be the name of a module, such as my_package.my_parts.",
        "taus is None, but must be a list of fractions from 0 to 1.",
    ]
    assert lines[-1] == "3 0.5"
