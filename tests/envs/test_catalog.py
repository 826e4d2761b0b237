"""Environments made by id: suggestions for wrong ids, missing extras, and the list of ids."""

import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest

from monotau.envs import ObservationSpec, list_envs
from monotau.envs.atari import default_protocol
from monotau.envs.catalog import MINATAR, MINATAR_VERSIONS
from monotau.errors import ConfigError, MissingExtra
from tests.support.envs import factory


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("CartPol-v1", "CartPole-v1"),
        ("CARTPOLE-V1", "CartPole-v1"),
        ("CartPole-v7", "CartPole-v1"),
        ("DeepSea-v0", "monotau/DeepSea-v0"),
        ("monotau/DeepSee-v0", "monotau/DeepSea-v0"),
        ("breakout", "MinAtar/Breakout-v1"),
        ("MinAtar/Brakeout-v1", "MinAtar/Breakout-v1"),
    ],
)
def test_the_error_for_an_unknown_id_suggests_the_right_one(given, meant):
    with pytest.raises(ConfigError, match=rf"^env\.id '{given}' is unknown\. Did you mean .*'{meant}'") as caught:
        factory(given)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_the_error_for_an_unknown_id_unlike_all_others_suggests_none():
    with pytest.raises(
        ConfigError, match=r"'Xyzzyq-v0' is unknown\. `monotau list envs` shows .*'package\.module:Env-v0'"
    ):
        factory("Xyzzyq-v0")


@pytest.mark.parametrize(
    ("env_id", "kwargs", "reason"),
    [
        ("CartPole-v1", {"wheels": 3}, "TypeError: .*unexpected keyword argument 'wheels'"),
        ("no_such_module:Env-v0", {}, "ModuleNotFoundError: No module named 'no_such_module'"),
        ("not an id", {}, "Error: Malformed environment ID"),
        ("Taxi-v1", {}, r"DeprecatedEnv: .*Please use `Taxi-v\d` instead"),
        ("Ant-v2", {}, "ImportError: The mujoco v2 and v3"),
    ],
)
def test_gymnasium_s_complaint_about_an_id_becomes_one_line(env_id, kwargs, reason):
    with pytest.raises(ConfigError, match=rf"^env\.id '{env_id}' cannot be made: {reason}") as caught:
        factory(env_id, kwargs=kwargs)
    assert "\n" not in str(caught.value)


def test_errors_of_our_own_environments_are_passed_on_unchanged():
    with pytest.raises(ConfigError, match=r"^DeepSea's size is 0"):
        factory("monotau/DeepSea-v0", kwargs={"size": 0})


MODULE = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv
class Silent(CartPoleEnv):
    def __init__(self, fail=False):
        super().__init__()
        if fail:
            raise RuntimeError
gym.register("Silent-v0", Silent)
"""


def test_an_id_may_name_the_module_that_registers_it(tmp_path, monkeypatch):
    (tmp_path / "worlds_of_others.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        made = factory("worlds_of_others:Silent-v0")
        assert made.name == "worlds_of_others:Silent-v0"
        assert made.make_vector(2).reset(seed=0)[0].shape == (2, 4)
        with pytest.raises(ConfigError, match=r"cannot be made: RuntimeError$"):
            factory("worlds_of_others:Silent-v0", kwargs={"fail": True})
    finally:
        sys.modules.pop("worlds_of_others", None)
        gym.registry.pop("Silent-v0", None)


@pytest.mark.parametrize("env_id", ["CartPole-v0", "CartPole"])
def test_gymnasiums_warnings_do_not_leak(env_id):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        factory(env_id).make_vector(1)
    assert caught == []


@pytest.mark.parametrize("env_id", [env_id for env_id, _ in list_envs()])
def test_every_listed_id_can_be_made_and_stepped(env_id):
    made = factory(env_id, protocol=default_protocol(env_id))
    vector = made.make_vector(2)
    observations, _ = vector.reset(seed=0)
    generator = np.random.default_rng(0)
    for _ in range(30):
        frames = made.observation_spec.frame(observations)
        assert frames.shape == (2, *made.observation_spec.shape)
        actions = generator.integers(made.num_actions, size=2) + made.action_start
        observations, _, terminated, truncated, infos = vector.step(actions)
        done = terminated | truncated
        if done.any():
            made.observation_spec.frame(np.stack(infos["final_obs"][done]))
    vector.close()


def test_listed_ids_are_unique_and_described():
    listed = list_envs()
    assert len({env_id for env_id, _ in listed}) == len(listed)
    assert all(0 < len(description) < 100 for _, description in listed)
    assert {"CartPole-v1", "LunarLander-v3", "monotau/DeepSea-v0", "MinAtar/Breakout-v1"} <= {
        env_id for env_id, _ in listed
    }


def test_minatar_observations_are_images_of_bits():
    made = factory("MinAtar/Breakout-v1")
    assert made.num_actions == 3
    assert factory("MinAtar/Breakout-v0").num_actions == 6
    assert made.observation_spec == ObservationSpec(
        kind="image", shape=(10, 10, 4), dtype="bool", channels_last=True, scale=1.0, size=400, start=0
    )


def test_a_seed_repeats_a_minatar_game():
    def play() -> list[float]:
        vector = factory("MinAtar/Breakout-v1").make_vector(2)
        observations, _ = vector.reset(seed=3)
        seen = [float(observations.sum())]
        for step in range(50):
            observations, rewards, _, _, _ = vector.step(np.array([step % 3, (step + 1) % 3]))
            seen += [*rewards, float((observations * np.arange(400).reshape(10, 10, 4)).sum())]
        return seen

    assert play() == play()


def test_the_minatar_table_is_what_minatar_registers():
    factory("MinAtar/Breakout-v1")
    registered = {env_id for env_id in gym.registry if env_id.startswith("MinAtar/")}
    assert registered == {f"MinAtar/{game}-v{version}" for game in MINATAR for version in MINATAR_VERSIONS}


def test_the_error_without_minatar_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "minatar", None)
    monkeypatch.setitem(sys.modules, "minatar.gym", None)
    with pytest.raises(ConfigError, match=r"MinAtar cannot be imported .*; pip install monotau\[minatar\]"):
        factory("MinAtar/Breakout-v1")
    assert not any(env_id.startswith("MinAtar/") for env_id, _ in list_envs())


@pytest.mark.parametrize("env_id", ["LunarLander-v3", "LunarLander"])
def test_the_error_without_box2d_says_how_to_install_it(monkeypatch, env_id):
    for module in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "Box2D", None)
    with pytest.raises(MissingExtra, match=rf"'{env_id}', but Box2D .*; pip install monotau\[box2d\]$") as caught:
        factory(env_id)
    assert "\n" not in str(caught.value)
    assert not any("LunarLander" in listed for listed, _ in list_envs())


def test_the_error_for_another_missing_package_is_gymnasium_s():
    gym.register("Needy-v0", needy)
    try:
        with pytest.raises(ConfigError, match=r"'Needy-v0' cannot be made: DependencyNotInstalled: no pedals$"):
            factory("Needy-v0")
    finally:
        gym.registry.pop("Needy-v0", None)


def needy(**_):
    raise gym.error.DependencyNotInstalled("no pedals")


def test_a_very_long_id_is_refused():
    with pytest.raises(ConfigError, match=r"env\.id is 'x+\.\.\.x+', but must have at most 200 characters"):
        factory("x" * 201)


@pytest.mark.parametrize("order", ["import monotau, gymnasium as gym", "import gymnasium as gym, monotau"])
def test_gymnasium_makes_our_environments_after_monotau_was_imported(order):
    program = f"""
import sys
{order}
gym.register_envs(monotau)
print(gym.make("monotau/DeepSea-v0").spec.id, gym.make("monotau:monotau/Coin-v0").spec.id, "torch" in sys.modules)
"""
    assert printed_by(program) == "monotau/DeepSea-v0 monotau/Coin-v0 False"


def test_gymnasium_makes_our_environments_by_the_name_of_the_module():
    program = "import gymnasium as gym; print(gym.make('monotau:monotau/Coin-v0').spec.id)"
    assert printed_by(program) == "monotau/Coin-v0"


def printed_by(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()
