"""The tables that benchmarks write: a cell is never run twice, and what is compared with is right."""

import pytest
import torch
from benchmarks.atari_results import evaluations
from benchmarks.cells import number, read_rows, run_cells
from benchmarks.deep_sea import Search, greedy_return, hope
from benchmarks.evidence import compared, verdict

from monotau.envs.deep_sea import DeepSea
from monotau.report.study import Study
from monotau.scores.summary import Estimate
from tests.report.made_up import evaluation, fake_run


def square(cell):
    return {"square": number(cell["x"] ** 2)}


def test_only_missing_cells_are_run_and_each_is_a_row(tmp_path):
    path = tmp_path / "deep" / "table.csv"
    run_cells(square, [{"name": "a", "x": 2}], path, jobs=1)
    path.write_text(path.read_text().replace("4", "four"))  # a mark that a second run would wipe out
    run_cells(square, [{"name": "a", "x": 2}, {"name": "a", "x": 3}], path, jobs=1)
    assert read_rows(path) == [
        {"name": "a", "x": "2", "square": "four"},
        {"name": "a", "x": "3", "square": "9"},
    ]
    assert read_rows(tmp_path / "none.csv") == []
    assert number(None) == ""


def test_an_explorer_that_solved_nothing_is_not_run_on_larger_worlds():
    rows = [
        {"explorer": "a", "size": "6", "episodes_to_solve": "100"},
        {"explorer": "a", "size": "8", "episodes_to_solve": ""},
        {"explorer": "a", "size": "8", "episodes_to_solve": "90"},
        {"explorer": "b", "size": "6", "episodes_to_solve": ""},
    ]
    assert [hope(rows, "a", 20), hope(rows, "b", 6), hope(rows, "b", 8), hope(rows, "c", 8)] == [
        True,
        True,
        False,
        True,
    ]


class Walker:
    """Acts as it is told: right in every cell, or wrong in the last."""

    def __init__(self, world, wrong=False):
        self.world, self.wrong = world, wrong

    def predict(self, observation):
        row, column = (int(i) for i in torch.tensor(observation).nonzero()[0])
        right = int(self.world.right_actions[row, column])
        return (1 - right if self.wrong and row == self.world.size - 1 else right), None


def test_the_treasure_of_deep_sea_is_seen_by_rollout_and_search():
    world = DeepSea(5, mapping_seed=3)
    assert greedy_return(Walker(world), world) == pytest.approx(0.99)
    assert greedy_return(Walker(world, wrong=True), world) < 0
    search = Search(world)
    for walker in (Walker(world, wrong=True), Walker(world), Walker(world)):
        observation, _ = search.reset()
        over = False
        while not over:
            observation, _, over, _, _ = search.step(walker.predict(observation)[0])
    assert (search.episodes, search.found) == (3, 2)


def test_the_hours_of_an_evaluation_are_those_of_training_and_of_all_evaluations_before():
    score = {"return_std": 1.0, "return_min": -2.0, "return_max": 5.0, "episodes": 3}
    lines = [
        {"step": 0, "kind": "eval", "policy": "random", "return_mean": -1.0, "seconds": 360.0} | score,
        {"step": 900, "kind": "train", "steps_per_second": 0.5},
        {"step": 1260, "kind": "train", "steps_per_second": 1.0},
        {"step": 1300, "kind": "eval", "policy": "greedy", "return_mean": 2.0, "seconds": 1440.0} | score,
    ]
    rows = evaluations(lines)
    assert [(row["step"], row["hours"], row["return_mean"]) for row in rows] == [(0, 0.1, -1.0), (1300, 1.1, 2.0)]
    assert rows[1] == {"step": 1300, "hours": 1.1, "policy": "greedy", "return_mean": 2.0} | score


def test_claims_are_compared_where_both_methods_have_runs():
    ours = [[1.0, 3.0], [0.0, 0.0]]  # above 2 and 2 in half of the pairs, then tied
    runs = [
        fake_run(method, [evaluation(10, return_mean=value)], env=env, seed=seed)
        for method, scores in (("a", ours), ("b", [[2.0, 2.0], [0.0, 0.0]]))
        for env, values in zip(("X", "Y"), scores, strict=True)
        for seed, value in enumerate(values)
    ]
    runs.append(fake_run("a", [evaluation(10, return_mean=99.0)], env="Z"))
    found = compared(Study(runs), "a", "b")
    assert found is not None
    assert found[:2] == (2, 4)
    assert found[2].value == 0.5
    assert compared(Study(runs), "a", "c") is None


@pytest.mark.parametrize(
    ("interval", "said"),
    [((0.51, 0.9), "confirmed"), ((0.1, 0.49), "refuted"), ((0.4, 0.6), "not confirmed"), (None, "one seed: nothing")],
)
def test_a_verdict_follows_from_the_interval(interval, said):
    assert verdict(Estimate(value=0.5, interval=interval)) == said
