"""A collector of Ray actors, which step environments while this process learns (Ape-X, arXiv 1803.00933).

An actor has at most IN_FLIGHT pending requests, which bounds memory on both sides, and the learner takes results in
the order of their arrival. Departures from Ape-X: updates keep their ratio to steps, so that budgets mean the same with
and without actors; new steps get the largest priority, as in one process, instead of one computed by the actor.
"""

import math
import re
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from monotau.config.schema import Config
from monotau.distributed.actor import CollectRequest, Experience, RolloutActor, Weights
from monotau.distributed.connect import connected
from monotau.envs.make import EnvFactory
from monotau.errors import ConfigError, EnvironmentFault, in_one_line
from monotau.explorers.base import drain_means
from monotau.learning.agent_networks import AgentNetworks
from monotau.learning.collector import Collector, StepBatch
from monotau.machine import cores
from monotau.replay import ALL_LANES, Newest

IN_FLIGHT = 2
"""Pending requests per actor: it works on one while the results of the other are sent."""

MOST_DEATHS = 5
"""Consecutive deaths of one actor, without a step in between, after which the run fails."""

START_SECONDS = 300.0
"""Minimum timeout for an actor's first results, because it must be scheduled and start first."""

POLL_SECONDS = 1.0
"""Seconds between checks for unresponsive actors."""


@contextmanager
def connected_for_actors(config: Config, envs: EnvFactory, address: str) -> Iterator[None]:
    """Connect to Ray for the block and check that the actors fit there; do nothing without actors."""
    if not config.actors:
        yield
        return
    if not envs.reusable:
        raise ConfigError(
            f"actors is {config.actors}, but {envs.name} was passed as an instance, which actors cannot share: "
            "pass an id, or a callable that makes one."
        )
    with connected(address, max(cores(), math.ceil(config.actors * config.actor.cpus))):
        import ray

        needed, available = config.actors * config.actor.cpus, ray.cluster_resources().get("CPU", 0.0)
        if needed > available:
            raise ConfigError(
                f"actors is {config.actors}, with actor.cpus {config.actor.cpus:g} each, but the cluster has "
                f"{available:g} CPUs in total: use fewer actors, or a smaller actor.cpus."
            )
        yield


@dataclass
class ActorSlot:
    """One actor, or its current replacement, and its lanes and pending requests."""

    number: int
    lanes: slice
    handle: Any
    newest: Newest
    life: int = 0
    requests: "deque[tuple[Any, int, int]]" = field(default_factory=deque)
    """Pending requests: the Ray reference, steps per environment, and the number of updates of the weights used."""
    version: int = -1
    """Number of updates of the weights that were sent last."""
    last_heard: float = 0.0
    started: bool = False
    """Whether the current actor has sent anything."""
    deaths: int = 0
    """Deaths since an actor in this slot last sent anything."""
    died: bool = False
    """Whether an actor died here and its unfinished episodes still have to be truncated."""


class RayCollector(Collector):
    """Sends requests to actors, receives their results as they arrive, and replaces actors that die."""

    def __init__(
        self, config: Config, envs: EnvFactory, networks: AgentNetworks, say: Callable[[str], None], address: str
    ) -> None:
        self._config, self._envs, self._networks, self._say, self._address = config, envs, networks, say, address
        self._schedules = [replace(config.epsilon, end=float(end)) for end in config.actor.epsilons(config.lanes)]
        self._recent: dict[str, list[torch.Tensor]] = {"lag_updates": []}

    @contextmanager
    def session(self, updates: int) -> Iterator[None]:
        """Connect to Ray and run the actors; they end with the session."""
        with connected_for_actors(self._config, self._envs, self._address):
            import ray

            self._ray, self._updates, self._version = ray, updates, -1
            self._weights: Any = None
            spec, count = self._envs.observation_spec, self._config.env.num_envs
            masks = np.ones((count, self._envs.num_actions), np.bool_) if self._envs.masked else None
            blank = Newest(np.zeros((count, *spec.shape), spec.dtype), masks)
            self._slots = [
                ActorSlot(number, slice(number * count, (number + 1) * count), self._start_actor(number, 0), blank)
                for number in range(self._config.actors)
            ]
            try:
                yield
            finally:
                for slot in self._slots:
                    ray.kill(slot.handle)

    def _start_actor(self, number: int, life: int) -> Any:
        """Return a new actor."""
        options = {"num_cpus": self._config.actor.cpus, "max_restarts": 0, "max_task_retries": 0}
        return self._ray.remote(RolloutActor).options(**options).remote(self._config, self._envs.source, number, life)

    def learned(self, updates: int) -> None:
        """Broadcast new weights when they are due; actors receive them with their next requests."""
        self._updates = updates
        if updates - self._version >= self._config.actor.broadcast_every_updates:
            self._broadcast()

    def _broadcast(self) -> None:
        weights: Weights = {name: tensor.detach().cpu().numpy() for name, tensor in self._networks.state().items()}
        # Ray's object store frees the previous weights with the last request that refers to them.
        self._weights, self._version = self._ray.put(weights), self._updates

    def metrics(self) -> dict[str, float]:
        """Return the mean lag of the actors' weights in updates, and the averages of their explorers."""
        return drain_means(**self._recent)

    def collect(self, iteration: int, step: int, steps: int) -> Generator[StepBatch]:
        """Yield steps as they arrive; the steps of one actor stay in order."""
        lanes, left = self._config.env.num_envs, steps // self._config.env.num_envs
        for slot in self._slots:
            slot.died = False  # the replay truncates open episodes between iterations
        self._broadcast()
        while left or any(slot.requests for slot in self._slots):
            for slot in self._slots:
                left -= self._request(slot, iteration, step, left)
            for slot in self._arrived():
                count, version = slot.requests[0][1:]
                experience = self._receive(slot)
                if not isinstance(experience, Experience):
                    left += self._replace(slot, experience)
                    continue
                self._networks.explorer.merge_stats(
                    {name: torch.tensor(array) for name, array in experience.stats.items()}
                )
                for name, value in experience.metrics.items():
                    self._recent.setdefault(name, []).append(torch.tensor(value))
                left -= self._request(slot, iteration, step, left)
                epsilon = float(np.mean(self._epsilons(ALL_LANES, step)))
                for number in range(count):
                    truncated_at = slot.newest if slot.died and not number else None
                    self._recent["lag_updates"].append(torch.tensor(float(self._updates - version)))
                    yield StepBatch(
                        experience.step(number), experience.returns[number], epsilon, slot.lanes, truncated_at
                    )
                    step += lanes
                slot.newest, slot.died = experience.newest, False
        newest = [slot.newest for slot in self._slots]
        self.newest = Newest(
            np.concatenate([each.frames for each in newest]),
            np.concatenate([each.masks for each in newest]) if self._envs.masked else None,
        )

    def _epsilons(self, lanes: slice, step: int) -> np.ndarray:
        since = step - self._config.replay.warmup_steps
        return np.array([schedule.at(since) for schedule in self._schedules[lanes]])

    def _request(self, slot: ActorSlot, iteration: int, step: int, left: int) -> int:
        """Send requests to an actor until enough are pending; return the requested steps per environment."""
        requested = 0
        while left > requested and len(slot.requests) < IN_FLIGHT:
            steps = min(self._config.actor.send_every_steps, left - requested)
            weights, slot.version = (None if slot.version == self._version else self._weights), self._version
            request = CollectRequest(iteration, step, steps, self._epsilons(slot.lanes, step))
            if not slot.requests:
                slot.last_heard = time.monotonic()
            slot.requests.append((slot.handle.collect.remote(request, weights), steps, slot.version))
            requested += steps
        return requested

    def _arrived(self) -> list[ActorSlot]:
        """Wait until a slot's oldest request is done or its actor times out; return all such slots."""
        waiting = {slot.requests[0][0]: slot for slot in self._slots if slot.requests}
        while waiting:
            self._ray.wait([*waiting], num_returns=1, timeout=POLL_SECONDS)
            ready, _ = self._ray.wait([*waiting], num_returns=len(waiting), timeout=0)
            if ready:
                return [waiting[reference] for reference in ready]
            now = time.monotonic()
            if late := [slot for slot in waiting.values() if now - slot.last_heard > self._timeout(slot)]:
                for slot in late:
                    self._ray.kill(slot.handle)
                return late
        return []

    def _timeout(self, slot: ActorSlot) -> float:
        patience = self._config.actor.patience_seconds
        return patience if slot.started else max(patience, START_SECONDS)

    def _receive(self, slot: ActorSlot) -> Experience | str:
        """Return an actor's experience, or why it died; raise an error of its environments."""
        reference = slot.requests[0][0]
        errors = self._ray.exceptions
        try:
            # The result is available or known to be lost, unless the network has just failed; hence the timeout.
            experience: Experience = self._ray.get(reference, timeout=self._config.actor.patience_seconds)
        except errors.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, ConfigError):
                raise ConfigError(
                    f"actor {slot.number}: {cause} Actors are separate processes: an environment that only this one "
                    "has registered must be given as 'module:Env-v0', or as a callable that makes it."
                ) from None
            if isinstance(cause, EnvironmentFault):
                raise EnvironmentFault(f"actor {slot.number}: {cause}") from None
            raise EnvironmentFault(f"actor {slot.number}: it raised {in_one_line(cause)}") from None
        except errors.RayError as error:  # the actor, its node or its results are lost
            reason = in_one_line(error)
            if missing := re.search(r"No module named '([\w.]+)'", reason):  # a new actor would not have it either
                raise ConfigError(
                    f"actor {slot.number}: its process has no module {missing[1]!r}, which this process has imported: "
                    "install it on every node, or start monotau in the directory that contains it."
                ) from None
            return reason
        slot.requests.popleft()
        slot.last_heard, slot.deaths, slot.started = time.monotonic(), 0, True
        return experience

    def _replace(self, slot: ActorSlot, reason: str) -> int:
        """Replace a dead actor; return how many steps per environment must be requested again."""
        slot.deaths += 1
        if slot.deaths >= MOST_DEATHS:
            raise EnvironmentFault(
                f"actor {slot.number} died {slot.deaths} times in a row without sending a step: {reason[:300]}"
            )
        self._ray.kill(slot.handle)
        lost_steps = sum(count for _, count, _ in slot.requests)
        slot.requests.clear()
        slot.life, slot.version, slot.died, slot.started = slot.life + 1, -1, True, False
        slot.handle = self._start_actor(slot.number, slot.life)
        self._say(f"[yellow]warning:[/] actor {slot.number} died and was replaced ({reason[:120]})")
        return lost_steps
