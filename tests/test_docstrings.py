"""The examples in the docstrings of the public API run, and heads, explorers, replays and losses name their papers."""

import ast
import doctest
import inspect
import re
from pathlib import Path

import pytest

import monotau
from monotau import (
    Agent,
    Categorical,
    Diracs,
    Distribution,
    PiecewiseLinear,
    Point,
    Progress,
    Risk,
    losses,
    train_agent,
)
from monotau.distributions import Segments, Stepped, Support, uniform_support
from monotau.explorers import EXPLORERS
from monotau.networks import HEADS
from monotau.replay import REPLAYS

SOURCE = Path(monotau.__file__).parent
FILES = [
    "agent.py",
    "losses.py",
    "api.py",
    "config/imports.py",
    *sorted(f"distributions/{p.name}" for p in (SOURCE / "distributions").glob("*.py")),
]
CITED = re.compile(r"arXiv \d{4}\.\d{4,5}|doi 10\.\d{4,}|https://proceedings\.neurips\.cc/")


def examples(path: Path) -> list[doctest.DocTest]:
    """Every docstring of a file that has an example, read from the source: decorated functions hide theirs."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            name = getattr(node, "name", "module")
            test = doctest.DocTestParser().get_doctest(text, {}, name, str(path), getattr(node, "lineno", 0))
            found += [test] if test.examples else []
    return found


@pytest.mark.parametrize("name", FILES)
def test_the_examples_run(name):
    for test in examples(SOURCE / name):
        said: list[str] = []
        outcome = doctest.DocTestRunner(optionflags=doctest.FAIL_FAST).run(test, out=said.append)
        assert outcome.failed == 0, "".join(said)


PUBLIC = [Categorical, Diracs, Distribution, PiecewiseLinear, Point, Risk, Segments, Stepped, Support, uniform_support]
METHODS = {
    f"Agent.{name}": getattr(Agent, name)
    for name in vars(Agent)
    if not name.startswith("_") and name not in ("config", "networks")
}
DOCUMENTED = {part.__name__: part for part in (Agent, Progress, train_agent, losses.quantile_huber, *PUBLIC)} | METHODS


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_public_api_has_examples(name):
    text = inspect.getdoc(DOCUMENTED[name]) or ""
    assert "Examples:" in text
    assert ">>> " in text


@pytest.mark.parametrize("table", [HEADS, EXPLORERS, REPLAYS], ids=["heads", "explorers", "replays"])
def test_each_part_names_its_paper(table):
    silent = [name for name, part in table.items() if not CITED.search(part.__doc__ or "")]
    assert silent == []


def test_each_loss_names_its_paper():
    formulas = [function for name, function in vars(losses).items() if inspect.isfunction(function) and name[0] != "_"]
    assert losses.quantile_huber in formulas
    for loss in [formula for formula in formulas if formula.__module__ == losses.__name__]:
        assert CITED.search(loss.__doc__ or ""), loss.__name__
