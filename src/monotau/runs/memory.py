"""What a run will take of the machine's memory, worked out before it starts, and what the machine has.

    total = replay + networks + updates + libraries + actors

    replay     slots * (bytes of a frame + 9), and 8.06 more a slot for priorities: what the arrays will have, exactly
    networks   weights of all networks, and gradients and moments of those that learn, exactly; 0 on a GPU
    updates    UPDATE_COPIES * float32 of both stacks of a batch: measured
    libraries  LIBRARY_BYTES: measured
    actors     the libraries once more for each, if they are on this machine

The replay's pages are taken only as it fills, so a run that does not fit fails after hours if nobody counts before.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from monotau.config.presets import Resolved
from monotau.distributed.connect import LOCAL
from monotau.errors import ConfigError
from monotau.learning.agent_networks import AgentNetworks, pick_device
from monotau.learning.train import layout_of
from monotau.replay import Layout, ReplayConfig, ReplayMemory

LIBRARY_BYTES = 390_000_000
"""Resident after a short training on small vectors: Python, torch and its optimisers, Gymnasium, matplotlib."""

UPDATE_COPIES = 17
"""Batches of both stacks as float32. Fitted to NDQFN with DPE on 84x84 frames, batch 32; Rainbow is alike, DQN less."""

LARGEST_SHARE = 0.9
"""Of the memory that is available; what is left is for evaluation, figures and everybody else."""

WORTH_A_LINE = 500_000_000
"""Bytes; nobody needs to be told of less."""


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Bytes that a run will take, and that there are."""

    config: ReplayConfig
    layout: Layout
    networks: int
    """Weights, gradients and moments of all networks."""
    updates: int
    """Batches and what an update keeps for its gradients."""
    available: int | None
    """What the machine, or the container, can still give; None where that is not known."""
    actors: int
    """What processes take that act beside it."""
    libraries: int = LIBRARY_BYTES
    """What the program takes before it has anything to learn."""

    @classmethod
    def of(cls, resolved: Resolved, available: int | None, ray: str = LOCAL) -> "MemoryPlan":
        """Work out what a run takes of this machine, without taking it."""
        config, spec = resolved.config, resolved.envs.observation_spec
        layout = layout_of(config, spec)
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
        """What the replay takes when it is full."""
        return self.config.memory(self.layout)

    @property
    def total(self) -> int:
        """Everything."""
        return self.replay.total + self._rest

    @property
    def _rest(self) -> int:
        return self.networks + self.updates + self.libraries + self.actors

    def largest_capacity(self) -> int:
        """Return the largest `replay.capacity_steps`, up to the one asked for, that is not refused; 0 if none is."""
        if self.available is None:
            return self.config.capacity_steps
        room = LARGEST_SHARE * self.available - self._rest

        def size(steps: int) -> int:
            return replace(self.config, capacity_steps=steps, warmup_steps=1).memory(self.layout).total

        return bisect_right(range(1, self.config.capacity_steps + 1), room, key=size)

    def check(self) -> None:
        """Refuse what would take more than LARGEST_SHARE of the memory available."""
        if self.available is None or self.total <= LARGEST_SHARE * self.available:
            return
        largest = self.largest_capacity()
        # To three digits: what is available changes by the moment, and the number is to be good in the next one too.
        digits = 10 ** max(0, len(str(largest)) - 3)
        instead = (
            f"use --replay.capacity-steps {largest // digits * digits}"
            if largest
            else f"no replay fits beside them{', so use fewer actors' * bool(self.actors)}"
        )
        raise ConfigError(
            f"replay.capacity_steps is {self.config.capacity_steps}, but {self.sum}, and at most {LARGEST_SHARE:.0%} "
            f"of that may be used: {instead}, or --force (in Python, force=True) to try it all the same."
        )

    @property
    def sum(self) -> str:
        """The sum in words."""
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
    """Say what a run takes, where it is much; more than this machine can give is refused, unless forced."""
    plan = MemoryPlan.of(resolved, available_bytes(), ray)
    try:
        plan.check()
    except ConfigError:
        if not force:
            raise
        say(f"[yellow]warning:[/] memory: {plan.sum}; the run may be killed when its replay fills")
        return
    if plan.total >= WORTH_A_LINE:
        say(f"memory: {plan.sum}")


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return what a run can have without swapping: the least of what machine and control groups around us allow.

    None where the system does not say, as without /proc.
    """
    limits = [*_kilobytes(root / "proc/meminfo", "MemAvailable"), *_group_limits(root)]
    if not limits:
        return None
    # The libraries are in memory already; they are part of the plan, so they are not to be missing here.
    held = sum(_kilobytes(root / "proc/self/status", "RssAnon"))
    return min(limits) + min(held, LIBRARY_BYTES)


def _kilobytes(path: Path, name: str) -> list[int]:
    """The bytes that a file of /proc states under a name, if it does."""
    return [int(found) * 1024 for found in re.findall(rf"^{name}:\s+(\d+) kB$", _text(path), re.MULTILINE)]


def _group_limits(root: Path) -> Iterator[int]:
    """What each control group that holds this process has left; inner ones may be narrower, and outer ones too."""
    mount = root / "sys/fs/cgroup"
    groups = re.findall(r"^\d+:(|memory):(.*)$", _text(root / "proc/self/cgroup"), re.MULTILINE)
    for controller, path in groups:
        # In a container the path may be that outside of it, and the topmost files be those of the group itself.
        inner = Path(*(part for part in path.split("/") if part not in ("", "..")))
        for group in (inner, *inner.parents):
            left = _left_in(mount / controller / group, *(VERSION_1 if controller else VERSION_2))
            if left is not None:
                yield left


VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file")
VERSION_2 = ("memory.max", "memory.current", "inactive_file", "active_file")


def _left_in(group: Path, limit: str, used: str, *cached: str) -> int | None:
    """Limit less use, where the cache of files does not count as used: it gives way."""
    most, now = (_text(group / name).strip() for name in (limit, used))
    if not (most.isdecimal() and now.isdecimal()):
        return None  # "max", or no such group here
    counts = dict(re.findall(r"^(\w+) (\d+)$", _text(group / "memory.stat"), re.MULTILINE))
    cache = sum(int(counts.get(name, "0")) for name in cached)
    return max(0, int(most) - max(0, int(now) - cache))


def _text(path: Path) -> str:
    """The contents, or nothing: other systems have no such files, and containers may hide them."""
    try:
        return path.read_text()
    except OSError:
        return ""
