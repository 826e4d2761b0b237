"""Metrics over training steps: how they are read, averaged, thinned, and which of them are drawn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monotau.report.comparison import MAX_METHODS, RunComparison, alternate_heads, choose_methods, group_by_env
from monotau.report.formatting import method_list
from monotau.report.sections.bonus import bonus_sections, sync_steps
from monotau.report.sections.crossing import MAX_ROWS, crossing_sections, dead_increment_sections
from monotau.report.series import MAX_ENVS, Series, mean_series
from tests.support.runs import evaluation, fake_run, ignore, training


def series(steps, values):
    return Series(np.array(steps, dtype=float), np.array(values, dtype=float))


def test_only_finite_numbers_make_a_series():
    values = [0.5, None, float("nan"), "much", True, 2, float("inf")]
    read = Series.of([training(step, bonus_mean=value) for step, value in enumerate(values)], "bonus_mean")
    assert read.steps.tolist() == [0, 5]
    assert read.values.tolist() == [0.5, 2]
    assert len(Series.of([training(3)], "bonus_mean").steps) == 0


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=60), st.integers(1, 20))
def test_thinning_averages_neighbours(values, most):
    thin = series(range(len(values)), values).thinned(most)
    block = 1
    while len(range(0, len(values), block)) > most:
        block += 1
    blocks = [values[start : start + block] for start in range(0, len(values), block)]
    assert len(thin.steps) <= most
    assert thin.values == pytest.approx([sum(block) / len(block) for block in blocks], abs=1e-9)


def test_the_mean_is_of_those_that_came_so_far():
    mean = mean_series([series([10, 20, 30], [1, 2, 3]), series([10, 30, 40], [3, 5, 7])])
    assert mean.steps.tolist() == [10, 20, 30, 40]
    assert mean.values.tolist() == [2, 2, 4, 7]


def test_syncs_come_at_multiples_after_the_warm_up():
    run = fake_run("dpe", ())
    assert sync_steps([run], 430).tolist() == [200, 300, 400]
    other = fake_run("other", (), settings={"update.sync_every_steps": 50})
    assert len(sync_steps([run, other], 430)) == 0
    assert len(sync_steps([fake_run("odd", (), settings={"update.sync_every_steps": "often"})], 430)) == 0
    assert len(sync_steps([fake_run("averaged", (), settings={"update.sync": "average"})], 430)) == 0


def bonuses(last, every, **more):
    lines = [training(step, bonus_mean=1 + step % 100 / 100) for step in range(every, last + 1, every)]
    return fake_run("dpe", lines, **more)


@pytest.mark.parametrize(
    ("last", "every", "said", "panels"),
    [
        (2_000, 50, "Ticks below the axis are syncs", 1),
        (10_000, 25, "Right: a part of the left panel", 2),
        (10_000, 100, "The 99 syncs of the target network are too many to mark", 1),
    ],
)
def test_syncs_are_marked_where_they_can_be_seen(last, every, said, panels):
    (section,) = bonus_sections(RunComparison([bonuses(last, every)]), ignore)
    (picture,) = section.pictures
    assert said in picture.caption
    assert len(picture.figure.axes) == panels
    picture.figure.draw_without_rendering()
    if panels == 2:
        assert picture.figure.axes[1].get_xlim() == (4_600, 5_600)  # the middle one of 200, 300 ... 10,000 is 5,100


def test_syncs_of_methods_that_differ_in_them_are_not_marked():
    other = bonuses(2_000, 50, seed=1, settings={"update.sync_every_steps": 70})
    (section,) = bonus_sections(RunComparison([bonuses(2_000, 50), other]), ignore)
    assert "No syncs are marked" in section.pictures[0].caption


def test_crossing_at_the_end_is_told_over_seeds():
    lines = [[evaluation(5, crossing=0.9), evaluation(9, crossing=end)] for end in (0.1, 0.3)]
    runs = [fake_run("iqn", ones, seed=seed, settings={"head.kind": "iqn"}) for seed, ones in enumerate(lines)]
    flat = fake_run("ndqfn", [evaluation(5, crossing=0.0)], settings={"head.kind": "ndqfn"})
    point = fake_run("dqn", [evaluation(5, crossing=0.0)])
    (section,) = crossing_sections(RunComparison([*runs, flat, point]), ignore)
    assert section.tables[0].rows == [
        ("Nowhere-v0", "iqn", "2", "20.00%", "30.00%"),
        ("Nowhere-v0", "ndqfn", "1", "0.00%", "0.00%"),
    ]
    (ax,) = section.pictures[0].figure.axes
    thick = [line.get_ydata().tolist() for line in ax.lines if line.get_linewidth() > 1]
    assert thick == [pytest.approx([90, 20]), [0]]
    assert len(ax.lines) == 4  # two seeds are drawn thin


def test_sections_without_numbers_are_left_out():
    runs = [fake_run("dqn", [evaluation(5, crossing=None), training(5, bonus_mean=None, dead_increments=None)])]
    for sections in (crossing_sections, bonus_sections, dead_increment_sections):
        assert sections(RunComparison(runs), ignore) == []


def test_what_there_is_no_room_for_is_said():
    kinds = ("iqn", "qr", "ndqfn")
    names = [f"m{number:02}" for number in range(25)]
    runs = [
        fake_run(
            name, [training(9, dead_increments=0.1), evaluation(9, crossing=0.5)], env, settings={"head.kind": kind}
        )
        for env in (f"Env{number}-v0" for number in range(9))
        for name, kind in zip(names, kinds * 9, strict=False)
    ]
    (section,) = crossing_sections(RunComparison(runs), ignore)
    assert len(section.pictures[0].figure.axes) == MAX_ENVS
    assert "environments Env6-v0; Env7-v0; Env8-v0." in section.text
    assert f"methods m12; m13; m14; m15; m16 and {25 - MAX_METHODS - 5} more." in section.text
    assert len(runs) > MAX_ROWS
    assert section.tables[0].rows[0] == ("all", "m00", "9", "50.00%", "50.00%")
    (dead,) = dead_increment_sections(RunComparison(runs), ignore)
    assert "Env6-v0" in dead.text
    (ax, *_) = dead.pictures[0].figure.axes
    assert [line.get_ydata()[0] for line in ax.lines] == pytest.approx([10] * MAX_METHODS)


def test_methods_are_chosen_by_their_heads():
    runs = [fake_run(name, (), settings={"head.kind": name[0]}) for name in ("a1", "a2", "b1", "a3", "c1", "b2")]
    assert alternate_heads({run.method: run for run in runs}) == ["a1", "b1", "c1", "a2", "b2", "a3"]
    assert choose_methods(group_by_env(runs)) == (["a1", "a2", "b1", "a3", "c1", "b2"], [])


def test_environments_with_most_methods_come_first():
    places = [("b", "E1"), ("a", "E2"), ("b", "E2"), ("b", "E0")]
    groups = group_by_env([fake_run(method, (), env, seed=seed) for method, env in places for seed in (3, 1)])
    assert {env: [*methods] for env, methods in groups.items()} == {"E2": ["b", "a"], "E0": ["b"], "E1": ["b"]}
    assert [*groups] == ["E2", "E0", "E1"]
    assert [run.seed for run in groups["E1"]["b"]] == [1, 3]


def test_long_lists_are_cut():
    assert method_list(["a", "b"]) == "a; b"
    assert method_list(["a", "b", "c"], 2) == "a; b and 1 more"
