"""Resources that a run requests from a cluster, and checks that some node has them."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from monotau.errors import ConfigError

FINEST = 0.0001
"""Ray's resolution of fractional resources."""


class Request(NamedTuple):
    """Resources that one run requests."""

    cpus: float
    gpus: float
    memory: int
    """Bytes; 0 requests none."""

    def resources(self) -> dict[str, float]:
        """Return the request in the format of a node's resources."""
        return {"CPU": self.cpus, "GPU": self.gpus, "memory": float(self.memory)}

    def options(self) -> dict[str, Any]:
        """Return the request as options of a Ray task."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus} | ({"memory": self.memory} if self.memory else {})


def check_share(flag: str, value: float, least: float) -> None:
    """Raise ConfigError unless the value is a fraction up to 1 or a whole number, as Ray requires."""
    whole = value == 0 or FINEST <= value <= 1 or (math.isfinite(value) and value == int(value))
    if not (math.isfinite(value) and value >= least and whole):
        raise ConfigError(
            f"{flag} is {value:g}, but must be {'0, ' * (least == 0)}a fraction from {FINEST} to 1, or a whole number."
        )


def check_room(requests: Iterable[Request], nodes: Iterable[Mapping[str, Any]]) -> None:
    """Raise ConfigError for a request that no node could meet even if it were idle."""
    held = {str(node["NodeManagerAddress"]): node["Resources"] for node in nodes if node["Alive"]}
    for request in requests:
        asked = request.resources()
        if any(all(has.get(name, 0.0) >= size for name, size in asked.items()) for has in held.values()):
            continue
        name, has = max(held.items(), key=lambda item: _size(item[1]), default=("none", {}))
        raise ConfigError(
            f"a run requests {_words(asked)}, but no node has that; the largest, {name}, has {_words(has)}: lower "
            "--cpus-per-run, --gpus-per-run or replay.capacity_steps, or use --force if the cluster scales on demand."
        )


def _size(has: Mapping[str, float]) -> tuple[float, ...]:
    return has.get("GPU", 0.0), has.get("CPU", 0.0), has.get("memory", 0.0)


def _words(resources: Mapping[str, float]) -> str:
    gpus, cpus, memory = _size(resources)
    return f"{counted(cpus, 'CPU')}, {counted(gpus, 'GPU')} and {memory / 1e9:.1f} GB"


def counted(number: float, what: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number:g} {what}{'s' * (number != 1)}"
