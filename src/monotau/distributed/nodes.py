"""Checks that every node of a cluster sees the same directory and has the same versions installed."""

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
"""Packages whose versions must match on all nodes, so that results do not depend on the node."""

DEADLINE_SECONDS = 30.0
PATIENCE_SECONDS = 5.0
"""Seconds without an answer after which the user is told which nodes are missing."""


class View(NamedTuple):
    """What a node reports about the directory and its installation."""

    problem: str
    """Why it cannot use the directory; empty if it can."""
    versions: dict[str, str]
    held: bool
    """Whether the node sees that the directory is locked."""


def view(directory: str, name: str, content: str) -> View:
    """Check a directory from this node: the named file must have this content, and a new file must be writable."""
    place, problem = Path(directory), ""
    try:
        if (place / name).read_text() != content:
            problem = "a different directory with the same path"
        own = place / f"{name}.{secrets.token_hex(8)}"
        own.write_text(content)
        own.unlink()
    except OSError as error:
        problem = problem or f"{error.strerror or error}: {error.filename}"
    return View(problem, {package: version(package) for package in PACKAGES}, is_held(place))


def check_nodes(directory: Path, say: Callable[[str], None]) -> None:
    """Raise ConfigError if a node of the cluster is unfit for runs; this process must hold the directory's lock."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    names = {node["NodeID"]: str(node["NodeManagerAddress"]) for node in cluster_nodes() if node["Alive"]}
    # One call per worker process, so that the memory of its imports is freed at once.
    task = ray.remote(num_cpus=0, max_calls=1, max_retries=0)(view)
    with _token(directory) as (name, content):
        pending = {}
        for node in names:
            affinity = NodeAffinitySchedulingStrategy(node, soft=False)
            pending[task.options(scheduling_strategy=affinity).remote(str(directory), name, content)] = names[node]
        deadline, notified = time.monotonic() + DEADLINE_SECONDS, False
        while pending:
            left = deadline - time.monotonic()
            done, _ = ray.wait([*pending], timeout=max(0.0, min(PATIENCE_SECONDS, left)))
            for reference in done:
                _check_answer(pending.pop(reference), reference, directory, say)
            missing = ", ".join(sorted(pending.values()))
            if pending and time.monotonic() > deadline:
                for reference in pending:
                    ray.cancel(reference, force=True)
                raise ConfigError(f"no answer within {DEADLINE_SECONDS:.0f} seconds from node {missing}.")
            if not done and not notified:
                say(f"waiting for an answer from node {missing}")
                notified = True


@contextmanager
def _token(directory: Path) -> Iterator[tuple[str, str]]:
    """Hold a file with a unique name and content for the block."""
    name, content = f".seen-by-all-{os.getpid()}-{secrets.token_hex(8)}", secrets.token_hex(16)
    try:
        (directory / name).write_text(content)
        yield name, content
    finally:
        (directory / name).unlink(missing_ok=True)


def _check_answer(node: str, reference: Any, directory: Path, say: Callable[[str], None]) -> None:
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        seen: View = ray.get(reference)
    except RayTaskError as error:
        if "No module named 'monotau" in str(error):
            raise ConfigError(f"monotau is not installed on node {node}: install it there as it is here.") from None
        raise ConfigError(f"node {node} cannot run monotau: {in_one_line(error)[-300:]}") from None
    except RayError as error:  # the node left the cluster, so no run will be scheduled there
        say(f"[yellow]warning:[/] node {node} was lost during the check ({type(error).__name__})")
        return
    check_view(node, seen, directory, say)


def check_view(node: str, seen: View, directory: Path, say: Callable[[str], None]) -> None:
    """Raise ConfigError or warn if a node's report shows a problem."""
    for package in PACKAGES:
        if seen.versions[package] != version(package):
            raise ConfigError(
                f"node {node} has {package} {seen.versions[package]}, but this machine has {version(package)}: "
                "versions must match, or results would depend on the node."
            )
    if seen.problem:
        raise ConfigError(
            f"--out {directory} is not the same on node {node} ({seen.problem}): use storage that all nodes see."
        )
    if not seen.held:
        say(
            f"[yellow]warning:[/] node {node} does not see that {directory} is locked: locks do not work across this "
            "storage, so make sure that no two processes write to the same run"
        )
