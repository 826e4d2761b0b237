"""Slow: whole runs with the settings that users get."""

import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from benchmarks.exploration import explore

SEEDS = range(5)  # the settings of the grid were chosen on seeds 100 and 101
CARTPOLE_SEEDS = range(10, 15)  # those of the classic profile on seeds 0 and 1


def best_evaluation(preset: str, seed: int) -> tuple[float, int]:
    """Best mean return of an evaluation of 20 episodes within 60,000 steps, and the step of the first above 475."""
    from monotau import Agent

    agent = Agent("CartPole-v1", preset, seed)
    first = 0
    while agent.steps < 60_000 and not first:
        agent.learn(agent.config.iteration_steps, evaluated=True)
        line = agent.history[-1]
        assert line["episodes"] == 20
        assert preset == "iqn-star" or line["crossing"] == 0
        first = line["step"] if line["return_mean"] >= 475 else 0
    return max(line["return_mean"] for line in agent.history if line["kind"] == "eval"), first


def in_fresh_processes(function, *columns):
    """Run in processes without the shape checks of the test run, which slow whole runs down; two at a time."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        return list(pool.map(function, *columns))


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["ndqfn-dpe", "ndqfn", "iqn-star"])
def test_cartpole_is_solved_in_at_least_four_of_five_seeds(preset):
    results = in_fresh_processes(best_evaluation, [preset] * 5, CARTPOLE_SEEDS)
    print(json.dumps({"preset": preset, "best and first step at 475": results}))  # noqa: T201
    assert sum(best >= 475 for best, _ in results) >= 4, results


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
