"""Presets and profiles hold the numbers of the papers, and layers of settings combine in the documented order."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces

from monotau.agent import Agent
from monotau.config.plain import to_plain
from monotau.config.presets import DEFAULT_PRESET, PRESETS
from monotau.config.profiles import PROFILES, default_profile
from monotau.config.resolve import resolve, resolve_for_spec, shortened_evaluation, split_names
from monotau.config.schema import KINDS, UpdateConfig
from monotau.errors import ConfigError
from monotau.explorers.dpe import Dpe
from monotau.explorers.epsilon_greedy import EpsilonGreedy
from monotau.networks import TORSOS
from monotau.networks.heads.iqn import Iqn
from monotau.networks.heads.ndqfn import Ndqfn
from monotau.replay import Prioritized, Uniform
from tests.support.envs import Frames
from tests.support.networks import VECTOR
from tests.support.presets import presets

ENVS = {"CartPole-v1": ("classic", "mlp", 2), "MinAtar/Breakout-v1": ("minatar", "small", 3)}
SCREEN = spaces.Box(0, 255, (84, 84), np.uint8)
ADAMS = {
    **dict.fromkeys(("c51", "c51-dpe"), (2.5e-4, 0.01 / 32)),
    **dict.fromkeys(("rainbow", "hl-gauss", "dqn", "double-dqn", "bootstrapped-dqn", "prioritized"), (6.25e-5, 1.5e-4)),
}
"""Step size and epsilon of the algorithms whose own papers differ from IQN's."""

FAST = ("ndqfn-fast", "ndqfn-dpe-fast")


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("preset", presets())
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


SAMPLED = {"online_fractions": 32, "target_fractions": 32, "action_fractions": 32, "hidden": 512, "kappa": 1.0}
STEPS = {"anchor": "mean", "baseline": "relu", "increment": "scaled", "increment_scale": "1/N"}
CURVE = {"hidden": 512, "cosines": 64, "online_fractions": 32, "target_fractions": 32, "kappa": 1.0, "knots": 32}
PROPOSED = {"fraction_learning_rate": 2.5e-9, "entropy_weight": 0.0}
NDQFN = {"kind": "ndqfn", "stratified": True, "support": [], "input_form": "concat"} | STEPS | CURVE
NDQFN_PAPER = NDQFN | {"anchor": "lowest", "baseline": "sigmoid", "increment": "relu", "stratified": False}
NDQFN_FQF = {"kind": "ndqfn-fqf", "stratified": True} | STEPS | CURVE | PROPOSED
IQN_STAR = {"kind": "iqn", "cosines": 64} | SAMPLED
IQN_8 = IQN_STAR | {"online_fractions": 8, "target_fractions": 8, "action_fractions": 8}
IQN = IQN_STAR | {"online_fractions": 64, "target_fractions": 64}
IQN_8 = IQN_STAR | {"online_fractions": 8, "target_fractions": 8, "action_fractions": 8}
INCREMENTAL_IQN = {"kind": "incremental-iqn", "cosines": 64} | SAMPLED | STEPS
IMPLICIT_SORTED = {"kind": "implicit-sorted", "noise": 8} | SAMPLED
FQF = {"kind": "fqf", "quantiles": 32, "hidden": 512, "cosines": 64, "kappa": 1.0} | PROPOSED
QR = {"kind": "qr", "quantiles": 200, "hidden": 512, "kappa": 1.0}
NC_QR = QR | {"kind": "nc-qr"}
NQ = QR | {"kind": "nq"}
SPL = {"kind": "spline", "bins": 32, "online_fractions": 32, "target_fractions": 32, "hidden": 512, "kappa": 1.0}
HL_GAUSS = {"kind": "hl-gauss", "bins": 51, "low": -10.0, "high": 10.0, "deviation": 0.75, "hidden": 512}
C51 = {"kind": "c51", "atoms": 51, "low": -10.0, "high": 10.0, "hidden": 512}
DQN = {"kind": "dqn", "hidden": 512, "kappa": 1.0}

GREEDY = {"kind": "epsilon-greedy"}
DLTV = {"kind": "dltv", "c": 50.0}
DPE = {"kind": "dpe", "c": 1.0, "kappa": 0.05, "error": "distribution", "target": "shared"}
DPE |= {"predictor_fraction": 1.0, "normalise": False}
DPE_PAPER, VPE = DPE | {"kappa": 1.0}, DPE | {"error": "value"}
DEEP_DPE = {"kind": "deep-dpe", "c": 3.0, "views": 8, "future_rate": 0.1}
RND = {"kind": "rnd", "form": "backed-up", "c": 0.5, "features": 512, "discount": 0.99, "future_rate": 0.1}
PQR = {"kind": "pqr", "delta": 1e6, "decay": 1e-3, "concentration": 0.05, "intervals": 200}
BOOTSTRAPPED = {"kind": "bootstrapped", "members": 20, "prior_scale": 3.0, "inclusion": 0.5, "target_rate": 0.1}
PE_DQN = {
    "kind": "pe-dqn",
    "c": 5.0,
    "prior_scale": 20.0,
    "outputs": 101,
    "low": -10.0,
    "high": 10.0,
    "target_rate": 0.1,
}

UNIFORM = {"kind": "uniform"}
PRIORITIZED = {"kind": "prioritized", "priority": "loss", "alpha": 0.6, "beta_start": 0.4, "beta_steps": 0}
SCHAUL = PRIORITIZED | {"priority": "td"}

ROWS = {
    "ndqfn-dpe": (NDQFN, DPE, None, None, True),
    "ndqfn": (NDQFN, GREEDY, None, None, True),
    "ndqfn-dpe-paper": (NDQFN_PAPER, DPE_PAPER, UNIFORM, 3, True),
    "ndqfn-paper": (NDQFN_PAPER, GREEDY, UNIFORM, 3, True),
    "ndqfn-vpe": (NDQFN, VPE, None, None, True),
    "ndqfn-dltv": (NDQFN, DLTV, None, None, True),
    "ndqfn-deep-dpe": (NDQFN, DEEP_DPE, UNIFORM, 1, True),
    "ndqfn-rnd": (NDQFN, RND, UNIFORM, 1, True),
    "ndqfn-fqf": (NDQFN_FQF, GREEDY, None, None, True),
    "ndqfn-dpe-fast": (NDQFN, DPE, PRIORITIZED, 5, True),
    "ndqfn-fast": (NDQFN, GREEDY, PRIORITIZED, 5, True),
    "iqn": (IQN, GREEDY, None, 1, False),
    "iqn-star": (IQN_STAR, GREEDY, None, None, True),
    "iqn-8": (IQN_8, GREEDY, None, None, True),
    "iqn-dpe": (IQN_STAR, DPE, None, None, True),
    "iqn-dltv": (IQN_STAR, DLTV, None, None, True),
    "munchausen-iqn": (IQN, GREEDY, None, 1, False),
    "incremental-iqn": (INCREMENTAL_IQN, GREEDY, None, None, True),
    "implicit-sorted": (IMPLICIT_SORTED, GREEDY, None, None, True),
    "fqf": (FQF, GREEDY, None, 1, False),
    "fqf-dpe": (FQF, DPE, None, None, True),
    "qr-dqn": (QR, GREEDY, None, 1, False),
    "qr-dqn-dpe": (QR, DPE, None, None, True),
    "qr-dqn-dltv": (QR, DLTV, None, 1, False),
    "pe-dqn": (QR, PE_DQN, UNIFORM, 1, True),
    "pqr": (QR, PQR, None, 1, False),
    "nc-qr-dqn": (NC_QR, GREEDY, None, 1, False),
    "nq-dqn": (NQ, GREEDY, None, 1, True),
    "spl-dqn": (SPL, GREEDY, None, 1, False),
    "c51": (C51, GREEDY, None, 1, False),
    "c51-dpe": (C51, DPE, None, None, True),
    "rainbow": (C51, GREEDY, PRIORITIZED | {"alpha": 0.5}, 3, True),
    "hl-gauss": (HL_GAUSS, GREEDY, UNIFORM, 1, False),
    "dqn": (DQN, GREEDY, UNIFORM, 1, False),
    "double-dqn": (DQN, GREEDY, UNIFORM, 1, True),
    "bootstrapped-dqn": (DQN, BOOTSTRAPPED, UNIFORM, 1, True),
    "prioritized": (DQN, GREEDY, SCHAUL, 1, True),
}
"""Head, explorer, replay, n-step (None: chosen by the profile) and double Q of every preset, copied from the papers.

Every number is written out, so that a changed default of a part fails here as well as a changed row.
"""


def plain(part):
    """Return all settings of a part as plain values; the sizes of a replay belong to the profile."""
    settings = to_plain(part, KINDS)
    return {name: settings[name] for name in settings.keys() - {"capacity_steps", "warmup_steps", "reward_clip"}}


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_the_parts_and_numbers_of_its_paper(preset):
    row = PRESETS[preset]
    head, explorer, replay, n_step, double_q = ROWS[preset]
    assert plain(row.head) == head
    assert plain(row.explorer) == explorer
    assert (row.replay and plain(row.replay)) == replay
    assert (row.n_step, row.double_q) == (n_step, double_q)
    assert (row.noisy, row.dueling) == ((True, True) if preset == "rainbow" else (False, False))


def test_the_default_preset_is_the_method_of_the_paper():
    assert DEFAULT_PRESET == "ndqfn-dpe"
    assert PRESETS.keys() == ROWS.keys()


@pytest.mark.parametrize("preset", [name for name in PRESETS if name not in FAST])
def test_the_atari_profile_has_the_settings_of_the_paper(preset):
    config = resolve(preset, source=lambda: Frames(SCREEN)).config
    settings = config.to_plain()
    rate, epsilon = ADAMS.get(preset, (5e-5, 0.01 / 32))
    assert settings["optimiser"] == {"method": "adam", "learning_rate": rate, "epsilon": epsilon, "anneal": 1.0}
    sizes = {"capacity_steps": 1_000_000, "warmup_steps": 20_000, "reward_clip": 1.0}
    assert settings["replay"] | sizes == settings["replay"]
    assert settings["update"] == {
        "batch_size": 32,
        "every_steps": 4,
        "sync": "copy",
        "sync_every_steps": 8_000,
        "average": 0.0,
    }
    random = {"start": 1.0, "end": 0.01, "decay_steps": 250_000, "longest_repeat": 1}
    at_once = {"rainbow": 0.0, "ndqfn-deep-dpe": 0.01, "ndqfn-rnd": 0.01, "bootstrapped-dqn": 0.01, "pe-dqn": 0.01}
    if preset in at_once:
        random |= {"end": at_once[preset], "decay_steps": 0}
    assert settings["epsilon"] == random
    assert (config.evaluation.steps, config.evaluation.epsilon) == (125_000, 0.001)
    assert config.iteration_steps * config.evaluation.every_iterations == 250_000
    assert (config.evaluation.episodes, config.evaluation.num_envs) == (1, 1)
    assert (config.env.frame_stack, config.gamma, config.precision) == (4, 0.99, "fp32")
    assert (plain(config.head), plain(config.explorer)) == ROWS[preset][:2]
    assert settings["munchausen"] == {
        "alpha": 0.9 if preset == "munchausen-iqn" else 0.0,
        "temperature": 0.03,
        "clip": -1.0,
    }
    assert (config.n_step, config.cut_at_random) == (ROWS[preset][3] or 3, False)
    assert config.steps == 50_000_000


@pytest.mark.parametrize("preset", FAST)
def test_the_fast_presets_take_another_profile_on_atari_only(preset):
    config = resolve(preset, source=lambda: Frames(SCREEN)).config
    assert (config.profile, config.precision) == ("atari-fast", "auto")
    assert isinstance(config.torso, TORSOS["compact"])
    assert config.env.num_envs > 1
    assert resolve(preset, source=lambda: Frames(SCREEN), profile="atari").config.profile == "atari"
    assert resolve(preset).config.profile == "classic"


def test_later_layers_of_settings_override_earlier_ones():
    """The order is preset, profile, file, flags; a layer changes only the settings it names."""
    preset = resolve_for_spec("iqn-star", "atari", {}, VECTOR)
    assert (preset.head.hidden, preset.n_step, preset.head.online_fractions) == (512, 3, 32)
    profile, classic = resolve("iqn-star", profile="classic").config, PROFILES["classic"].settings
    assert (profile.head.hidden, profile.n_step) == (classic["head"]["hidden"], PROFILES["classic"].n_step)
    assert resolve("rainbow", profile="classic").config.n_step == 3
    assert profile.head.hidden != preset.head.hidden
    assert profile.update == UpdateConfig(**classic["update"])
    file = {"head": {"hidden": 50}, "n_step": 5, "update": {"batch_size": 7}}
    from_file = resolve("iqn-star", file).config
    assert (from_file.head.hidden, from_file.n_step, from_file.update.batch_size) == (50, 5, 7)
    assert (from_file.head.online_fractions, from_file.update) == (32, replace(profile.update, batch_size=7))
    flags = resolve("iqn-star", file, {"head": {"hidden": 60}}).config
    assert (flags.head.hidden, flags.n_step, flags.update.batch_size) == (60, 5, 7)


def test_only_the_merged_settings_must_be_valid():
    """A warm-up beyond the profile's capacity is fine once a later layer raises the capacity."""
    layers = {"replay": {"warmup_steps": 200_000}}, {"replay": {"capacity_steps": 300_000}}
    assert resolve("ndqfn", *layers).config.replay.warmup_steps == 200_000
    with pytest.raises(ConfigError, match=r"replay\.warmup_steps is 200000, but must be between 1 and"):
        resolve("ndqfn", layers[0])


@pytest.mark.parametrize(
    ("given", "warmup"),
    [
        ({}, 2_800),
        ({"steps": 50}, 5),
        ({"steps": 5}, 1),
        ({"steps": 10**7}, 10_000),
        ({"replay": {"capacity_steps": 600}}, 600),
        ({"replay": {"warmup_steps": 70}}, 70),
        ({"replay": {"kind": "uniform", "warmup_steps": 70}}, 70),
    ],
)
def test_a_short_run_takes_a_tenth_of_its_steps_at_random_before_it_learns(given, warmup):
    config = resolve("ndqfn", given).config
    assert config.replay.warmup_steps == warmup
    assert config.epsilon.decay_steps == config.steps * 2 // 5


@pytest.mark.parametrize(
    ("preset", "given", "episodes", "steps"),
    [
        ("ndqfn", {"steps": 800}, 1, 400),  # 125,000 steps of evaluation for 250,000 of training
        ("ndqfn", {"steps": 250_001}, 1, 125_000),
        ("ndqfn", {"steps": 10_000_000, "iteration_steps": 25_000}, 1, 62_500),
        ("ndqfn", {"steps": 10_000_000, "evaluation": {"every_iterations": 1}}, 1, 25_000),
        ("ndqfn", {"steps": 800, "evaluation": {"steps": 7, "episodes": 2}}, 2, 7),
        ("ndqfn-fast", {"steps": 800}, 1, 0),
        ("ndqfn-fast", {"steps": 30_008}, 4, 0),  # ten episodes for 80,000 steps of training
        ("ndqfn-fast", {}, 10, 0),
    ],
)
def test_evaluations_on_atari_are_proportional_to_what_was_trained_since_the_last(preset, given, episodes, steps):
    resolved = resolve(preset, given, source=lambda: Frames(SCREEN))
    evaluation = resolved.config.evaluation
    assert (evaluation.episodes, evaluation.steps) == (episodes, steps)
    said = shortened_evaluation(resolved)
    own = PROFILES[resolved.config.profile].settings["evaluation"]
    full = (own["episodes"], own.get("steps", 0))
    if (episodes, steps) == full or "steps" in given.get("evaluation", {}):
        assert said is None
    elif steps:
        assert said == (
            f"evaluations take {steps:,d} steps, in proportion to the short run; --evaluation.steps 125000 makes them "
            "as long as usual"
        )
    else:
        assert said == (
            f"evaluations take {episodes} {'episode' if episodes == 1 else 'episodes'}, in proportion to the short "
            "run; --evaluation.episodes 10 makes them as long as usual"
        )


def test_evaluations_of_small_problems_do_not_depend_on_the_steps():
    resolved = resolve("ndqfn", {"steps": 100})
    assert resolved.config.evaluation.episodes == 20
    assert shortened_evaluation(resolved) is None


@pytest.mark.parametrize(
    "given",
    [{"steps": "few"}, {"steps": -5}, {"iteration_steps": None}, {"evaluation": 3}, {"evaluation": {"steps": "x"}}],
    ids=str,
)
def test_lengths_that_are_not_numbers_are_refused_in_one_line_on_atari_too(given):
    with pytest.raises(ConfigError, match=r"^(steps|iteration_steps|evaluation)\S* (is|must)"):
        resolve("ndqfn", given, source=lambda: Frames(SCREEN))


def test_replay_sizes_that_are_not_numbers_are_refused_in_one_line():
    with pytest.raises(ConfigError, match=r"^replay\.\w+ is '\w+', but must be a whole number"):
        resolve("ndqfn", {"replay": {"warmup_steps": "few", "capacity_steps": "many"}})


def test_another_kind_of_part_drops_the_old_part_s_settings_and_keeps_the_profile_s():
    file = resolve("ndqfn-dpe", {"head": {"knots": 9, "hidden": 33}}).config.to_plain()
    settings = split_names(file)[2]
    config = resolve("ndqfn-dpe", settings, {"head": {"kind": "iqn"}, "explorer": {"kind": "epsilon-greedy"}}).config
    hidden = PROFILES["classic"].settings["head"]["hidden"]
    assert (config.head, config.explorer) == (Iqn(hidden=hidden), EpsilonGreedy())
    same = resolve("ndqfn-dpe", settings, {"head": {"kind": "ndqfn"}}).config
    assert same.head == Ndqfn(knots=9, hidden=33)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_replay_settings_of_a_profile_hold_for_every_kind_of_replay(profile):
    given = PROFILES[profile].settings["replay"]
    if profile == "classic":
        given = given | {"warmup_steps": 2_800}  # a tenth of its steps
        assert resolve("ndqfn", profile=profile).config.replay == Prioritized(**given)
    else:
        assert resolve("ndqfn", profile=profile).config.replay == Uniform(**given)
    layers = {"replay": {"kind": "prioritized"}}, {"replay": {"alpha": 0.5}}
    assert resolve("ndqfn", *layers, profile=profile).config.replay == Prioritized(**given, alpha=0.5)
    back = resolve("ndqfn", *layers, {"replay": {"kind": "uniform", "warmup_steps": 7}}, profile=profile)
    assert back.config.replay == Uniform(**(given | {"warmup_steps": 7}))


def test_a_profile_s_explorer_settings_apply_only_to_that_explorer():
    classic = PROFILES["classic"].explorers["dpe"]
    assert classic["c"] != Dpe().c
    assert resolve("ndqfn-vpe").config.explorer == Dpe(error="value", **classic)
    assert resolve("iqn", {"explorer": {"kind": "dpe"}}).config.explorer == Dpe(**classic)
    assert resolve("ndqfn-dpe", {"explorer": {"c": 3.0}}).config.explorer == Dpe(**(classic | {"c": 3.0}))
    assert resolve("ndqfn-dpe", {"explorer": {"kind": "epsilon-greedy"}}).config.explorer == EpsilonGreedy()
    assert resolve("ndqfn-dpe", profile="atari").config.explorer == Dpe()


def test_the_config_records_the_environment_s_name_whatever_its_source():
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
        resolve_for_spec(**({"profile": "classic"} | names), settings={}, spec=VECTOR)


def test_settings_with_an_unknown_name_are_refused_whatever_the_environment():
    with pytest.raises(ConfigError, match=r"the setting 'env\.idd' is unknown"):
        resolve("ndqfn", {"env": {"idd": 3}})
    with pytest.raises(ConfigError, match=r"^env must be a mapping of names to values, but got 'CartPole-v1'"):
        resolve("ndqfn", {"env": "CartPole-v1"})


def test_preset_and_profile_are_taken_out_of_the_settings_of_a_run():
    settings = {"preset": "iqn", "profile": "atari", "steps": 3}
    assert split_names(settings) == ("iqn", "atari", {"steps": 3})
    assert "preset" in settings
    assert split_names({"steps": 3}) == (None, None, {"steps": 3})
    with pytest.raises(ConfigError, match=r"^the preset must be a name, but is \['iqn'\]\.$"):
        split_names({"preset": ["iqn"]})
    with pytest.raises(ConfigError, match=r"^the profile must be a name, but is 3\.$"):
        split_names({"profile": 3})
    with pytest.raises(ConfigError, match=r"^the settings must be a mapping of names to values, but are \[1\]\.$"):
        split_names([1])
