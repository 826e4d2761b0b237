"""Computes how much RAM a run needs before it starts, and how much is available.

    total = replay + networks + updates + libraries + actors

    replay     slots * (bytes per frame + 9), plus 8.06 per slot with priorities (exact: the size of the arrays)
    networks   weights of all networks, gradients and optimiser moments of the trained ones (exact); 0 on a GPU
    updates    UPDATE_COPIES * both frame stacks of a batch as float32 (measured)
    libraries  LIBRARY_BYTES (measured)
    actors     LIBRARY_BYTES for each actor on this machine

The operating system allocates the replay only as it fills. Without this check, a run that needs too much RAM would be
killed after hours.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from monotau.config.resolve import Resolved
from monotau.config.schema import LOCAL
from monotau.errors import ConfigError
from monotau.learning.agent_networks import AgentNetworks, pick_device
from monotau.learning.train import layout_of
from monotau.replay import Layout, ReplayConfig, ReplayMemory

LIBRARY_BYTES = 390_000_000
"""Resident memory after a short training on small vectors: Python, torch with optimisers, Gymnasium, matplotlib."""

UPDATE_COPIES = 17
"""Size of an update in float32 batches. Fitted to NDQFN with DPE on 84x84 frames, batch 32; Rainbow is similar, DQN
needs less."""

LARGEST_SHARE = 0.9
"""Share of the available RAM that a run may use; the rest is for evaluation, figures and other processes."""

SMALLEST_PRINTED = 500_000_000
"""Smallest plan in bytes that is printed."""


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """How much RAM a run needs, and how much is available, in bytes."""

    config: ReplayConfig
    layout: Layout
    networks: int
    """Weights, gradients and optimiser moments of all networks."""
    updates: int
    """Batches, and the activations that an update keeps for its gradients."""
    available: int | None
    """RAM that the machine or the container has left; None if unknown."""
    actors: int
    """RAM of the actor processes on this machine."""
    libraries: int = LIBRARY_BYTES
    """RAM of the program itself with its libraries."""

    @classmethod
    def of(cls, resolved: Resolved, available: int | None, ray: str = LOCAL) -> "MemoryPlan":
        """Compute how much RAM a run needs on this machine, without allocating it."""
        config, spec = resolved.config, resolved.envs.observation_spec
        layout = layout_of(config, resolved.envs)
        here = pick_device(config.device).type == "cpu"
        numbers = 2 * config.update.batch_size * layout.stack * prod(layout.frame_shape)
        return cls(
            config=config.replay,
            layout=layout,
            networks=AgentNetworks.blank(config, spec, resolved.envs.num_actions).memory() if here else 0,
            updates=UPDATE_COPIES * 4 * numbers if here else 0,
            available=available,
            actors=config.actors * LIBRARY_BYTES if ray == LOCAL else 0,
        )

    @property
    def replay(self) -> ReplayMemory:
        """The memory of the full replay."""
        return self.config.memory(self.layout)

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return self.replay.total + self._rest

    @property
    def _rest(self) -> int:
        return self.networks + self.updates + self.libraries + self.actors

    def largest_capacity(self) -> int:
        """Return the largest `replay.capacity_steps` that fits, at most the configured one; 0 if none fits."""
        if self.available is None:
            return self.config.capacity_steps
        room = LARGEST_SHARE * self.available - self._rest

        def size(steps: int) -> int:
            return replace(self.config, capacity_steps=steps, warmup_steps=1).memory(self.layout).total

        return bisect_right(range(1, self.config.capacity_steps + 1), room, key=size)

    def check(self) -> None:
        """Raise if the run needs more than LARGEST_SHARE of the available RAM."""
        if self.available is None or self.total <= LARGEST_SHARE * self.available:
            return
        largest = self.largest_capacity()
        # Rounded down to three digits, because the available memory fluctuates and the hint should work a moment later.
        digits = 10 ** max(0, len(str(largest)) - 3)
        instead = (
            f"use --replay.capacity-steps {largest // digits * digits}"
            if largest
            else f"use smaller networks or batches{' or fewer actors' * bool(self.actors)}: no replay fits beside them"
        )
        raise ConfigError(
            f"the run needs too much memory: {self.sum}, of which it may use at most {LARGEST_SHARE:.0%}; {instead}, "
            f"or --force (in Python, force=True) to try anyway."
        )

    @property
    def sum(self) -> str:
        """The sum as text for messages."""
        parts = {
            "replay": self.replay.total,
            "networks": self.networks,
            "updates": self.updates,
            "libraries": self.libraries,
        } | ({"actors": self.actors} if self.actors else {})
        terms = " + ".join(f"{name} {_gigabytes(size)}" for name, size in parts.items())
        limit = "" if self.available is None else f" of {_gigabytes(self.available)} available"
        return f"{terms} = {_gigabytes(self.total)}{limit}"


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB"


def plan_memory(resolved: Resolved, say: Callable[[str], None], *, force: bool = False, ray: str = LOCAL) -> None:
    """Print how much RAM a large run needs, and raise if it is too much for this machine, unless `force` is set."""
    plan = MemoryPlan.of(resolved, available_bytes(), ray)
    try:
        plan.check()
    except ConfigError:
        if not force:
            raise
        say(f"[yellow]warning:[/] memory: {plan.sum}; the system may kill the run as its replay fills")
        return
    if plan.total >= SMALLEST_PRINTED:
        say(f"memory: {plan.sum}")


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return the RAM that a run can use without swapping: the minimum over the machine and its control groups.

    Returns None if unknown, as on systems without /proc.
    """
    limits = [*_kilobytes(root / "proc/meminfo", "MemAvailable"), *_group_limits(root)]
    if not limits:
        return None
    # The plan includes the libraries, which are loaded already, so their memory counts as available.
    held = sum(_kilobytes(root / "proc/self/status", "RssAnon"))
    return min(limits) + min(held, LIBRARY_BYTES)


def _kilobytes(path: Path, name: str) -> list[int]:
    """Return the value of an entry of a /proc file in bytes, as a list that is empty if there is none."""
    return [int(found) * 1024 for found in re.findall(rf"^{name}:\s+(\d+) kB$", _text(path), re.MULTILINE)]


def _group_limits(root: Path) -> Iterator[int]:
    """Yield the memory left in each control group of this process; any of the nested groups may be the tightest."""
    mount = root / "sys/fs/cgroup"
    groups = re.findall(r"^\d+:(|memory):(.*)$", _text(root / "proc/self/cgroup"), re.MULTILINE)
    for controller, path in groups:
        # In a container the path may be the one outside it, while the files of the group itself are at the top.
        inner = Path(*(part for part in path.split("/") if part not in ("", "..")))
        for group in (inner, *inner.parents):
            left = _group_memory_left(mount / controller / group, *(VERSION_1 if controller else VERSION_2))
            if left is not None:
                yield left


VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file")
VERSION_2 = ("memory.max", "memory.current", "inactive_file", "active_file")


def _group_memory_left(group: Path, limit: str, used: str, *cached: str) -> int | None:
    """Return the limit minus the usage; the file cache does not count as used, because the kernel can reclaim it."""
    most, now = (_text(group / name).strip() for name in (limit, used))
    if not (most.isdecimal() and now.isdecimal()):
        return None  # "max", or no such group
    counts = dict(re.findall(r"^(\w+) (\d+)$", _text(group / "memory.stat"), re.MULTILINE))
    cache = sum(int(counts.get(name, "0")) for name in cached)
    return max(0, int(most) - max(0, int(now) - cache))


def _text(path: Path) -> str:
    """Return the contents of a file, or "" if it does not exist, as on other systems and in some containers."""
    try:
        return path.read_text()
    except OSError:
        return ""
