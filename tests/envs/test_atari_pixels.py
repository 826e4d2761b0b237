"""Frames and rewards equal those of Gymnasium's own Atari preprocessing, pixel by pixel."""

import gymnasium as gym
import numpy as np
import pytest

from monotau.envs.games import id_of
from monotau.learning.rollout import Rollout
from tests.support.envs import factory

ale_py = pytest.importorskip("ale_py")
pytest.importorskip("cv2")

GAMES = ("pong", "breakout", "ms_pacman", "seaquest", "montezuma_revenge")


class AfterNoOps(gym.Wrapper):
    """Starts with a given number of no-ops, which Gymnasium's preprocessing would draw at random."""

    noops = 0

    def reset(self, *, seed=None, options=None):
        first, info = self.env.reset(seed=seed, options=options)
        if not self.noops:
            return first, info
        for _ in range(self.noops):
            *_, info = self.env.env.step(0)
        self.env.ale.getScreenGrayscale(self.env.obs_buffer[0])
        self.env.obs_buffer[1].fill(0)
        return self.env._get_obs(), info


def reference(game):
    gym.register_envs(ale_py)
    emulator = gym.make(id_of(game), frameskip=1, repeat_action_probability=0.0, disable_env_checker=True)
    return AfterNoOps(gym.wrappers.AtariPreprocessing(emulator, noop_max=0, frame_skip=4, screen_size=84))


@pytest.mark.slow
@pytest.mark.parametrize("game", GAMES)
def test_frames_rewards_lives_and_ends_are_those_of_gymnasiums_preprocessing(game):
    rollout = Rollout(factory(id_of(game), protocol="noop"), 1, 4, seed=11)
    emulator, infos = rollout.envs._games, []
    infos.append(emulator.reset(seed=11)[1])
    step_emulator = emulator.step
    emulator.step = lambda actions: (answer := step_emulator(actions), infos.append(answer[-1]))[0]
    single = reference(game)
    stacked = gym.wrappers.FrameStackObservation(single, 4, padding_type="zero")
    single.noops = int(infos[-1]["episode_frame_number"][0])
    theirs, info = stacked.reset()
    rng, lives, earned, games_over, lives_lost = np.random.default_rng(2), info["lives"], 0.0, 0, 0
    for step in range(3_000):
        assert np.array_equal(rollout.observations[0], theirs), f"step {step}"
        action = rng.integers(rollout.factory.num_actions, size=1)
        before = rollout.observations
        outcome = rollout.step(action)
        theirs, reward, terminated, truncated, info = stacked.step(int(action[0]))
        assert outcome.steps.rewards[0] == reward
        assert outcome.steps.truncated[0] == truncated
        assert outcome.steps.terminated[0] == (terminated or info["lives"] < lives)
        assert bool(outcome.returns) == terminated
        assert np.array_equal(before[0, -1], outcome.steps.frames[0])
        lives_lost += not terminated and info["lives"] < lives
        earned, lives = earned + reward, info["lives"]
        if terminated:
            assert np.array_equal(outcome.steps.final_frames[0], theirs[-1])
            assert outcome.returns[0][1] == earned
            single.noops = int(infos[-1]["episode_frame_number"][0])  # as the emulator drew them for the next game
            theirs, info = stacked.reset()
            lives, earned, games_over = info["lives"], 0.0, games_over + 1
    assert games_over >= 1
    assert lives_lost >= 3 or game == "pong"
    rollout.close()
