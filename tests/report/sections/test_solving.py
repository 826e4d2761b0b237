"""When Deep Sea counts as solved."""

import pytest

from monotau.report.comparison import RunComparison
from monotau.report.sections.solving import solved_at, solving_sections
from tests.support.runs import evaluation, fake_run, ignore

ID = "monotau/DeepSea-v0"


def dive(method, returns, seed=0, state="finished", **kwargs):
    lines = [evaluation(100 * (place + 1), return_mean=value) for place, value in enumerate(returns)]
    env = " ".join([ID, *(f"{name}={value}" for name, value in kwargs.items())])
    return fake_run(method, lines, env, seed, state=state, settings={"env.id": ID, "env.kwargs": kwargs})


@pytest.mark.parametrize(
    ("returns", "step"),
    [
        ([0.0, 0.99, 0.99], 200),
        ([0.99, 0.0, 0.99], 300),
        ([0.99, 0.99, 0.9], None),
        ([0.0], None),
        ([], None),
    ],
)
def test_solved_is_what_stays_solved(returns, step):
    assert solved_at(dive("a", returns)) == step


def test_seeds_are_counted_for_each_method_and_size():
    runs = [
        dive("far", [0.0, 0.0], size=20),
        dive("deep", [0.0, 0.99], size=4),
        dive("deep", [0.99, 0.99], size=4, seed=1),
        dive("deep", [0.99, 0.0], size=4, seed=2, state="unfinished"),
        dive("usual", [0.99]),
        dive("lucky", [0.99], size=3, stochastic=True),
        dive("odd", [0.99], size="large"),
        fake_run("other", [evaluation(5, return_mean=1.0)]),
    ]
    (section,) = solving_sections(RunComparison(runs), ignore)
    assert section.tables[0].rows == [
        (f"{ID} size=4", "deep", "2 of 3 (1 unfinished)", "150 (100 to 200)", "38 (25 to 50)"),
        (ID, "usual", "1 of 1", "100", "10"),
        (f"{ID} size=20", "far", "0 of 1", "-", "-"),
    ]
    assert solving_sections(RunComparison(runs[-1:]), ignore) == []
