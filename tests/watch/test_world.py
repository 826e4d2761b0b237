"""Worlds play the same games as training, episode by episode, and show them."""

import cv2
import gymnasium as gym
import numpy as np
import pytest

from monotau.envs.config import EnvConfig
from monotau.envs.make import EnvFactory
from monotau.errors import EnvironmentFault
from monotau.watch.world import AtariWorld, make_world
from tests.support.envs import Frames, MaskedEnv, allowed_at

LIMIT = 1
"""Largest difference of two greys of the same screen, of which one was rounded."""


def world_of(env_id, **settings):
    return make_world(EnvFactory(EnvConfig(id=env_id, **settings)))


def test_an_environment_is_rendered_and_ends_without_a_reset():
    world = world_of("CartPole-v1")
    first = world.reset(0)
    picture = world.picture()
    assert picture.shape == (400, 600, 3)
    assert picture.dtype == np.uint8
    for _ in range(50):
        arrival = world.step(0)
        if arrival.terminated:
            break
    assert abs(arrival.frame[2]) > 0.2  # the pole has fallen, and the state was not reset
    assert (world.picture() != picture).any()
    assert (world.reset(0).frame == first.frame).all()
    world.close()


@pytest.mark.parametrize("env_id", ["MinAtar/Breakout-v1", "monotau/DeepSea-v0", "monotau/Coin-v0", "monotau/Grid-v0"])
def test_minatar_and_our_own_environments_are_drawn(env_id):
    world = world_of(env_id)
    world.reset(0)
    assert world.picture().max() > 200
    world.close()


def difference(world, arrival):
    """The largest difference between the screen, made grey and small, and what the agent sees."""
    grey = world.picture().astype(np.float32) @ np.array([0.299, 0.587, 0.114], np.float32)
    return np.abs(cv2.resize(grey, (84, 84), interpolation=cv2.INTER_AREA) - arrival.frame).max()


@pytest.mark.parametrize("protocol", ["noop", "sticky"])
def test_the_screen_of_a_game_stays_in_step_with_what_the_agent_sees(protocol):
    world = AtariWorld(EnvFactory(EnvConfig(id="ALE/Boxing-v5", protocol=protocol)))
    rng = np.random.default_rng(0)
    for episode in range(2):
        arrival = world.reset(episode)
        for _ in range(40):
            assert difference(world, arrival) < LIMIT
            arrival = world.step(int(rng.integers(18)))
    world.close()


def test_a_game_ends_with_its_last_screen():
    world = AtariWorld(EnvFactory(EnvConfig(id="ALE/Boxing-v5", protocol="noop", max_episode_steps=30)))
    world.reset(0)
    for _ in range(30):
        arrival = world.step(3)
    assert arrival.truncated
    assert difference(world, arrival) < LIMIT
    world.close()


def test_masks_and_the_first_action_of_the_environment_are_kept():
    world = make_world(EnvFactory(EnvConfig(), MaskedEnv))
    assert world.reset(0).mask.tolist() == allowed_at(0)
    assert world.step(1).mask.tolist() == allowed_at(1)  # MaskedEnv raises for an action that it does not allow


def test_an_environment_that_cannot_render_says_so():
    world = make_world(EnvFactory(EnvConfig(), Frames))
    world.reset(0)
    assert world.picture() is None
    assert world.picture_note == "Frames cannot render pictures (it has no render mode rgb_array)"


class Painter(Frames):
    """Renders whatever it is told to."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    painting = None

    def __init__(self, render_mode=None):
        super().__init__()
        self.render_mode = render_mode

    def render(self):
        if self.painting is None:
            raise OSError("out of paint")
        return self.painting


@pytest.fixture
def painter(monkeypatch):
    gym.register("Painter-v0", Painter)
    yield lambda painting: monkeypatch.setattr(Painter, "painting", painting)
    del gym.registry["Painter-v0"]


def test_a_failure_to_render_becomes_a_note(painter):
    world = world_of("Painter-v0")
    world.reset(0)
    assert world.picture() is None
    assert world.picture_note == "Painter-v0 cannot be rendered: OSError: out of paint"
    painter(np.zeros((4, 4)))
    world = world_of("Painter-v0")
    world.reset(0)
    assert world.picture() is None
    assert "an array of shape (4, 4), which is no RGB picture" in world.picture_note


def test_pictures_of_floats_are_converted(painter):
    painter(np.full((2, 3, 3), 0.5))
    world = world_of("Painter-v0")
    world.reset(0)
    assert (world.picture() == 127).all()


def test_faults_name_the_environment_and_the_step():
    class Broken(Frames):
        def step(self, action):
            if self.steps == 1:
                raise KeyError("lost")
            return super().step(action)

    world = make_world(EnvFactory(EnvConfig(), Broken))
    world.reset(0)
    world.step(0)
    with pytest.raises(EnvironmentFault, match="Broken, step 2: it raised KeyError: 'lost'"):
        world.step(0)


def test_a_reward_that_is_no_number_is_a_fault():
    class Endless(Frames):
        def step(self, action):
            return (*super().step(action)[:1], float("nan"), False, False, {})

    world = make_world(EnvFactory(EnvConfig(), Endless))
    world.reset(0)
    with pytest.raises(EnvironmentFault, match="Endless, step 1: the environment returned the reward nan"):
        world.step(0)
