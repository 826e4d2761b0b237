"""The structure of the package: its import order, and that no module executes data."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import monotau
from monotau.config.presets import PRESETS
from monotau.explorers import EXPLORERS
from monotau.networks import HEADS
from monotau.replay import REPLAYS

SOURCE = Path(monotau.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

ORDER = [
    *("errors", "seeding", "machine", "own_envs", "config.plain", "config.synonyms", "config.parse"),
    *("distributions", "losses", "envs", "networks", "replay", "explorers", "config", "learning"),
    *("runs.files", "runs.layout", "runs.tensors", "runs.tensorboard", "runs.metrics", "runs.manifest"),
    *(
        "runs.locks",
        "runs.process",
        "runs.provenance",
        "runs.progress",
        "distributed",
        "runs.memory",
        "runs.agent_files",
    ),
    *("export", "report.plotting", "report.quantile_plots"),
    *("agent", "results", "runs", "audit.curves", "audit.measures", "audit.claims", "audit.summary", "report", "audit"),
    *("watch", "suites", "tuning", "runs.command", "api", "cli", "__init__", "__main__"),
]
"""Packages and modules; each may import only those before it. A module may be listed apart from its package."""


def place(module: str, order: list[str]) -> str:
    """Return the entry of ORDER for a module such as runs.files: the module itself or its package."""
    parts = module.split(".")
    names = [".".join(parts[: length + 1]) for length in reversed(range(len(parts)))]
    return next((name for name in names if name in order), "__init__")


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


@cache
def imported(path: Path) -> set[str]:
    """Return every monotau module that a file imports, also under `if` and inside functions."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide which package they lead to"
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {module for module in modules if module.split(".")[0] == "monotau"}


def violations(order: list[str]) -> list[str]:
    """Return all imports of later packages."""
    found = []
    for path in FILES:
        here = order.index(place(module_of(path), order))
        targets = {module: place(module.removeprefix("monotau").removeprefix("."), order) for module in imported(path)}
        later = [module for module, target in targets.items() if order.index(target) > here]
        found += [f"{path.relative_to(SOURCE)} imports {module}" for module in later]
    return found


def test_every_package_has_a_place_in_the_order():
    assert {place(module_of(path), ORDER) for path in FILES} == set(ORDER)
    assert all(module_of(path) == "__init__" or place(module_of(path), ORDER) != "__init__" for path in FILES)


def test_no_module_imports_a_later_package():
    assert violations(ORDER) == []


def test_an_import_of_a_later_package_is_found():
    order = [*ORDER[1:], ORDER[0]]
    assert "config/parse.py imports monotau.errors.ConfigError" in violations(order)
    assert "networks/torsos/mlp.py imports monotau.errors.ConfigError" in violations(order)


FORBIDDEN_IMPORTS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "torch.load", "torch.save", "yaml.load", "yaml.unsafe_load"}


def executions(source: str) -> list[str]:
    """Return everything in a file that could execute data as code."""
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
def test_no_module_executes_data(path):
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
def test_code_that_would_execute_data_is_found(source):
    assert executions(source)


NAMES = [*PRESETS, *HEADS, *EXPLORERS, *REPLAYS]


@pytest.mark.parametrize("name", ["learner", "train", "rollout", "policy", "collector"])
def test_the_training_loop_names_no_algorithm(name):
    text = (SOURCE / "learning" / f"{name}.py").read_text()
    pattern = rf"(?<![\w-])({'|'.join(map(re.escape, NAMES))})(?![\w-])"
    assert re.findall(pattern, text, re.IGNORECASE) == []
    assert re.findall(pattern, "the head is IQN, explored by dpe", re.IGNORECASE) == ["IQN", "dpe"]
