"""The examples run as they stand, with tiny budgets."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import monotau

ROOT = Path(monotau.__file__).parents[2]
EXAMPLES = ROOT / "examples"
TINY = {
    "own_environment.py": ["--steps", "300", "--episodes", "1"],
    "risk.py": ["--steps", "400"],
    "exploration.py": ["--episodes", "15", "--size", "4"],
    "compare.py": ["--steps", "200", "--seeds", "1", "--episodes", "2"],
    "tuning.py": ["--steps", "50", "--trials", "2"],
}
SAYS = {
    "own_environment.py": "return of a day",
    "risk.py": "CVaR(0.1) of both actions",
    "exploration.py": "the treasure",
    "compare.py": "iqn-star",
    "tuning.py": "best trial: ",
}
NOTEBOOK_STEPS = "200"


def run(arguments: list[str], directory: Path, **environment: str) -> str:
    """Run Python with the package of this checkout and return what it prints."""
    environment = (
        os.environ | {"PYTHONPATH": str(ROOT / "src"), "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"} | environment
    )
    done = subprocess.run([sys.executable, *arguments], cwd=directory, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_each_script_is_tried():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(TINY)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "compare.py")) for name in TINY]
)
def test_the_script_runs(name, tmp_path):
    assert SAYS[name] in run([str(EXAMPLES / name), *TINY[name]], tmp_path)


def test_the_cells_of_the_notebook_run(tmp_path):
    cells = json.loads((EXAMPLES / "tour.ipynb").read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    for source in sources:
        ast.parse(source)
    (tmp_path / "cells.py").write_text("\n\n".join(sources))
    said = run([str(tmp_path / "cells.py")], tmp_path, MONOTAU_EXAMPLE_STEPS=NOTEBOOK_STEPS)
    assert f"{NOTEBOOK_STEPS} steps" in said
    assert "share of decreasing quantiles: 0" in said


def test_the_notebook_keeps_small_outputs():
    path = EXAMPLES / "tour.ipynb"
    assert path.stat().st_size < 100_000
    code = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert any(cell["outputs"] for cell in code)
