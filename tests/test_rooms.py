"""The rooms of the house: imports point one way, files stay small, nothing on disk is executed."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import monotau
from monotau.explorers import EXPLORERS
from monotau.networks import HEADS
from monotau.presets import PRESETS
from monotau.replay import REPLAYS

SOURCE = Path(monotau.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

ORDER = [
    "errors",
    "streams",
    "settings",
    "storage",
    "tensors",
    "events",
    "log",
    "manifest",
    "processes",
    "provenance",
    "devices",
    "progress",
    "distributions",
    "losses",
    "envs",
    "networks",
    "replay",
    "return_unit",
    "explorers",
    "learner",
    "rollout",
    "configs",
    "profiles",
    "presets",
    "evaluate",
    "brain",
    "stage",
    "cluster",
    "train",
    "memory",
    "saving",
    "agent",
    "checkpoint",
    "diagnosis",
    "scores",
    "report",
    "run",
    "suites",
    "parsing",
    "cli",
    "__init__",
    "__main__",
]
"""A room is a module or package of the house; it may use those before it, and none after."""


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def imported(path: Path) -> set[str]:
    """Every monotau module that a file imports, anywhere in it, also under `if` and inside functions."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide which room they lead to"
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {module for module in modules if module.split(".")[0] == "monotau"}


def violations(order: list[str]) -> list[str]:
    """Imports that lead to a later room."""
    found = []
    for path in FILES:
        for module in imported(path):
            target = module.split(".")[1] if module.count(".") else "__init__"
            target = target if target in order else "__init__"
            if order.index(target) > order.index(room(path)):
                found.append(f"{path.relative_to(SOURCE)} imports {module}")
    return found


def test_every_room_has_its_place():
    assert sorted({room(path) for path in FILES}) == sorted(ORDER)


def test_imports_point_one_way():
    assert violations(ORDER) == []


def test_an_import_of_a_later_room_is_found():
    order = [*ORDER[1:], ORDER[0]]
    assert "settings.py imports monotau.errors.ConfigError" in violations(order)
    assert "networks/torsos.py imports monotau.errors.ConfigError" in violations(order)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_file_is_long(path):
    lines = path.read_text().count("\n")
    assert lines <= 300, f"{lines} lines: it is doing two things"


FORBIDDEN_IMPORTS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "torch.load", "torch.save", "yaml.load", "yaml.unsafe_load"}


def executions(source: str) -> list[str]:
    """What in a file could run code that stands in data."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in FORBIDDEN_IMPORTS]
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found += [name for name in names if name in FORBIDDEN_CALLS or name.split(".")[0] in FORBIDDEN_IMPORTS]
        elif isinstance(node, ast.Call):
            found += [name for name in [ast.unparse(node.func)] if name in FORBIDDEN_CALLS]
            found += [word.arg for word in node.keywords if word.arg in ("allow_pickle", "shell")]
        elif isinstance(node, ast.Name) and node.id in ("eval", "exec"):
            found.append(node.id)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_on_disk_is_executed(path):
    assert executions(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "def f():\n    import pickle.x",
        "eval('1')",
        "x = [exec]",
        "torch.load(path)",
        "from torch import load",
        "yaml.load(text, Loader=x)",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_what_would_execute_data_is_found(source):
    assert executions(source)


NAMES = [*PRESETS, *HEADS, *EXPLORERS, *REPLAYS]


@pytest.mark.parametrize("name", ["learner", "train", "rollout"])
def test_the_loop_knows_no_algorithm_by_name(name):
    text = (SOURCE / f"{name}.py").read_text()
    pattern = rf"(?<![\w-])({'|'.join(map(re.escape, NAMES))})(?![\w-])"
    assert re.findall(pattern, text, re.IGNORECASE) == []
    assert re.findall(pattern, "the head is IQN, explored by dpe", re.IGNORECASE) == ["IQN", "dpe"]
