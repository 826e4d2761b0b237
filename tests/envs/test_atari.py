"""Atari: the two protocols, lost lives and ends of games, and refusals."""

import sys

import gymnasium as gym
import numpy as np
import pytest

from monotau import Agent
from monotau.config.resolve import resolve
from monotau.envs import EnvConfig, EnvFactory, list_envs
from monotau.envs.atari import AtariVector, default_protocol
from monotau.envs.games import ATARI57, GAME_SETS, game_of, id_of
from monotau.errors import ConfigError
from monotau.learning.rollout import Rollout
from tests.support.envs import Frames, factory
from tests.support.small_runs import SMALL

pytest.importorskip("ale_py")

PONG, BREAKOUT = "ALE/Pong-v5", "ALE/Breakout-v5"
TINY = SMALL | {"torso": {"kind": "compact", "width": 4}}


def played(games, steps, seed=3):
    """Take random actions, and yield the result of each step."""
    games.reset(seed=seed)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        yield games.step(rng.integers(games.num_actions, size=games.num_envs))


def test_ids_and_games_go_both_ways():
    assert id_of("ms_pacman") == "ALE/MsPacman-v5"
    assert id_of("up_n_down") == "ALE/UpNDown-v5"
    assert game_of("ALE/MontezumaRevenge-v5") == "montezuma_revenge"
    assert game_of("ALE/Tetris-v5") is None  # a game that appears in no published table
    assert game_of("CartPole-v1") is None
    assert [game_of(id_of(game)) for game in ATARI57] == list(ATARI57)


def test_the_sets_of_games_have_their_sizes_and_hold_known_games():
    sizes = {name: len(set(games)) for name, (_, games) in GAME_SETS.items()}
    assert sizes == {
        "atari57": 57,
        "atari55": 55,
        "atari5": 5,
        "hard-exploration": 7,
        "paper-easy": 11,
        "paper-six": 6,
    }
    assert all(set(games) <= set(ATARI57) for _, games in GAME_SETS.values())
    assert set(ATARI57) - set(GAME_SETS["atari55"][1]) == {"defender", "surround"}


def test_all_57_games_are_listed_and_in_the_emulator():
    from ale_py import roms

    assert {id_of(game) for game in ATARI57} <= {env_id for env_id, _ in list_envs()}
    assert set(ATARI57) <= set(roms.get_all_rom_ids())


def test_no_ops_at_the_start_are_from_0_to_30_under_noop_and_none_under_sticky():
    starts = {"noop": set(), "sticky": set()}
    for protocol, seen in starts.items():
        games = AtariVector(PONG, 2, protocol)
        games.reset(seed=0)
        for _ in range(100):  # unseeded, because seeding takes a tenth of a second
            seen |= set(games._games.reset()[1]["episode_frame_number"].tolist())
    assert starts["sticky"] == {0}
    assert {0, 30} <= starts["noop"] <= set(range(31))


def test_actions_stick_under_sticky_only():
    """Two games with the same actions and different seeds; only sticky actions and no-ops may use the seed."""
    for protocol, sticks in (("noop", False), ("sticky", True)):
        runs = []
        for seed in (1, 2):
            games = AtariVector(BREAKOUT, 1, protocol)
            games._games.reset(seed=seed)
            while protocol == "noop" and games._games.reset(seed=seed)[1]["frame_number"][0]:
                seed += 1  # until no no-op was drawn
            rng = np.random.default_rng(5)
            runs.append(np.stack([games.step(rng.integers(4, size=1))[0] for _ in range(40)]))
        assert np.array_equal(*runs) is not sticks


def test_a_lost_life_is_distinguished_from_the_end_of_the_game_and_the_score_continues():
    """Breakout has five lives: random play loses them one by one."""
    games = AtariVector(BREAKOUT, 2, "noop")
    lost, over = np.zeros(2, int), np.zeros(2, int)
    for frames, rewards, terminated, truncated, info in played(games, 800):
        assert frames.shape == (2, 84, 84)
        assert rewards.dtype == np.float64
        assert not (info["life_lost"] & terminated).any()
        assert ("final_obs" in info) == bool(terminated.any())
        lost += info["life_lost"]
        ended = np.flatnonzero(terminated)
        over[ended] += 1
        assert (lost[ended] == 4 * over[ended]).all()  # the fifth lost life ends the game
        assert not truncated.any()
    assert (over >= 2).all()


def test_sticky_has_no_life_loss():
    games = AtariVector(BREAKOUT, 1, "sticky")
    steps = list(played(games, 500))
    assert any(terminated.any() for _, _, terminated, _, _ in steps)
    assert not any(info["life_lost"].any() for *_, info in steps)


def test_in_training_a_lost_life_ends_the_target_but_neither_return_nor_stack():
    rollout = Rollout(factory(BREAKOUT, protocol="noop"), 1, 4, seed=3)
    rng = np.random.default_rng(0)
    outcomes = [rollout.step(rng.integers(4, size=1)) for _ in range(500)]
    ends = [step for step, outcome in enumerate(outcomes) if outcome.steps.terminated[0]]
    firsts = [step for step, outcome in enumerate(outcomes) if outcome.steps.first[0]]
    overs = [step for step, outcome in enumerate(outcomes) if outcome.returns]
    assert len(ends) >= 5
    assert overs == ends[4::5]
    assert firsts == [0, *(step + 1 for step in overs)][: len(firsts)]
    episode = [outcome.steps.rewards[0] for outcome in outcomes[: overs[0] + 1]]
    assert outcomes[overs[0]].returns == [(0, sum(episode), overs[0] + 1)]


@pytest.mark.parametrize("protocol", ["noop", "sticky"])
def test_a_game_that_is_reset_alone_starts_over_and_the_other_goes_on(protocol):
    """A game of Breakout that is reset after some lost lives has all lives again and reports no loss."""
    cut, whole = AtariVector(BREAKOUT, 2, protocol), AtariVector(BREAKOUT, 2, protocol)
    rng = np.random.default_rng(0)
    for games in (cut, whole):
        games.reset(seed=3)
    lost, over, resets = 0, 0, 0
    for step in range(600):
        actions = rng.integers(4, size=2)
        (frames, *rest, info), (twins, *others, other) = cut.step(actions), whole.step(actions)
        assert np.array_equal(frames[1], twins[1])
        assert [flags[1] for flags in rest] == [flags[1] for flags in others]
        assert info["life_lost"][1] == other["life_lost"][1]
        lost += info["life_lost"][0]
        if rest[1][0]:
            assert lost == (4 if protocol == "noop" else 0)  # the fifth lost life ends the game
            lost, over = 0, over + 1
        elif not resets and (lost == 2 if protocol == "noop" else step == 100):
            after, _ = cut.reset(options={"reset_mask": np.array([True, False])})
            assert np.array_equal(after[1], frames[1])
            assert not np.array_equal(after[0], frames[0])
            lost, resets = 0, 1
    assert resets == 1
    assert over >= 1


def test_an_episode_ends_after_108000_frames_or_after_the_configured_limit():
    games = AtariVector(PONG, 1, "noop", max_steps=25)
    cut = [step for step, (_, _, terminated, truncated, _) in enumerate(played(games, 60)) if truncated[0]]
    assert cut == [24, 49]


@pytest.mark.slow
def test_an_episode_that_does_not_end_is_cut_after_27000_steps():
    games = AtariVector("ALE/MontezumaRevenge-v5", 1, "sticky")  # without actions no life is lost
    games.reset(seed=0)
    for step in range(27_000):
        _, _, terminated, truncated, _ = games.step(np.zeros(1, np.int64))
        assert not terminated[0]
        assert truncated[0] == (step == 26_999)


@pytest.mark.parametrize("protocol", ["noop", "sticky"])
def test_games_in_a_vector_play_as_they_do_alone(protocol):
    """Environment i is seeded with seed + i, and threads do not matter."""
    actions = np.random.default_rng(0).integers(4, size=(150, 3))
    together = AtariVector(BREAKOUT, 3, protocol)
    together.reset(seed=7)
    side_by_side = np.stack([together.step(row)[0] for row in actions], axis=1)
    for lane in range(3):
        alone = AtariVector(BREAKOUT, 1, protocol)
        alone.reset(seed=7 + lane)
        assert np.array_equal(side_by_side[lane], np.stack([alone.step(row[[lane]])[0][0] for row in actions]))


def test_returned_frames_are_not_overwritten_later():
    games = AtariVector(PONG, 1, "noop")
    first, _ = games.reset(seed=0)
    kept = first.copy()
    for _ in range(50):
        games.step(np.zeros(1, np.int64))
    assert np.array_equal(first, kept)


def test_the_default_protocol_is_the_papers_for_games_and_none_for_the_rest():
    assert (default_protocol(PONG), default_protocol("CartPole-v1")) == ("noop", "none")
    assert resolve("ndqfn", {"env": {"id": PONG}}).config.env.protocol == "noop"
    assert resolve("ndqfn", {"env": {"id": PONG, "protocol": "sticky"}}).config.env.title == "ALE/Pong-v5 sticky"
    assert resolve("ndqfn").config.env.title == "CartPole-v1"


def test_the_papers_presets_play_one_game_and_evaluate_125000_steps_after_250000():
    config = resolve("ndqfn-dpe", {"env": {"id": "ALE/MontezumaRevenge-v5"}}).config
    assert (config.profile, config.env.num_envs, config.env.frame_stack) == ("atari", 1, 4)
    assert config.iteration_steps * config.evaluation.every_iterations == 250_000
    assert (config.evaluation.steps, config.evaluation.epsilon, config.steps) == (125_000, 0.001, 50_000_000)
    assert (config.replay.reward_clip, config.replay.capacity_steps) == (1.0, 1_000_000)
    assert (config.torso.__class__.__name__, config.precision, config.threads) == ("Nature", "fp32", 0)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"id": PONG, "protocol": "none"}, r"env\.protocol is 'none', but must be one of noop, sticky for 'ALE/Pong"),
        ({"id": "CartPole-v1", "protocol": "sticky"}, r"env\.protocol is 'sticky', but must be 'none' for 'CartPole"),
        ({"id": PONG, "kwargs": {"frameskip": 1}}, r"env\.kwargs is \{'frameskip': 1\}, but must be empty"),
        ({"id": "ALE/Pongg-v5"}, r"env\.id 'ALE/Pongg-v5' is unknown\. Did you mean .*'ALE/Pong-v5'"),
        ({"id": "PongNoFrameskip-v4"}, r"'PongNoFrameskip-v4' is unknown\. Did you mean .*'ALE/Pong-v5'"),
        ({"id": PONG, "protocol": "Sticky"}, r"env\.protocol .*'Sticky'"),
    ],
)
def test_incompatible_settings_are_refused_in_one_line(settings, reason):
    with pytest.raises(ConfigError, match=reason) as caught:
        resolve("ndqfn", {"env": settings})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 320


def test_a_protocol_is_refused_for_a_user_s_environment():
    with pytest.raises(ConfigError, match=r"env\.protocol is 'noop', but must be 'none'"):
        EnvFactory(EnvConfig(protocol="noop"), lambda: gym.make("CartPole-v1"))


def test_the_error_without_the_emulator_names_the_missing_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(ConfigError, match=r"env\.id is 'ALE/Pong-v5', but .* pip install 'monotau\[atari\]'"):
        resolve("ndqfn", {"env": {"id": PONG}})


def test_a_game_made_by_the_user_is_played_as_it_is_given():
    """A user's game has no protocol, so the config names none."""
    import ale_py

    gym.register_envs(ale_py)
    agent = Agent(lambda: gym.wrappers.AtariPreprocessing(gym.make(PONG, frameskip=1)), "ndqfn", **TINY)
    assert (agent.config.env.id, agent.config.env.protocol) == (PONG, "none")


def test_an_agent_of_a_game_is_saved_and_loaded_but_not_for_another_environment(tmp_path):
    agent = Agent(PONG, "ndqfn", env_settings={"protocol": "sticky", "frame_stack": 2}, **TINY)
    agent.save(tmp_path)
    again = Agent.load(tmp_path)
    assert again.config.env.protocol == "sticky"
    assert Agent.load(tmp_path, PONG).config.env.protocol == "sticky"
    frame = np.random.default_rng(0).integers(0, 256, (84, 84), np.uint8)
    assert agent.quantiles(frame, [0.1, 0.9]).equal(again.quantiles(frame, [0.1, 0.9]))
    with pytest.raises(
        ConfigError, match=r"env is CartPole-v1, but .* trained on ALE/Pong-v5: .* actions \(6 there, 2 here"
    ):
        Agent.load(tmp_path, "CartPole-v1")


def test_without_the_emulator_an_agent_predicts_and_an_evaluation_names_what_is_missing(tmp_path, monkeypatch):
    Agent(PONG, "ndqfn", env_settings={"frame_stack": 2}, **TINY).save(tmp_path)
    monkeypatch.setitem(sys.modules, "ale_py", None)
    agent = Agent.load(tmp_path)
    assert agent.predict(np.zeros((84, 84), np.uint8))[0] in range(6)
    with pytest.raises(ConfigError, match=r"pip install 'monotau\[atari\]'"):
        agent.evaluate(1)
    with pytest.raises(ConfigError, match=r"pip install 'monotau\[atari\]'"):
        Agent.load(tmp_path, PONG)


@pytest.mark.parametrize("given", ["ALE/MontezumaRevnge-v5", "MontezumaRevenge-v4", "montezumarevengenoframeskip-v4"])
def test_only_ids_that_can_be_used_are_suggested(given):
    with pytest.raises(ConfigError, match="Did you mean") as caught:
        resolve("ndqfn", {"env": {"id": given}})
    suggested = str(caught.value).split("?")[0].split("'")[3::2]
    assert "ALE/MontezumaRevenge-v5" in suggested
    assert not {name for name in suggested if name.startswith("Montezuma")}


def test_a_ready_made_game_is_not_multiplied_by_a_profile_with_several_environments():
    screens = Frames(gym.spaces.Box(0, 255, (84, 84), np.uint8))
    config = resolve("ndqfn-fast", source=screens).config
    assert (config.profile, config.env.num_envs) == ("atari-fast", 1)
