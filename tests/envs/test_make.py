"""Vectors of environments: settings, stepping, ends of episodes, and spaces."""

from dataclasses import FrozenInstanceError

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from monotau.envs import EnvConfig, EnvFactory, ObservationSpec
from monotau.errors import ConfigError, EnvironmentFault
from tests.support.envs import CountingEnv, Frames, episode_lengths, factory


@pytest.mark.parametrize(
    ("setting", "given", "least"),
    [("num_envs", 0, 1), ("frame_stack", 0, 1), ("max_episode_steps", -1, 0)],
)
def test_settings_out_of_range_are_refused(setting, given, least):
    with pytest.raises(ConfigError, match=rf"env\.{setting} is {given}, but must be at least {least}"):
        EnvConfig(**{setting: given})


def test_settings_cannot_change_nor_be_shared():
    first, second = EnvConfig(), EnvConfig()
    assert first == second
    assert first.kwargs is not second.kwargs
    with pytest.raises(FrozenInstanceError):
        first.num_envs = 2


def test_a_factory_knows_the_spaces_of_an_id():
    made = factory("CartPole-v1")
    assert (made.name, made.num_actions, made.action_start, made.reusable) == ("CartPole-v1", 2, 0, True)
    assert made.observation_spec == ObservationSpec.from_space(gym.make("CartPole-v1").observation_space)


def test_a_vector_steps_its_environments_together_and_resets_in_the_same_step():
    vector = factory("CartPole-v1").make_vector(3)
    assert vector.num_envs == 3
    assert vector.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    observations, _ = vector.reset(seed=0)
    assert observations.shape == (3, 4)
    assert (observations[0] != observations[1]).any()
    observations, rewards, _, _, _ = vector.step(np.array([0, 1, 0]))
    assert observations.shape == (3, 4)
    assert rewards.tolist() == [1, 1, 1]


def test_each_vector_is_made_of_new_environments():
    made: list[CountingEnv] = []

    def make() -> CountingEnv:
        made.append(CountingEnv())
        return made[-1]

    parts = EnvFactory(EnvConfig(), make)
    assert [env.closes for env in made] == [1]
    first = parts.make_vector(2)
    second = parts.make_vector(2)
    assert len({id(env.unwrapped) for env in (*first.envs, *second.envs)}) == 4
    assert len(made) == 5


def test_returned_observations_do_not_change_later():
    vector = EnvFactory(EnvConfig(), CountingEnv).make_vector(1)
    before, _ = vector.reset()
    vector.step(np.array([0]))
    assert before.tolist() == [[0, 0]]


@pytest.mark.parametrize("truncates", [False, True])
def test_the_last_observation_of_an_episode_is_kept(truncates):
    vector = EnvFactory(EnvConfig(), lambda: CountingEnv(truncates=truncates)).make_vector(2)
    vector.reset()
    for _ in range(2):
        _, _, _, _, infos = vector.step(np.array([0, 0]))
        assert "final_obs" not in infos
    observations, _, terminated, truncated, infos = vector.step(np.array([0, 0]))
    assert (truncated if truncates else terminated).all()
    assert not (terminated if truncates else truncated).any()
    assert observations.tolist() == [[0, 0], [0, 0]]
    final = np.stack(infos["final_obs"])
    assert final.dtype == np.float32
    assert final.tolist() == [[3, 3], [3, 3]]
    assert "steps" not in infos | infos["final_info"]  # info is left out, because no code reads it


def test_only_ended_environments_have_a_last_observation():
    lengths = iter([9, 1, 2])  # the first one is made to read its spaces
    vector = EnvFactory(EnvConfig(), lambda: CountingEnv(next(lengths))).make_vector(2)
    vector.reset()
    _, _, terminated, _, infos = vector.step(np.array([0, 0]))
    assert terminated.tolist() == [True, False]
    assert infos["_final_obs"].tolist() == [True, False]
    assert infos["final_obs"][0].tolist() == [1, 1]
    assert infos["final_obs"][1] is None


def test_a_discrete_last_observation_stacks_like_any_other():
    vector = factory("monotau/Chain-v0", kwargs={"length": 2}).make_vector(2)
    vector.reset(seed=0)
    _, _, terminated, _, infos = vector.step(np.array([1, 1]))
    assert terminated.all()
    assert np.stack(infos["final_obs"]).tolist() == [1, 1]


def test_keyword_arguments_reach_the_environment():
    made = factory("monotau/DeepSea-v0", kwargs={"size": 4})
    assert made.observation_spec.shape == (4, 4)
    assert made.make_vector(1).envs[0].unwrapped.size == 4


@pytest.mark.parametrize(("limit", "expected"), [(0, [10, 20]), (4, [4, 8, 12, 16, 20])])
def test_an_episode_limit_shortens_episodes(limit, expected):
    assert episode_lengths(factory("monotau/TimeLimit-v0", max_episode_steps=limit).make_vector(1), 20) == expected


def test_an_episode_limit_replaces_the_one_registered_with_the_id():
    assert gym.spec("MountainCar-v0").max_episode_steps == 200
    assert episode_lengths(factory("MountainCar-v0").make_vector(1), 205) == [200]
    assert episode_lengths(factory("MountainCar-v0", max_episode_steps=203).make_vector(1), 205) == [203]


def test_an_empty_vector_is_refused():
    with pytest.raises(ConfigError, match="num_envs is 0, but must be at least 1"):
        factory("CartPole-v1").make_vector(0)


def test_actions_may_start_anywhere():
    env = CountingEnv(action_space=spaces.Discrete(3, start=5))
    made = EnvFactory(EnvConfig(), env)
    assert (made.num_actions, made.action_start) == (3, 5)
    vector = made.make_vector(1)
    vector.reset()
    vector.step(np.array([2]) + made.action_start)
    assert env.actions == [7]


def test_combinations_of_actions_are_numbered():
    env = Frames(spaces.Box(-1, 1, (2,)))
    env.action_space = spaces.MultiDiscrete([2, 3])
    taken = []
    env.step = lambda action: taken.append(action.tolist()) or Frames.step(env, action)
    made = EnvFactory(EnvConfig(), env)
    assert (made.num_actions, made.action_start, made.action_sizes) == (6, 0, (2, 3))
    vector = made.make_vector(1)
    vector.reset()
    for action in range(4):
        vector.step(np.array([action]))
    assert taken == [[0, 0], [0, 1], [0, 2], [1, 0]]


def test_observations_with_parts_reach_a_vector_as_bytes():
    space = spaces.Tuple([spaces.Discrete(3, start=1), spaces.Box(-1, 1, (2,), np.float64)])
    made = EnvFactory(EnvConfig(), lambda: Frames(space))
    frames, _ = made.make_vector(3).reset(seed=5)
    assert (frames.shape, frames.dtype) == ((3, 16), np.uint8)
    for lane in range(3):
        space.seed(5 + lane)
        state, vector = space.sample()
        np.testing.assert_array_equal(frames[lane, :8].view(np.float32), vector.astype(np.float32))
        assert frames[lane, 8:].view(np.int64) == state - 1


def test_a_part_of_the_wrong_type_is_a_fault():
    env = Frames(spaces.Dict(a=spaces.Discrete(3), b=spaces.Box(-1, 1, (2,))))
    vector = EnvFactory(EnvConfig(), env).make_vector(1)
    env.reset = lambda **_: ({"a": 0, "b": "text"}, {})
    with pytest.raises(EnvironmentFault, match="In the part b: The observation is 'text', but must be an array of num"):
        vector.reset()
    env.reset = lambda **_: (7, {})
    with pytest.raises(EnvironmentFault, match="In the part b: The observation has no part b"):
        vector.reset()


def emptied() -> spaces.Discrete:
    space = spaces.Discrete(1)
    space.n = 0
    return space


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (2,)),
        spaces.MultiDiscrete([101, 100]),
        spaces.MultiDiscrete([[2, 2], [3, 3]]),
        spaces.MultiDiscrete([2, 2], start=[0, 1]),
        spaces.MultiBinary(2),
        emptied(),
        None,
    ],
    ids=str,
)
def test_other_actions_are_refused_and_the_environment_closed(space):
    env = CountingEnv(action_space=space)
    with pytest.raises(
        ConfigError, match=r"^CountingEnv: the action space is .*must be Discrete .*one return distribution per action"
    ) as caught:
        EnvFactory(EnvConfig(), lambda: env)
    assert "\n" not in str(caught.value)
    assert env.closes == 1


def test_an_environment_without_spaces_is_refused():
    env = CountingEnv()
    del env.action_space
    with pytest.raises(ConfigError, match="the action space is None"):
        EnvFactory(EnvConfig(), env)


def test_a_refused_observation_space_names_its_environment():
    with pytest.raises(ConfigError, match=r"^Frames: The observation space is Text.*ObservationWrapper"):
        EnvFactory(EnvConfig(), lambda: Frames(spaces.Text(4)))


def test_a_single_environment_renders_if_it_can_and_does_not_reset_itself():
    env = EnvFactory(EnvConfig(id="CartPole-v1")).make_one(rendered=True)
    env.reset(seed=0)
    assert env.render().shape == (400, 600, 3)
    while not env.step(0)[2]:
        pass
    assert abs(env.unwrapped.state[2]) > 0.2  # fallen
    env.close()
    assert EnvFactory(EnvConfig(id="monotau/Coin-v0")).make_one(rendered=True).render_mode is None


def test_a_render_mode_among_the_arguments_is_kept():
    env = EnvFactory(EnvConfig(id="FrozenLake-v1", kwargs={"render_mode": "ansi"})).make_one(rendered=True)
    assert env.render_mode == "ansi"
