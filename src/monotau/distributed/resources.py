"""What a run asks of a cluster, and whether any node of it can ever give that."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from monotau.errors import ConfigError

FINEST = 0.0001
"""Shares of a resource are counted in these."""


class Request(NamedTuple):
    """What one run asks for."""

    cpus: float
    gpus: float
    memory: int
    """Bytes; 0 asks for none."""

    def resources(self) -> dict[str, float]:
        """Return what is asked for, as nodes state what they have."""
        return {"CPU": self.cpus, "GPU": self.gpus, "memory": float(self.memory)}

    def options(self) -> dict[str, Any]:
        """Return what is asked for, as tasks state it."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus} | ({"memory": self.memory} if self.memory else {})


def check_share(flag: str, value: float, least: float) -> None:
    """Refuse what cannot be a number of CPUs or GPUs: shares below one, or whole numbers."""
    whole = value == 0 or FINEST <= value <= 1 or (math.isfinite(value) and value == int(value))
    if not (math.isfinite(value) and value >= least and whole):
        raise ConfigError(
            f"{flag} is {value:g}, but must be {'0, ' * (least == 0)}a share from {FINEST} to 1, or a whole number."
        )


def check_room(requests: Iterable[Request], nodes: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a request that no node could meet even if it were idle."""
    held = {str(node["NodeManagerAddress"]): node["Resources"] for node in nodes if node["Alive"]}
    for request in requests:
        asked = request.resources()
        if any(all(has.get(name, 0.0) >= size for name, size in asked.items()) for has in held.values()):
            continue
        name, has = max(held.items(), key=lambda item: _size(item[1]), default=("none", {}))
        raise ConfigError(
            f"a run asks for {_words(asked)}, but no node has that; the largest, {name}, has {_words(has)}: lower "
            "--cpus-per-run or --gpus-per-run, or the replay, or --force, if the cluster grows on demand."
        )


def _size(has: Mapping[str, float]) -> tuple[float, ...]:
    return has.get("GPU", 0.0), has.get("CPU", 0.0), has.get("memory", 0.0)


def _words(resources: Mapping[str, float]) -> str:
    gpus, cpus, memory = _size(resources)
    return f"{counted(cpus, 'CPU')}, {counted(gpus, 'GPU')} and {memory / 1e9:.1f} GB"


def counted(number: float, what: str) -> str:
    """Write a number of things."""
    return f"{number:g} {what}{'s' * (number != 1)}"
