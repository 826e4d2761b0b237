"""Whether every node of a cluster can take part: it sees the same directory, and has the same program."""

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from monotau.distributed.connect import cluster_nodes
from monotau.errors import ConfigError, in_one_line
from monotau.runs.process import is_held

PACKAGES = ("monotau", "torch")
"""What must be the same everywhere, for runs to be the same wherever they are made."""

DEADLINE_SECONDS = 30.0
PATIENCE_SECONDS = 5.0
"""After which a person is told what is waited for."""


class View(NamedTuple):
    """What a node has to say."""

    problem: str
    """Why it cannot use the directory; empty if it can."""
    versions: dict[str, str]
    held: bool
    """Whether it sees that the directory is locked."""


def view(directory: str, name: str, content: str) -> View:
    """Look at a directory from here: the file of this name is to have this content, and another is to be writable."""
    place, problem = Path(directory), ""
    try:
        if (place / name).read_text() != content:
            problem = "another directory of that name"
        own = place / f"{name}.{secrets.token_hex(8)}"
        own.write_text(content)
        own.unlink()
    except OSError as error:
        problem = problem or f"{error.strerror or error}: {error.filename}"
    return View(problem, {package: version(package) for package in PACKAGES}, is_held(place))


def check_nodes(directory: Path, say: Callable[[str], None]) -> None:
    """Refuse a cluster of which some node cannot take part; `directory` is locked by this process."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    names = {node["NodeID"]: str(node["NodeManagerAddress"]) for node in cluster_nodes() if node["Alive"]}
    # One call for each process: what it takes to import the program is given back at once.
    task = ray.remote(num_cpus=0, max_calls=1, max_retries=0)(view)
    with _token(directory) as (name, content):
        asked = {}
        for node in names:
            where = NodeAffinitySchedulingStrategy(node, soft=False)
            asked[task.options(scheduling_strategy=where).remote(str(directory), name, content)] = names[node]
        deadline, told = time.monotonic() + DEADLINE_SECONDS, False
        while asked:
            left = deadline - time.monotonic()
            done, _ = ray.wait([*asked], timeout=max(0.0, min(PATIENCE_SECONDS, left)))
            for reference in done:
                _judge(asked.pop(reference), reference, directory, say)
            waited = ", ".join(sorted(asked.values()))
            if asked and time.monotonic() > deadline:
                for reference in asked:
                    ray.cancel(reference, force=True)
                raise ConfigError(f"no answer within {DEADLINE_SECONDS:.0f} seconds from node {waited}.")
            if not done and not told:
                say(f"waiting for an answer of node {waited}")
                told = True


@contextmanager
def _token(directory: Path) -> Iterator[tuple[str, str]]:
    """Have a file that nobody else can have, within the block."""
    name, content = f".seen-by-all-{os.getpid()}-{secrets.token_hex(8)}", secrets.token_hex(16)
    try:
        (directory / name).write_text(content)
        yield name, content
    finally:
        (directory / name).unlink(missing_ok=True)


def _judge(node: str, reference: Any, directory: Path, say: Callable[[str], None]) -> None:
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        seen: View = ray.get(reference)
    except RayTaskError as error:
        if "No module named 'monotau" in str(error):
            raise ConfigError(f"monotau is not installed on node {node}: install it there as it is here.") from None
        raise ConfigError(f"node {node} cannot run monotau: {in_one_line(error)[-300:]}") from None
    except RayError as error:  # it is no node any more, and nobody will be sent there
        say(f"[yellow]warning:[/] node {node} was lost while it was looked at ({type(error).__name__})")
        return
    judge(node, seen, directory, say)


def judge(node: str, seen: View, directory: Path, say: Callable[[str], None]) -> None:
    """Refuse a node by what it has seen, or warn of it."""
    for package in PACKAGES:
        if seen.versions[package] != version(package):
            raise ConfigError(
                f"node {node} has {package} {seen.versions[package]}, but here is {version(package)}: they must be the "
                "same, or runs are not."
            )
    if seen.problem:
        raise ConfigError(
            f"--out {directory} is not the same on node {node} ({seen.problem}): use storage that all nodes see."
        )
    if not seen.held:
        say(
            f"[yellow]warning:[/] node {node} does not see that {directory} is locked: locks do not reach over this "
            "storage, so nothing but care keeps two processes from one run"
        )
