"""Counts the lines and files to read between `monotau train` and the gradient, by transitive imports.

Every `monotau` module that is imported, directly or not, counts with its non-blank lines (`lines`); `code` leaves out
docstrings and comment lines. "One algorithm" is `ndqfn-dpe` on vectors, without the modules of other heads, explorers,
replays, distributions and environments, which tables import but this algorithm never calls. Prints a JSON line for
each starting point.
"""

import ast
import json
from collections.abc import Collection
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"

OTHER_KINDS = {
    *(f"networks.heads.{name}" for name in ("c51", "dqn", "fqf", "implicit_sorted", "incremental_iqn", "iqn", "qr")),
    *("networks.heads.ndqfn_fqf", "networks.heads.proposals", "networks.torsos.images"),
    *(f"explorers.{name}" for name in ("deep_dpe", "dltv", "novelty", "pe_dqn", "pqr", "bootstrapped", "rnd")),
    *("explorers.epsilon_greedy", "distributions.categorical", "distributions.diracs"),
    *(f"envs.{name}" for name in ("atari", "deep_sea", "games", "inventory", "probes", "returns")),
}
"""Modules that `ndqfn-dpe` on vectors does not use."""

STARTS: dict[str, tuple[str, Collection[str], int]] = {
    "the training loop, one algorithm": ("learning.train", OTHER_KINDS, 3_200),
    "the training loop, the whole family": ("learning.train", (), 5_000),
    "monotau train, the whole family": ("runs.command", (), 6_500),
}
"""The starting module, the modules left out, and the line budget."""


def path_of(module: str) -> Path | None:
    """Return the file of a module of the package, or None."""
    place = SOURCE / "monotau" / Path(*module.split(".")) if module else SOURCE / "monotau"
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


def imports_of(path: Path) -> set[str]:
    """Return the modules of the package that a file imports at its top level, as `learning.train`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "monotau":
            module = str(node.module).removeprefix("monotau").removeprefix(".")
            inner = {f"{module}.{alias.name}".removeprefix(".") for alias in node.names}
            found |= {name for name in inner if path_of(name)} | ({module} if module else set())
    return found


def reached(start: str, without: Collection[str]) -> dict[str, int]:
    """Return the modules reachable from one, with their numbers of non-blank lines."""
    lines: dict[str, int] = {}
    todo = [start]
    while todo:
        module = todo.pop()
        path = path_of(module)
        if path is None or module in lines or module in without:
            continue
        lines[module] = sum(bool(line.strip()) for line in path.read_text().splitlines())
        todo += sorted(imports_of(path))
    return lines


def code_lines(source: str) -> int:
    """Return the number of lines that are neither blank nor comments nor part of a docstring."""
    lines = {number for number, line in enumerate(source.splitlines(), 1) if line.strip() and line.strip()[0] != "#"}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def main() -> None:
    """Print the counts."""
    for name, (start, without, most) in STARTS.items():
        lines = reached(start, without)
        code = sum(code_lines(path.read_text()) for module in lines if (path := path_of(module)))
        counts = {"lines": sum(lines.values()), "code": code, "files": len(lines), "at_most": most}
        print(json.dumps({"from": name} | counts))


if __name__ == "__main__":
    main()
