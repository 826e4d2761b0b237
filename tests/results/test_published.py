"""The facts: constants, published scores, and the rows that come out of them."""

import math

import pytest

from monotau.envs.atari import PROTOCOLS
from monotau.envs.games import game_of
from monotau.errors import ConfigError
from monotau.results import games_of, normalised, published, published_row, quoted, references

SOURCES = {(source.protocol, source.algorithm): source for source in published()}


def row(algorithm, constants, games, protocol="noop"):
    return published_row(SOURCES[protocol, algorithm], constants, games)


@pytest.mark.parametrize(
    ("algorithm", "constants", "games", "expected"),
    [
        ("DQN", "table1", "atari57", (228, 79, 24)),
        ("C51", "table1", "atari57", (701, 178, 40)),
        ("QR-DQN", "table1", "atari57", (915, 211, 41)),
        ("IQN", "table1", "atari57", (1110, 238, 40)),
        ("DQN", "dqn_zoo", "atari55", (445, 79, 23)),
        ("C51", "dqn_zoo", "atari55", (1825, 178, 38)),
        ("QR-DQN", "dqn_zoo", "atari55", (1757, 211, 39)),
        ("IQN", "dqn_zoo", "atari55", (1949, 238, 38)),
        ("IQN", "dqn_zoo", "atari57", (1889, 238, 40)),
    ],
)
def test_known_rows_come_out(algorithm, constants, games, expected):
    aggregates = row(algorithm, constants, games).aggregates
    mean, median, above = (aggregates[key].value for key in ("mean", "median", "above_human"))
    assert (round(100 * mean), round(100 * median), above) == expected


@pytest.mark.parametrize("source", published(), ids=lambda source: f"{source.algorithm}-{source.protocol}")
@pytest.mark.parametrize("games", ["atari57", "atari55"])
def test_constants_move_the_mean_and_neither_median_nor_interquartile_mean(source, games):
    zoo, table1 = (published_row(source, constants, games).aggregates for constants in ("dqn_zoo", "table1"))
    for key in ("median", "iqm", "above_human"):
        assert zoo[key].value == table1[key].value
    assert zoo["mean"].value > 1.2 * table1["mean"].value


def test_published_results_have_no_interval_and_say_what_they_lack():
    iqn, rainbow = row("IQN", "dqn_zoo", "atari57"), row("Rainbow", "dqn_zoo", "atari57")
    assert iqn.missing == ()
    assert all(estimate.interval is None for estimate in iqn.aggregates.values())
    assert rainbow.missing == ("jamesbond", "riverraid", "up_n_down")
    for algorithm in ("DQN", "C51", "IQN", "Rainbow"):
        assert row(algorithm, "dqn_zoo", "atari57", "sticky").missing == ("defender", "surround")
        assert row(algorithm, "dqn_zoo", "atari55", "sticky").missing == ()
        assert "in training" in SOURCES["sticky", algorithm].origin


def test_a_result_without_any_game_of_the_set_is_no_row():
    only_defender = SOURCES["noop", "IQN"].__class__(
        algorithm="IQN", protocol="noop", origin="here", scores={"defender": 1.0}
    )
    assert published_row(only_defender, "dqn_zoo", "atari55") is None
    assert published_row(only_defender, "dqn_zoo", "atari57").missing == tuple(
        game for game in games_of("atari57") if game != "defender"
    )


def test_the_two_sets_of_constants_differ_in_video_pinball_only():
    zoo, table1 = references("dqn_zoo"), references("table1")
    assert [game for game in zoo if zoo[game] != table1[game]] == ["video_pinball"]
    assert zoo["video_pinball"] == (16256.9, 17667.9)
    assert table1["video_pinball"] == (0.0, 17667.9)


def test_every_number_is_of_a_game_and_finite():
    assert len(references()) == 57
    assert all(reference.human > reference.random for reference in references().values())
    for source in published():
        assert source.protocol in PROTOCOLS
        assert set(source.scores) <= set(references())
        assert all(math.isfinite(score) for score in source.scores.values())


def test_random_play_is_0_and_the_human_is_1():
    for game, reference in references("table1").items():
        assert normalised(game, reference.random, "table1") == 0
        assert normalised(game, reference.human, "table1") == 1
    assert normalised("pong", -3.05) == pytest.approx(0.5)


def test_the_sets_of_games():
    assert len(games_of("atari57")) == 57
    assert set(games_of("atari57")) - set(games_of("atari55")) == {"defender", "surround"}


def test_the_paper_is_quoted_as_it_stands():
    rows = {line.method: (line.mean, line.median, line.above_human) for line in quoted()}
    assert rows["NDQFN+DPE"] == (1959, 237, 42)
    assert rows["IQN"] == (1112, 218, 39)
    assert len(rows) == 9


@pytest.mark.parametrize(
    ("env_id", "game"),
    [
        ("ALE/MsPacman-v5", "ms_pacman"),
        ("ALE/UpNDown-v5", "up_n_down"),
        ("ALE/Pong-v5", "pong"),
        ("ALE/Jamesbond-v5", "jamesbond"),
        ("ALE/AirRaid-v5", None),
        ("ALE/Pong-ram-v5", None),
        ("MinAtar/Breakout-v1", None),
        ("Breakout-v1", None),
        ("mine:ALE/Pong-v5", None),
        ("CartPole-v1", None),
        ("", None),
    ],
)
def test_the_game_of_an_id(env_id, game):
    assert game_of(env_id) == game


@pytest.mark.parametrize("game", games_of("atari57"))
def test_every_game_has_an_id(game):
    name = "".join(word.capitalize() for word in game.split("_"))
    assert game_of(f"ALE/{name}-v5") == game


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"the constants 'dqnzoo' is unknown. Did you mean 'dqn_zoo'"):
        references("dqnzoo")
    with pytest.raises(ConfigError, match=r"the set of games 'atari56' is unknown"):
        games_of("atari56")
    with pytest.raises(ConfigError, match=r"the game 'mspacman' is unknown. Did you mean 'ms_pacman'"):
        normalised("mspacman", 1.0)
