"""`monotau scores`: what it prints, in three formats, and what it refuses in one line."""

import csv
import io
import json
import re

import pytest

from monotau.results import games_of, published
from tests.support.commands import command_caller
from tests.support.runs import write_atari_run as write_run


@pytest.fixture
def call(capsys):
    return command_caller(capsys, "scores")


@pytest.fixture
def runs(tmp_path):
    """Two games of sticky runs: three seeds and two, one of them unfinished; one seed of noop; and no Atari."""
    for game, seeds in (("Pong", 3), ("MsPacman", 2)):
        for seed in range(seeds):
            write_run(
                tmp_path / f"{game}{seed}", [5.0 + seed, 4.0], env_id=f"ALE/{game}-v5", seed=seed, finished=seed < 2
            )
    write_run(tmp_path / "noop", [3.0], protocol="noop")
    write_run(tmp_path / "cart", [9.0], env_id="CartPole-v1")
    return tmp_path


def line_of(text, *starts):
    """The cells of the one line that starts with these words."""
    lines = [re.split(r"  +", line.strip()) for line in text.splitlines()]
    (found,) = (cells for cells in lines if cells[: len(starts)] == list(starts))
    return found


def test_the_published_table(call):
    code, out, err = call()
    assert (code, err) == (0, "")
    assert "constants dqn_zoo (Video Pinball's random score: 16256.9)" in out
    noop, sticky = out.split("Protocol sticky")
    assert line_of(noop, "IQN", "published") == ["IQN", "published", "238", "305", "14", "40", "1889", "57 of 57", "-"]
    assert line_of(noop, "Rainbow (partial)")[-2] == "54 of 57"
    assert "without 3 games (jamesbond, riverraid, up_n_down)" in noop
    assert "mean return in training" in sticky
    assert line_of(out, "NDQFN+DPE") == ["NDQFN+DPE", "237", "42", "1959"]
    assert "as quoted (aggregates, not recomputed)" in out
    assert "16256.9 in dqn_zoo and 0.0 in table1" in out
    assert "from 1110 to 1889 %" in out
    titles = [line for line in out.splitlines() if re.match(r"\S.*:", line) and "Protocol" in line]
    assert len(titles) == 3
    assert all(re.match("Protocol (noop|sticky)", title) for title in titles)


def test_the_published_table_under_the_other_constants(call):
    _, out, _ = call("--constants", "table1", "--games", "atari55")
    assert "on atari55, constants table1 (Video Pinball's random score: 0.0)" in out
    assert line_of(out.split("Protocol sticky")[0], "IQN", "published")[2:7] == ["238", "320", "14", "38", "1143"]


def test_runs_stand_beside_what_is_published(call, runs):
    code, out, err = call(runs)
    assert code == 0
    assert err == f"{runs / 'cart'} is left out: CartPole-v1 is not one of the 57 Atari games.\n"
    noop, sticky = out.split("Protocol sticky", 1)
    assert line_of(noop, "iqn (partial)", "last")[2] == "67 -"
    assert line_of(noop, "iqn (partial)", "last")[-2:] == ["1 of 57", "1"]
    best = line_of(sticky, "iqn (partial)", "best")
    assert best[-2:] == ["2 of 57", "5"]
    assert re.fullmatch(r"\d+ \[\d+, \d+\]", best[2])
    assert "iqn: runs of 2,000 steps; 1 of them unfinished" in sticky
    assert "without 55 games, so not comparable" in sticky
    assert "probability of improvement" not in out  # on two games


def test_rows_with_enough_games_in_common_are_compared(call, tmp_path):
    for game in ("Pong", "MsPacman", "Alien", "Amidar", "Qbert"):
        write_run(tmp_path / game, [5.0], env_id=f"ALE/{game}-v5")
    _, out, _ = call(tmp_path)
    compared = out.split("probability of improvement", 1)[1].split("\n\n")[0]
    assert line_of(compared, "iqn", "Rainbow", "best") == ["iqn", "Rainbow", "best", "0", "5"]


def test_all_games_can_be_shown(call, runs):
    _, out, _ = call(runs, "--per-game")
    noop, sticky = (block.split("\n\n")[0] for block in out.split(", game by game")[1:])
    assert len(noop.splitlines()) == len(sticky.splitlines()) == 2 + 57
    assert line_of(sticky, "pong")[-2:] == ["4.0 (70)", "6.0 (76)"]
    assert line_of(noop, "riverraid")[-3:] == ["missing"] * 3


def test_csv(call, runs):
    code, out, _ = call(runs, "--format", "csv")
    lines = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert [line["score"] for line in lines] == ["published"] * 9 + ["last", "best"] * 2 + ["quoted"] * 9
    assert {line["protocol"] for line in lines} == {"noop", "sticky"}
    iqn = lines[3]
    assert (iqn["name"], iqn["constants"], iqn["games_present"], iqn["median_low"]) == ("IQN", "dqn_zoo", "57", "")
    assert float(iqn["mean"]) == pytest.approx(1888.64, abs=0.01)
    best = next(line for line in lines if (line["protocol"], line["score"]) == ("sticky", "best"))
    assert float(best["iqm_low"]) <= float(best["iqm"]) <= float(best["iqm_high"])
    assert (best["runs"], best["unfinished"]) == ("5", "1")
    assert (lines[-1]["name"], lines[-1]["mean"], lines[-1]["constants"]) == ("NDQFN+DPE", "1959", "")


def test_csv_of_all_games(call, runs):
    _, out, _ = call(runs, "--format", "csv", "--per-game", "--constants", "table1")
    lines = list(csv.DictReader(io.StringIO(out)))
    assert len(lines) == sum(len(source.scores) for source in published()) + 2 * (1 + 5)
    (pong,) = (line for line in lines if (line["game"], line["score"], line["run"]) == ("pong", "best", "2"))
    assert (pong["protocol"], float(pong["raw"])) == ("sticky", 7.0)
    assert float(pong["percent"]) == pytest.approx(100 * 27.7 / 35.3)


def test_json(call, runs):
    code, out, _ = call(runs, "--format", "json", "--per-game")
    plain = json.loads(out)
    assert code == 0
    assert len(plain["rows"]) == 9 + 4
    (sticky,) = (row for row in plain["rows"] if (row["score"], row["protocol"]) == ("best", "sticky"))
    assert sticky["raw"] == {"ms_pacman": [5.0, 6.0], "pong": [5.0, 6.0, 7.0]}
    assert sticky["runs"] == {"ms_pacman": 2, "pong": 3}
    assert len(sticky["missing"]) == len(games_of("atari57")) - 2
    assert len(sticky["profile"]["interval"]) == 2
    assert len(sticky["profile"]["shares"]) == len(plain["taus"])
    assert plain["rows"][0]["profile"]["interval"] is None
    assert {pair["other"] for pair in plain["probability_of_improvement"]} == {"DQN", "C51", "QR-DQN", "IQN", "Rainbow"}
    assert len(plain["quoted"]["rows"]) == 9
    assert "must not be compared" in plain["warning"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent"], "absent is not a run directory and contains none."),
        (["cart"], r"no run has a score to show. cart is left out: CartPole-v1 is not one of the 57 Atari games."),
        (["torn"], r"torn/config.json is not valid JSON"),
        (["--constants", "atari"], r"--constants"),
        (["--nonsense", "1"], r"the option '--nonsense' is unknown here. See monotau scores --help."),
        (["defender", "--games", "atari55"], r"no run has a score to show. defender is left out: defender is not in"),
    ],
)
def test_what_cannot_be_used_is_one_line(call, runs, monkeypatch, words, message):
    monkeypatch.chdir(runs)
    (runs / "torn").mkdir()
    (runs / "torn" / "config.json").write_text("{")
    write_run(runs / "defender", [1.0], env_id="ALE/Defender-v5")
    code, out, err = call(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert re.search(message, err)


def test_one_unreadable_run_among_others_is_left_out_and_alone_it_is_refused(call, runs):
    (runs / "Pong0" / "metrics.jsonl").write_text("nonsense\n{}\n")
    code, out, err = call(runs)
    assert code == 0
    assert line_of(out.split("Protocol sticky", 1)[1], "iqn (partial)", "best")[-2:] == ["2 of 57", "4"]
    assert re.search(r"Pong0 is left out: .*metrics.jsonl, line 1 is not valid JSON", err)
    assert call(runs / "Pong0")[0] == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"env": {"max_episode_steps": 100}}, "episodes were truncated after 100 steps"),
        ({"evaluation": {"epsilon": 0.5}}, "evaluation.epsilon is 0.5, and scores are compared at 0.001"),
    ],
)
def test_scores_that_are_none_of_the_protocol_are_left_out(call, runs, change, reason):
    path = runs / "Pong0" / "config.json"
    config = json.loads(path.read_text())
    for section, values in change.items():
        config.setdefault(section, {}).update(values)
    path.write_text(json.dumps(config))
    code, _, err = call(runs)
    assert code == 0
    assert f"Pong0 is left out: {reason}" in err


def test_runs_of_an_unusual_profile_are_a_row_of_their_own(call, runs):
    for name, preset in (("Pong0", "iqn"), ("Pong1", "ndqfn-fast")):
        path = runs / name / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"profile": "atari-fast", "preset": preset}))
    _, out, _ = call(runs)
    sticky = out.split("Protocol sticky", 1)[1]
    assert line_of(sticky, "iqn atari-fast (partial)", "best")[-1] == "1"
    assert line_of(sticky, "ndqfn-fast (partial)", "best")[-1] == "1"  # whose usual one it is
    assert line_of(sticky, "iqn (partial)", "best")[-1] == "3"


def test_several_runs_without_a_score_are_counted(call, runs):
    write_run(runs / "other_cart", [9.0], env_id="CartPole-v1", seed=1)
    code, _, err = call(runs / "cart", runs / "other_cart")
    assert code == 2
    assert err.endswith("Other runs left out: 1.\n")
