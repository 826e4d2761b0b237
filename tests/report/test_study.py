"""What is compared with what: scales, families that are never mixed, blocks, and relative improvement."""

import json

import numpy as np
import pytest

from monotau.errors import ConfigError
from monotau.report.comparing import improvements
from monotau.report.overview import cautions, summary_sections
from monotau.report.runs import read_runs
from monotau.report.standings import aggregate_sections, env_sections
from monotau.report.study import Study
from tests.report.fake_runs import plain_settings, write_run


@pytest.fixture
def write(tmp_path):
    def write(preset, env, returns, seed=0, steps=4000, random=0.0, env_settings=None, **options):
        config = plain_settings(preset, env, seed, steps)
        config["env"] |= env_settings or {}
        name = f"{preset}-{env}-{seed}".replace("/", "-")
        return write_run(tmp_path / name, returns, config=config, random=random, **options)

    return write


@pytest.fixture
def study(tmp_path):
    return lambda **options: Study(read_runs([tmp_path]), **options)


def test_a_score_is_the_mean_of_the_last_evaluations_or_the_best(write, study):
    write("iqn", "A-v0", [1.0, 9.0, 4.0, 5.0])
    held = study(smooth=2)
    assert held.scores("iqn", "A-v0") == [4.5]
    assert held.scores("iqn", "A-v0", "best") == [9.0]
    assert study().scores("iqn", "A-v0") == [4.75]


def test_without_a_human_random_play_is_0_and_the_best_method_1(write, study):
    write("iqn", "A-v0", [10.0], random=2.0)
    write("iqn", "A-v0", [20.0], seed=1, random=4.0)
    write("dqn", "A-v0", [9.0], random=3.0)
    (family,) = study().families
    assert family.scales["A-v0"] == (3.0, 15.0)
    assert family.reference == "best method"
    (block,) = study().blocks
    assert study().sample(block, "dqn").values.tolist() == [0.5]
    assert study().sample(block, "iqn").values == pytest.approx([7 / 12, 17 / 12])


@pytest.mark.parametrize(("constants", "random"), [("dqn_zoo", 16256.9), ("table1", 0.0)])
def test_atari_is_normalised_by_the_constants_that_are_named(write, study, constants, random):
    write("iqn", "ALE/VideoPinball-v5", [17667.9])
    held = study(constants=constants)
    (family,) = held.families
    assert family.scales == {"ALE/VideoPinball-v5 noop": (random, 17667.9)}
    assert constants in family.about
    assert str(random) in family.about
    assert held.sample(held.blocks[0], "iqn").values.tolist() == [1.0]


def test_protocols_and_environments_without_a_human_are_never_mixed(write, study):
    write("iqn", "ALE/Pong-v5", [1.0])
    write("iqn", "ALE/Alien-v5", [500.0], env_settings={"protocol": "sticky"})
    write("iqn", "A-v0", [1.0])
    assert [(family.name, list(family.scales)) for family in study().families] == [
        ("Atari, protocol noop", ["ALE/Pong-v5 noop"]),
        ("Atari, protocol sticky", ["ALE/Alien-v5 sticky"]),
        ("Environments without a human score", ["A-v0"]),
    ]
    assert [block.envs for block in study().blocks] == [("ALE/Pong-v5 noop",), ("ALE/Alien-v5 sticky",), ("A-v0",)]


def test_games_that_were_cut_short_are_not_compared_with_a_human(write, study):
    write("iqn", "ALE/Pong-v5", [1.0], random=-20.0, env_settings={"max_episode_steps": 99})
    (family,) = study().families
    assert family.reference == "best method"
    assert "cut after 99 steps" in " ".join(cautions(study()))


def test_an_environment_without_a_scale_is_told_and_left_out(write, study):
    write("iqn", "A-v0", [1.0], random=None)
    write("iqn", "B-v0", [1.0], random=5.0)
    held = study()
    assert held.blocks == []
    told = " ".join(cautions(held))
    assert "A-v0 is in no aggregate: no run has measured random play." in told
    assert "B-v0 is in no aggregate: no method is better than random play." in told
    (section,) = aggregate_sections(held, lambda what: None)
    assert "nothing to put together" in section.text
    (section,) = env_sections(held, lambda what: None)
    assert [row[0] for row in section.tables[0].rows] == ["A-v0", "B-v0"]


def test_methods_are_compared_on_the_environments_that_they_share(write, study):
    for preset, envs in (("dqn", "AB"), ("iqn", "ABC"), ("ndqfn", "ABC")):
        for env in envs:
            write(preset, f"{env}-v0", [1.0])
    held = study()
    assert [(block.methods, block.envs) for block in held.blocks] == [
        (("dqn", "iqn", "ndqfn"), ("A-v0", "B-v0")),
        (("iqn", "ndqfn"), ("A-v0", "B-v0", "C-v0")),
    ]
    assert held.compared == held.blocks
    assert "methods have different environments, and all have A-v0, B-v0 only" in " ".join(cautions(held))


def test_methods_without_an_environment_in_common_are_not_compared(write, study):
    write("dqn", "A-v0", [1.0])
    write("iqn", "B-v0", [1.0])
    held = study()
    assert [(block.methods, block.envs) for block in held.blocks] == [(("dqn",), ("A-v0",)), (("iqn",), ("B-v0",))]
    assert "none is common to all" in " ".join(cautions(held))


def test_budgets_that_differ_are_told(write, study):
    write("dqn", "A-v0", [1.0], steps=4000)
    write("iqn", "A-v0", [1.0], steps=8000)
    assert "Budgets differ in A-v0. dqn: 4,000 steps; iqn: 8,000 steps." in " ".join(cautions(study()))


def test_what_runs_have_warned_of_is_told_and_listed(write, study):
    for seed in (0, 1, 2):
        directory = write("dqn", "A-v0", [1.0, 2.0], seed=seed)
        if seed:
            with open(directory / "metrics.jsonl", "a") as file:
                file.write(json.dumps({"step": 4000, "kind": "warning", "rule": "x", "text": f"it is <ill> {seed}"}))
    held = study(smooth=1)
    (told,) = cautions(held)
    assert told.startswith("2 runs of those that count warned while training that something is wrong")
    assert told.endswith("listed below: dqn (2).")
    (section,) = summary_sections(held, lambda what: None)
    table = section.tables[-1]
    assert table.caption == "What runs have warned of."
    assert [row[1:] for row in table.rows] == [
        ["dqn", "A-v0", str(seed), "4,000 of 4,000", f"it is <ill> {seed}"] for seed in (1, 2)
    ]


def test_clean_runs_need_no_caution(write, study):
    for seed in (0, 1):
        write("dqn", "A-v0", [1.0, 2.0], seed=seed)
    assert cautions(study(smooth=1)) == []


def test_relative_improvement_by_hand(write, study):
    write("iqn-star", "A-v0", [10.0], random=4.0)
    write("iqn-star", "A-v0", [12.0], seed=1, random=4.0)  # 11: 7 above random play
    write("ndqfn", "A-v0", [18.0], random=4.0)  # 14 above
    write("iqn-star", "B-v0", [1.0], random=2.0)
    write("ndqfn", "B-v0", [9.0], random=2.0)
    write("ndqfn", "C-v0", [9.0], random=2.0)
    found, none = improvements(study(), "ndqfn", "iqn-star")
    assert found == pytest.approx({"A-v0": 1.0})
    assert none == {"B-v0": "iqn-star scores 1, no more than random play with 2"}


def test_the_table_by_hand(write, study):
    write("dqn", "A-v0", [5.0])
    write("dqn", "B-v0", [10.0])
    write("iqn", "A-v0", [10.0])
    write("iqn", "B-v0", [4.0])
    (section,) = aggregate_sections(study(), lambda what: None)
    last, best = section.tables
    assert last.columns == ("", "mean %", "median %", "IQM %", "best in", "envs", "seeds", "unfinished", "steps")
    assert last.rows == [
        ["dqn", "75 -", "75 -", "75 -", "1", "2", "1", "", "4,000"],
        ["iqn", "70 -", "70 -", "70 -", "1", "2", "1", "", "4,000"],
    ]
    assert "which flatters" in best.caption


def test_published_scores_stand_beside_those_of_the_same_kind(write, study):
    write("iqn", "ALE/Pong-v5", [20.7])
    (section,) = aggregate_sections(study(), lambda what: None)
    last, best = section.tables
    assert [row[0] for row in last.rows] == ["iqn"]
    assert last.columns[4] == "> human"
    assert any(row[0].startswith("IQN (arXiv") and row[-1] == "published" for row in best.rows)
    assert not any("as quoted" in table.caption for table in section.tables)


def test_a_baseline_is_chosen_or_told(write, study):
    write("c51", "A-v0", [1.0])
    assert study().baseline == "c51"
    write("iqn-star", "A-v0", [1.0])
    assert study().baseline == "iqn-star"
    assert study(over="c51").baseline == "c51"
    with pytest.raises(ConfigError, match=r"the method --over 'c52' is unknown\. Did you mean 'c51'"):
        study(over="c52")


def test_nothing_can_be_smoothed_over_no_evaluation(write, study):
    write("c51", "A-v0", [1.0])
    with pytest.raises(ConfigError, match="--smooth is 0, but must be at least 1"):
        study(smooth=0)


def test_unfinished_runs_and_seeds_of_different_number_are_counted(write, study):
    for seed, finished in enumerate((True, False)):
        write("iqn", "A-v0", [1.0 + seed], seed=seed, finished=finished)
    write("iqn", "B-v0", [1.0])
    (section,) = aggregate_sections(study(), lambda what: None)
    assert section.tables[0].rows[0][5:] == ["2", "1 to 2", "1", "4,000"]
    assert np.mean(study().scores("iqn", "A-v0")) == 1.5
