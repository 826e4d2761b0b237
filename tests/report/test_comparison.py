"""What is compared with what: scales, families that are never mixed, blocks, and relative improvement."""

import json

import numpy as np
import pytest

from monotau.errors import ConfigError
from monotau.report.comparison import RunComparison
from monotau.report.sections.compare import improvements
from monotau.report.sections.overview import cautions, overview_sections
from monotau.report.sections.scores import aggregate_score_sections, env_score_sections
from monotau.results.methods import read_methods
from tests.support.runs import ignore, plain_settings, write_run


@pytest.fixture
def write(tmp_path):
    def write(preset, env, returns, seed=0, steps=4000, random=0.0, env_settings=None, **options):
        config = plain_settings(preset, env, seed, steps)
        config["env"] |= env_settings or {}
        name = f"{preset}-{env}-{seed}".replace("/", "-")
        return write_run(tmp_path / name, returns, config=config, random=random, **options)

    return write


@pytest.fixture
def comparison(tmp_path):
    return lambda **options: RunComparison(read_methods([tmp_path]), **options)


@pytest.mark.parametrize("smooth", [1, 2, 10])
def test_a_score_is_the_last_evaluation_or_the_best_however_curves_are_smoothed(write, comparison, smooth):
    write("iqn", "A-v0", [1.0, 9.0, 4.0, 5.0])
    held = comparison(smooth=smooth)
    assert held.scores("iqn", "A-v0") == [5.0]
    assert held.scores("iqn", "A-v0", "best") == [9.0]


def test_without_a_human_random_play_is_0_and_the_best_method_1(write, comparison):
    write("iqn", "A-v0", [10.0], random=2.0)
    write("iqn", "A-v0", [20.0], seed=1, random=4.0)
    write("dqn", "A-v0", [9.0], random=3.0)
    (group,) = comparison().groups
    assert group.scales["A-v0"] == (3.0, 15.0)
    assert group.reference == "best method"
    (chosen,) = comparison().sets
    assert comparison().sample(chosen, "dqn").values.tolist() == [0.5]
    assert comparison().sample(chosen, "iqn").values == pytest.approx([7 / 12, 17 / 12])


@pytest.mark.parametrize(("constants", "random"), [("dqn_zoo", 16256.9), ("table1", 0.0)])
def test_atari_is_normalised_by_the_constants_that_are_named(write, comparison, constants, random):
    write("iqn", "ALE/VideoPinball-v5", [17667.9])
    held = comparison(constants=constants)
    (group,) = held.groups
    assert group.scales == {"ALE/VideoPinball-v5 noop": (random, 17667.9)}
    assert constants in group.about
    assert str(random) in group.about
    assert held.sample(held.sets[0], "iqn").values.tolist() == [1.0]


def test_protocols_and_environments_without_a_human_are_never_mixed(write, comparison):
    write("iqn", "ALE/Pong-v5", [1.0])
    write("iqn", "ALE/Alien-v5", [500.0], env_settings={"protocol": "sticky"})
    write("iqn", "A-v0", [1.0])
    assert [(group.name, list(group.scales)) for group in comparison().groups] == [
        ("Atari, protocol noop", ["ALE/Pong-v5 noop"]),
        ("Atari, protocol sticky", ["ALE/Alien-v5 sticky"]),
        ("Environments without a human score", ["A-v0"]),
    ]
    assert [chosen.envs for chosen in comparison().sets] == [("ALE/Pong-v5 noop",), ("ALE/Alien-v5 sticky",), ("A-v0",)]


def test_games_that_were_cut_short_are_not_compared_with_a_human(write, comparison):
    write("iqn", "ALE/Pong-v5", [1.0], random=-20.0, env_settings={"max_episode_steps": 99})
    (group,) = comparison().groups
    assert group.reference == "best method"
    assert "truncated after 99 steps" in " ".join(cautions(comparison()))


def test_an_environment_without_a_scale_is_told_and_left_out(write, comparison):
    write("iqn", "A-v0", [1.0], random=None)
    write("iqn", "B-v0", [1.0], random=5.0)
    held = comparison()
    assert held.sets == []
    told = " ".join(cautions(held))
    assert "A-v0 is not part of any aggregate: no run has measured random play." in told
    assert "B-v0 is not part of any aggregate: no method is better than random play." in told
    (section,) = aggregate_score_sections(held, ignore)
    assert "there are no aggregates" in section.text
    (section,) = env_score_sections(held, ignore)
    assert [row[0] for row in section.tables[0].rows] == ["A-v0", "B-v0"]


def test_methods_are_compared_on_the_environments_that_they_share(write, comparison):
    for preset, envs in (("dqn", "AB"), ("iqn", "ABC"), ("ndqfn", "ABC")):
        for env in envs:
            write(preset, f"{env}-v0", [1.0])
    held = comparison()
    assert [(chosen.methods, chosen.envs) for chosen in held.sets] == [
        (("dqn", "iqn", "ndqfn"), ("A-v0", "B-v0")),
        (("iqn", "ndqfn"), ("A-v0", "B-v0", "C-v0")),
    ]
    assert held.drawn_sets == held.sets
    assert "methods have runs in different environments, and all have only A-v0, B-v0" in " ".join(cautions(held))


def test_methods_without_an_environment_in_common_are_not_compared(write, comparison):
    write("dqn", "A-v0", [1.0])
    write("iqn", "B-v0", [1.0])
    held = comparison()
    assert [(chosen.methods, chosen.envs) for chosen in held.sets] == [(("dqn",), ("A-v0",)), (("iqn",), ("B-v0",))]
    assert "none is common to all" in " ".join(cautions(held))


def test_budgets_that_differ_are_told(write, comparison):
    write("dqn", "A-v0", [1.0], steps=4000)
    write("iqn", "A-v0", [1.0], steps=8000)
    assert "Training budgets differ in A-v0. dqn: 4,000 steps; iqn: 8,000 steps." in " ".join(cautions(comparison()))


def test_what_runs_have_warned_of_is_told_and_listed(write, comparison):
    for seed in range(5):
        directory = write("dqn", "A-v0", [1.0, 2.0], seed=seed)
        if seed in (1, 2):
            with open(directory / "metrics.jsonl", "a") as file:
                file.write(json.dumps({"step": 4000, "kind": "warning", "rule": "x", "text": f"it is <ill> {seed}"}))
    held = comparison(smooth=1)
    (told,) = cautions(held)
    assert told.startswith("2 runs logged warnings about the network or its settings")
    assert told.endswith("listed below: dqn (2).")
    (section,) = overview_sections(held, ignore)
    table = section.tables[-1]
    assert table.caption == "Warnings logged during training."
    assert [row[1:] for row in table.rows] == [
        ["dqn", "A-v0", str(seed), "4,000 of 4,000", f"it is <ill> {seed}"] for seed in (1, 2)
    ]


def test_intervals_of_few_seeds_need_caution(write, comparison):
    for seed in range(4):
        write("dqn", "A-v0", [1.0, 2.0], seed=seed)
        write("iqn", "A-v0", [1.0, 2.0], seed=seed)
    for seed in range(4, 6):
        write("iqn", "A-v0", [1.0, 2.0], seed=seed)
    (told,) = cautions(comparison(smooth=1))
    assert told.startswith("1 of 2 pairs of method and environment have fewer than 5 seeds")


def test_clean_runs_need_no_caution(write, comparison):
    for seed in range(5):
        write("dqn", "A-v0", [1.0, 2.0], seed=seed)
    assert cautions(comparison(smooth=1)) == []


def test_relative_improvement_by_hand(write, comparison):
    write("iqn-star", "A-v0", [10.0], random=4.0)
    write("iqn-star", "A-v0", [12.0], seed=1, random=4.0)  # 11: 7 above random play
    write("ndqfn", "A-v0", [18.0], random=4.0)  # 14 above
    write("iqn-star", "B-v0", [1.0], random=2.0)
    write("ndqfn", "B-v0", [9.0], random=2.0)
    write("ndqfn", "C-v0", [9.0], random=2.0)
    found, none = improvements(comparison(), "ndqfn", "iqn-star")
    assert found == pytest.approx({"A-v0": 1.0})
    assert none == {"B-v0": "iqn-star scores 1, not more than random play with 2"}


def test_the_table_by_hand(write, comparison):
    write("dqn", "A-v0", [5.0])
    write("dqn", "B-v0", [10.0])
    write("iqn", "A-v0", [10.0])
    write("iqn", "B-v0", [4.0])
    (section,) = aggregate_score_sections(comparison(), ignore)
    last, best = section.tables
    assert last.columns == (
        "method",
        "mean %",
        "median %",
        "IQM %",
        "best in",
        "environments",
        "seeds",
        "unfinished",
        "steps",
    )
    assert last.rows == [
        ["dqn", "75 -", "75 -", "75 -", "1", "2", "1", "", "4,000"],
        ["iqn", "70 -", "70 -", "70 -", "1", "2", "1", "", "4,000"],
    ]
    assert "biased upwards" in best.caption


def test_published_scores_stand_beside_those_of_the_same_kind(write, comparison):
    write("iqn", "ALE/Pong-v5", [20.7])
    (section,) = aggregate_score_sections(comparison(), ignore)
    last, best = section.tables
    assert [row[0] for row in last.rows] == ["iqn"]
    assert last.columns[4] == "> human"
    assert any(row[0].startswith("IQN (arXiv") and row[-1] == "published" for row in best.rows)
    assert not any("as quoted" in table.caption for table in section.tables)


def test_a_baseline_is_chosen_or_told(write, comparison):
    write("c51", "A-v0", [1.0])
    assert comparison().baseline == "c51"
    write("iqn-star", "A-v0", [1.0])
    assert comparison().baseline == "iqn-star"
    assert comparison(over="c51").baseline == "c51"
    with pytest.raises(ConfigError, match=r"the method --over 'c52' is unknown\. Did you mean 'c51'"):
        comparison(over="c52")


def test_nothing_can_be_smoothed_over_no_evaluation(write, comparison):
    write("c51", "A-v0", [1.0])
    with pytest.raises(ConfigError, match="--smooth is 0, but must be at least 1"):
        comparison(smooth=0)


def test_unfinished_runs_and_seeds_of_different_number_are_counted(write, comparison):
    for seed, finished in enumerate((True, False)):
        write("iqn", "A-v0", [1.0 + seed], seed=seed, finished=finished)
    write("iqn", "B-v0", [1.0])
    (section,) = aggregate_score_sections(comparison(), ignore)
    assert section.tables[0].rows[0][5:] == ["2", "1 to 2", "1", "4,000"]
    assert np.mean(comparison().scores("iqn", "A-v0")) == 1.5
