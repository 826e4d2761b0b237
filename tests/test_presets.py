"""The table of algorithms and the profiles say what the paper and the settled maths say."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces

from monotau.agent import Agent
from monotau.configs import UpdateConfig
from monotau.errors import ConfigError
from monotau.explorers.dpe import Dpe
from monotau.explorers.epsilon_greedy import EpsilonGreedy
from monotau.networks import TORSOS
from monotau.networks.heads.iqn import Iqn
from monotau.networks.heads.ndqfn import Ndqfn
from monotau.presets import DEFAULT_PRESET, PRESETS, PROFILES, default_profile, resolve, settle, take_names
from tests.small_runs import Frames
from tests.worlds import VECTOR

ENVS = {"CartPole-v1": ("classic", "mlp", 2), "MinAtar/Breakout-v1": ("minatar", "small", 3)}
SCREEN = spaces.Box(0, 255, (84, 84), np.uint8)


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_in_every_profile_makes_an_agent(preset, profile, env):
    agent = Agent(env, preset, profile=profile)
    _, torso, actions = ENVS[env]
    assert (agent.config.preset, agent.config.profile) == (preset, profile)
    assert isinstance(agent.config.torso, TORSOS[torso])
    observations = np.zeros((2, agent.config.env.frame_stack, *agent.spec.shape), agent.spec.dtype)
    observations = observations if agent.config.env.frame_stack > 1 else observations[:, 0]
    assert agent.distribution(observations).mean().shape == (2, actions)


@pytest.mark.parametrize("env", ENVS)
def test_the_profile_is_chosen_from_the_environment(env):
    profile, torso, _ = ENVS[env]
    config = resolve(DEFAULT_PRESET, {"env": {"id": env}}).config
    assert config.profile == profile
    assert isinstance(config.torso, TORSOS[torso])
    assert config.replay.capacity_steps == PROFILES[profile].settings["replay"]["capacity_steps"]


def test_images_of_84x84_take_the_atari_profile_and_discrete_states_the_classic_one():
    resolved = resolve("ndqfn", source=lambda: Frames(SCREEN))
    assert (resolved.config.profile, resolved.config.env.frame_stack) == ("atari", 4)
    assert isinstance(resolved.config.torso, TORSOS["nature"])
    assert default_profile(resolve("ndqfn", source=Frames(spaces.Discrete(3))).envs.observation_spec) == "classic"


def test_the_named_algorithms_are_those_of_the_paper():
    thirty_two = Iqn(online_fractions=32, target_fractions=32, action_fractions=32)
    sixty_four = Iqn(online_fractions=64, target_fractions=64, action_fractions=32)
    rows = {name: (row.head, row.explorer, row.n_step, row.double_q) for name, row in PRESETS.items()}
    paper = Ndqfn(
        knots=32,
        increment="relu",
        input_form="concat",
        increment_scale="1",
        hidden=512,
        cosines=64,
        online_fractions=32,
        target_fractions=32,
        kappa=1.0,
    )
    dpe = Dpe(c=1.0, error="distribution", target="shared", predictor_fraction=1.0, normalise=False)
    vpe = Dpe(c=1.0, error="value", target="shared", predictor_fraction=1.0, normalise=False)
    assert DEFAULT_PRESET == "ndqfn-dpe"
    assert rows == {
        "ndqfn-dpe": (paper, dpe, 3, True),
        "ndqfn": (paper, EpsilonGreedy(), 3, True),
        "ndqfn-vpe": (paper, vpe, 3, True),
        "iqn": (sixty_four, EpsilonGreedy(), 1, False),
        "iqn-star": (thirty_two, EpsilonGreedy(), 3, True),
        "iqn-dpe": (thirty_two, dpe, 3, True),
    }
    assert (sixty_four.cosines, sixty_four.hidden, sixty_four.kappa) == (64, 512, 1.0)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_atari_profile_has_the_settings_of_the_paper(preset):
    config = resolve(preset, source=lambda: Frames(SCREEN)).config
    plain = config.to_plain()
    assert plain["optimiser"] == {"learning_rate": 5e-5, "epsilon": 0.01 / 32}
    assert plain["replay"] == {"capacity_steps": 1_000_000, "warmup_steps": 20_000, "reward_clip": 1.0}
    assert plain["update"] == {"batch_size": 32, "every_steps": 4, "sync_every_steps": 8_000}
    assert plain["epsilon"] == {"start": 1.0, "end": 0.01, "decay_steps": 250_000}
    assert (config.evaluation.steps, config.evaluation.epsilon, config.iteration_steps) == (125_000, 0.001, 250_000)
    assert (config.evaluation.episodes, config.evaluation.num_envs) == (1, 1)
    assert (config.env.frame_stack, config.gamma, config.precision) == (4, 0.99, "fp32")
    assert (config.head, config.explorer) == (PRESETS[preset].head, PRESETS[preset].explorer)
    assert config.steps == 50_000_000


def test_what_comes_later_wins():
    """Preset, then profile, then the file, then the flags; each setting is left alone by those that do not name it."""
    preset = settle("iqn-star", "atari", {}, VECTOR)
    assert (preset.head.hidden, preset.n_step, preset.head.online_fractions) == (512, 3, 32)
    profile, classic = resolve("iqn-star", profile="classic").config, PROFILES["classic"].settings
    assert (profile.head.hidden, profile.n_step) == (classic["head"]["hidden"], 3)
    assert profile.head.hidden != preset.head.hidden
    assert profile.update == UpdateConfig(**classic["update"])
    file = {"head": {"hidden": 50}, "n_step": 5, "update": {"batch_size": 7}}
    from_file = resolve("iqn-star", file).config
    assert (from_file.head.hidden, from_file.n_step, from_file.update.batch_size) == (50, 5, 7)
    assert (from_file.head.online_fractions, from_file.update) == (32, replace(profile.update, batch_size=7))
    flags = resolve("iqn-star", file, {"head": {"hidden": 60}}).config
    assert (flags.head.hidden, flags.n_step, flags.update.batch_size) == (60, 5, 7)


def test_only_the_outcome_must_be_valid():
    """A capacity below the profile's warm-up is fine once a later layer lowers the warm-up."""
    layers = {"replay": {"capacity_steps": 600}}, {"replay": {"warmup_steps": 500}}
    assert resolve("ndqfn", *layers).config.replay.warmup_steps == 500
    with pytest.raises(ConfigError, match=r"replay\.warmup_steps is 1000, but must be between 1 and"):
        resolve("ndqfn", layers[0])


def test_another_kind_of_part_drops_the_settings_of_the_one_before_and_keeps_those_of_the_profile():
    file = resolve("ndqfn-dpe", {"head": {"knots": 9, "hidden": 33}}).config.to_plain()
    plain = take_names(file)[2]
    config = resolve("ndqfn-dpe", plain, {"head": {"kind": "iqn"}, "explorer": {"kind": "epsilon-greedy"}}).config
    hidden = PROFILES["classic"].settings["head"]["hidden"]
    assert (config.head, config.explorer) == (Iqn(hidden=hidden), EpsilonGreedy())
    same = resolve("ndqfn-dpe", plain, {"head": {"kind": "ndqfn"}}).config
    assert same.head == Ndqfn(knots=9, hidden=33)


def test_a_profile_may_set_an_explorer_where_that_is_the_one_used():
    classic = PROFILES["classic"].explorers["dpe"]
    assert classic["c"] != Dpe().c
    assert resolve("ndqfn-vpe").config.explorer == Dpe(error="value", **classic)
    assert resolve("iqn", {"explorer": {"kind": "dpe"}}).config.explorer == Dpe(**classic)
    assert resolve("ndqfn-dpe", {"explorer": {"c": 3.0}}).config.explorer == Dpe(**(classic | {"c": 3.0}))
    assert resolve("ndqfn-dpe", {"explorer": {"kind": "epsilon-greedy"}}).config.explorer == EpsilonGreedy()
    assert resolve("ndqfn-dpe", profile="atari").config.explorer == Dpe()


def test_the_name_of_the_environment_is_written_down_wherever_it_comes_from():
    assert resolve("ndqfn").config.env.id == "CartPole-v1"
    assert resolve("ndqfn", {"env": {"id": "Acrobot-v1"}}).config.env.id == "Acrobot-v1"
    assert resolve("ndqfn", source=Frames).config.env.id == "Frames"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"preset": "ndqfn-dep"}, "^the preset 'ndqfn-dep' is unknown. Did you mean 'ndqfn-dpe'"),
        ({"preset": "ndqfn", "profile": "clasic"}, "^the profile 'clasic' is unknown. Did you mean 'classic'"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_ones(names, message):
    with pytest.raises(ConfigError, match=message):
        resolve(**names)
    with pytest.raises(ConfigError, match=message):
        settle(**({"profile": "classic"} | names), settings={}, spec=VECTOR)


def test_settings_with_an_unknown_name_are_refused_whatever_the_environment():
    with pytest.raises(ConfigError, match=r"the setting 'env\.idd' is unknown"):
        resolve("ndqfn", {"env": {"idd": 3}})
    with pytest.raises(ConfigError, match=r"^env must be a mapping of names to values, but got 'CartPole-v1'"):
        resolve("ndqfn", {"env": "CartPole-v1"})


def test_preset_and_profile_are_taken_out_of_the_settings_of_a_run():
    plain = {"preset": "iqn", "profile": "atari", "steps": 3}
    assert take_names(plain) == ("iqn", "atari", {"steps": 3})
    assert "preset" in plain
    assert take_names({"steps": 3}) == (None, None, {"steps": 3})
    with pytest.raises(ConfigError, match=r"^the preset must be a name, but is \['iqn'\]\.$"):
        take_names({"preset": ["iqn"]})
    with pytest.raises(ConfigError, match=r"^the profile must be a name, but is 3\.$"):
        take_names({"profile": 3})
    with pytest.raises(ConfigError, match=r"^the settings must be a mapping of names to values, but are \[1\]\.$"):
        take_names([1])


@pytest.mark.parametrize("table", [PRESETS, PROFILES], ids=["presets", "profiles"])
def test_each_row_says_in_one_line_what_it_is_about(table):
    assert all(row.about and "\n" not in row.about for row in table.values())
