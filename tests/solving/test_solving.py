"""Slow tests: whole training runs with default settings."""

import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from benchmarks import classic, deep_sea
from benchmarks.exploration import explore

from monotau.config.presets import PRESETS

SEEDS = range(5)  # the settings of the grid were chosen on seeds 100 and 101


def in_fresh_processes(function, *columns):
    """Run in two processes at a time, without the shape checks of the tests, which slow down whole runs."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        return list(pool.map(function, *columns))


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_cartpole_is_solved_in_at_least_two_of_three_seeds(preset):
    run = {"preset": preset, "env": "CartPole-v1", "steps": 60_000, "until": "475"}
    results = in_fresh_processes(classic.train, [run | {"seed": seed} for seed in (20, 21, 22)])
    print(json.dumps({"preset": preset, "results": results}))  # noqa: T201
    assert sum(result["reached"] != "" for result in results) >= 2, results


@pytest.mark.slow
def test_deep_dpe_solves_deep_sea_where_the_local_bonus_does_not():
    results = {}
    for explorer in ("deep-dpe", "dpe"):
        cells = [{"explorer": explorer, "size": 10, "seed": seed} for seed in deep_sea.SEEDS]
        results[explorer] = [row["episodes_to_solve"] for row in in_fresh_processes(deep_sea.solve, cells)]
    print(json.dumps(results))  # noqa: T201
    assert sum(episodes != "" for episodes in results["deep-dpe"]) >= 4
    assert sum(episodes != "" for episodes in results["dpe"]) <= 2


@pytest.mark.slow
def test_dpe_directs_exploration_where_there_is_no_reward():
    directed = in_fresh_processes(explore, ["ndqfn-dpe"] * 5, SEEDS, [0.01] * 5)
    undirected = in_fresh_processes(explore, ["ndqfn"] * 5, SEEDS, [0.01] * 5)
    print(json.dumps({"dpe": directed, "epsilon-greedy": undirected}))  # noqa: T201
    assert mean(directed, "pairs") > 1.1 * mean(undirected, "pairs")
    assert mean(directed, "bonus_visited_2") < mean(directed, "bonus_visited_1")
    assert mean(directed, "bonus_unvisited_2") > 1.5 * mean(directed, "bonus_visited_2")


def mean(runs, name: str) -> float:
    return float(np.mean([run[name] for run in runs]))
