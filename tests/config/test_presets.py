"""The table of algorithms and the profiles say what the paper and the settled maths say."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces

from monotau.agent import Agent
from monotau.config.presets import DEFAULT_PRESET, PRESETS, resolve, settle, take_names
from monotau.config.profiles import PROFILES, default_profile
from monotau.config.schema import UpdateConfig
from monotau.errors import ConfigError
from monotau.explorers.deep_dpe import DeepDpe
from monotau.explorers.dltv import Dltv
from monotau.explorers.dpe import Dpe
from monotau.explorers.epsilon_greedy import EpsilonGreedy
from monotau.networks import TORSOS
from monotau.networks.heads.c51 import C51
from monotau.networks.heads.dqn import Dqn
from monotau.networks.heads.fqf import Fqf
from monotau.networks.heads.implicit_sorted import ImplicitSorted
from monotau.networks.heads.incremental_iqn import IncrementalIqn
from monotau.networks.heads.iqn import Iqn
from monotau.networks.heads.ndqfn import Ndqfn
from monotau.networks.heads.ndqfn_fqf import NdqfnFqf
from monotau.networks.heads.qr import NcQr, Qr
from monotau.replay import Prioritized, Uniform
from tests.support.envs import Frames
from tests.support.networks import VECTOR

ENVS = {"CartPole-v1": ("classic", "mlp", 2), "MinAtar/Breakout-v1": ("minatar", "small", 3)}
SCREEN = spaces.Box(0, 255, (84, 84), np.uint8)
ADAMS = {
    **dict.fromkeys(("c51", "c51-dpe"), (2.5e-4, 0.01 / 32)),
    **dict.fromkeys(("rainbow", "dqn", "double-dqn", "prioritized"), (6.25e-5, 1.5e-4)),
}
"""Step size and epsilon of those whose own papers differ from IQN's."""


FAST = ("ndqfn-fast", "ndqfn-dpe-fast")


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
    paper = Ndqfn(
        knots=32,
        anchor="lowest",
        baseline="sigmoid",
        increment="relu",
        input_form="concat",
        increment_scale="1/N",
        hidden=512,
        cosines=64,
        online_fractions=32,
        target_fractions=32,
        stratified=False,
        kappa=1.0,
    )
    ours = Ndqfn(anchor="mean", baseline="relu", increment="scaled", stratified=True)
    alike = {"c": 1.0, "target": "shared", "predictor_fraction": 1.0, "normalise": False}
    paper_dpe = Dpe(error="distribution", kappa=1.0, **alike)
    dpe, vpe = (Dpe(error=error, **alike) for error in ("distribution", "value"))
    assert DEFAULT_PRESET == "ndqfn-dpe"
    greedy, dltv, deep = EpsilonGreedy(), Dltv(c=50.0), DeepDpe()
    sampled = {"online_fractions": 32, "target_fractions": 32, "action_fractions": 32}
    qr, c51, fqf = (
        Qr(quantiles=200),
        C51(atoms=51, low=-10.0, high=10.0),
        Fqf(quantiles=32, fraction_learning_rate=2.5e-9),
    )
    rows = {name: (row.head, row.explorer, row.n_step, row.double_q) for name, row in PRESETS.items()}
    assert rows == {
        "ndqfn-dpe": (ours, dpe, 3, True),
        "ndqfn": (ours, greedy, 3, True),
        "ndqfn-dpe-paper": (paper, paper_dpe, 3, True),
        "ndqfn-paper": (paper, greedy, 3, True),
        "ndqfn-vpe": (ours, vpe, 3, True),
        "ndqfn-dltv": (ours, dltv, 3, True),
        "ndqfn-deep-dpe": (ours, deep, 1, True),
        "ndqfn-fqf": (NdqfnFqf(knots=32), greedy, 3, True),
        "ndqfn-dpe-fast": (ours, dpe, 5, True),
        "ndqfn-fast": (ours, greedy, 5, True),
        "iqn": (sixty_four, greedy, 1, False),
        "iqn-star": (thirty_two, greedy, 3, True),
        "iqn-dpe": (thirty_two, dpe, 3, True),
        "iqn-dltv": (thirty_two, dltv, 3, True),
        "incremental-iqn": (IncrementalIqn(**sampled), greedy, 3, True),
        "implicit-sorted": (ImplicitSorted(**sampled), greedy, 3, True),
        "fqf": (fqf, greedy, 1, False),
        "fqf-dpe": (fqf, dpe, 3, True),
        "qr-dqn": (qr, greedy, 1, False),
        "qr-dqn-dpe": (qr, dpe, 3, True),
        "qr-dqn-dltv": (qr, dltv, 1, False),
        "nc-qr-dqn": (NcQr(quantiles=200), greedy, 1, False),
        "c51": (c51, greedy, 1, False),
        "c51-dpe": (c51, dpe, 3, True),
        "rainbow": (c51, greedy, 3, True),
        "dqn": (Dqn(), greedy, 1, False),
        "double-dqn": (Dqn(), greedy, 1, True),
        "prioritized": (Dqn(), greedy, 1, True),
    }
    assert {name for name, row in PRESETS.items() if row.noisy or row.dueling} == {"rainbow"}
    assert PRESETS["rainbow"].noisy
    assert PRESETS["rainbow"].dueling
    replays = {name: row.replay for name, row in PRESETS.items() if row.replay is not None}
    usual = Prioritized(alpha=0.6, beta_start=0.4)
    schaul = Prioritized(alpha=0.6, beta_start=0.4, priority="td")
    uniform = dict.fromkeys(("dqn", "double-dqn", "ndqfn-paper", "ndqfn-dpe-paper", "ndqfn-deep-dpe"), Uniform())
    assert replays == uniform | {"rainbow": Prioritized(alpha=0.5), "prioritized": schaul} | dict.fromkeys(FAST, usual)
    assert (sixty_four.cosines, sixty_four.hidden, sixty_four.kappa) == (64, 512, 1.0)


@pytest.mark.parametrize("preset", [name for name in PRESETS if name not in FAST])
def test_the_atari_profile_has_the_settings_of_the_paper(preset):
    config = resolve(preset, source=lambda: Frames(SCREEN)).config
    plain = config.to_plain()
    rate, epsilon = ADAMS.get(preset, (5e-5, 0.01 / 32))
    assert plain["optimiser"] == {"method": "adam", "learning_rate": rate, "epsilon": epsilon, "anneal": 1.0}
    sizes = {"capacity_steps": 1_000_000, "warmup_steps": 20_000, "reward_clip": 1.0}
    assert plain["replay"] | sizes == plain["replay"]
    assert plain["update"] == {"batch_size": 32, "every_steps": 4, "sync_every_steps": 8_000}
    random = {"start": 1.0, "end": 0.01, "decay_steps": 250_000, "longest_repeat": 1}
    at_once = {"rainbow": 0.0, "ndqfn-deep-dpe": 0.01}
    if preset in at_once:
        random |= {"end": at_once[preset], "decay_steps": 0}
    assert plain["epsilon"] == random
    assert (config.evaluation.steps, config.evaluation.epsilon) == (125_000, 0.001)
    assert config.iteration_steps * config.evaluation.every_iterations == 250_000
    assert (config.evaluation.episodes, config.evaluation.num_envs) == (1, 1)
    assert (config.env.frame_stack, config.gamma, config.precision) == (4, 0.99, "fp32")
    assert (config.head, config.explorer) == (PRESETS[preset].head, PRESETS[preset].explorer)
    assert config.steps == 50_000_000


@pytest.mark.parametrize("preset", FAST)
def test_the_fast_presets_take_another_profile_on_atari_only(preset):
    config = resolve(preset, source=lambda: Frames(SCREEN)).config
    assert (config.profile, config.precision) == ("atari-fast", "auto")
    assert isinstance(config.torso, TORSOS["compact"])
    assert config.env.num_envs > 1
    assert resolve(preset, source=lambda: Frames(SCREEN), profile="atari").config.profile == "atari"
    assert resolve(preset).config.profile == "classic"


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
    """A warm-up beyond the profile's capacity is fine once a later layer raises the capacity."""
    layers = {"replay": {"warmup_steps": 200_000}}, {"replay": {"capacity_steps": 300_000}}
    assert resolve("ndqfn", *layers).config.replay.warmup_steps == 200_000
    with pytest.raises(ConfigError, match=r"replay\.warmup_steps is 200000, but must be between 1 and"):
        resolve("ndqfn", layers[0])


@pytest.mark.parametrize(
    ("given", "warmup"),
    [
        ({}, 2_000),
        ({"steps": 50}, 5),
        ({"steps": 5}, 1),
        ({"steps": 10**7}, 10_000),
        ({"replay": {"capacity_steps": 600}}, 600),
        ({"replay": {"warmup_steps": 70}}, 70),
        ({"replay": {"kind": "uniform", "warmup_steps": 70}}, 70),
    ],
)
def test_a_tenth_of_a_short_run_is_random_before_it_learns(given, warmup):
    config = resolve("ndqfn", given).config
    assert config.replay.warmup_steps == warmup
    assert config.epsilon.decay_steps == config.steps // 5


def test_sizes_of_a_replay_that_are_no_numbers_are_refused_in_one_line():
    with pytest.raises(ConfigError, match=r"^replay\.\w+ is '\w+', but must be a whole number"):
        resolve("ndqfn", {"replay": {"warmup_steps": "few", "capacity_steps": "many"}})


def test_another_kind_of_part_drops_the_settings_of_the_one_before_and_keeps_those_of_the_profile():
    file = resolve("ndqfn-dpe", {"head": {"knots": 9, "hidden": 33}}).config.to_plain()
    plain = take_names(file)[2]
    config = resolve("ndqfn-dpe", plain, {"head": {"kind": "iqn"}, "explorer": {"kind": "epsilon-greedy"}}).config
    hidden = PROFILES["classic"].settings["head"]["hidden"]
    assert (config.head, config.explorer) == (Iqn(hidden=hidden), EpsilonGreedy())
    same = resolve("ndqfn-dpe", plain, {"head": {"kind": "ndqfn"}}).config
    assert same.head == Ndqfn(knots=9, hidden=33)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_replay_settings_of_a_profile_hold_for_every_kind_of_replay(profile):
    given = PROFILES[profile].settings["replay"]
    if profile == "classic":
        given = given | {"warmup_steps": 2_000}  # a tenth of its steps
        assert resolve("ndqfn", profile=profile).config.replay == Prioritized(**given)
    else:
        assert resolve("ndqfn", profile=profile).config.replay == Uniform(**given)
    layers = {"replay": {"kind": "prioritized"}}, {"replay": {"alpha": 0.5}}
    assert resolve("ndqfn", *layers, profile=profile).config.replay == Prioritized(**given, alpha=0.5)
    back = resolve("ndqfn", *layers, {"replay": {"kind": "uniform", "warmup_steps": 7}}, profile=profile)
    assert back.config.replay == Uniform(**(given | {"warmup_steps": 7}))


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
