"""A stage whose steps are made by Ray actors, while this process learns (Ape-X: Horgan et al. 2018).

An actor has at most IN_FLIGHT orders: it waits when what it sent is not taken, which bounds memory on both sides, and
the learner takes what comes first. Departures from Ape-X: updates keep their ratio to steps, so that budgets mean the
same with and without actors; new steps come with the largest priority, as in one process, and not with one that the
actor works out.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from monotau.brain import Brain
from monotau.cluster.joining import joined
from monotau.cluster.player import Order, Player, Sending, Weights
from monotau.configs import Config
from monotau.envs import EnvFactory
from monotau.errors import ConfigError, EnvironmentFault, in_one_line
from monotau.explorers.base import drained
from monotau.processes import cores
from monotau.replay import ALL_LANES
from monotau.stage import Move, Stage

IN_FLIGHT = 2
"""Orders of an actor that were not taken yet: one to work on while the other is on its way."""

MOST_DEATHS = 5
"""In a row, of one actor, without a step in between: somebody must look at it."""

START_SECONDS = 300.0
"""For an actor to be placed, to start and to send for the first time, however little patience there is later."""

LOOK_SECONDS = 1.0
"""Between two looks after actors that are silent."""


@contextmanager
def joined_for_acting(config: Config, envs: EnvFactory, address: str) -> Iterator[None]:
    """Be connected to Ray within the block, with room there for the actors; nothing is done if there are to be none."""
    if not config.actors:
        yield
        return
    if not envs.reusable:
        raise ConfigError(
            f"actors is {config.actors}, but {envs.name} was given ready made, and there is only one of it: "
            "give an id, or a callable that makes one."
        )
    with joined(address, max(cores(), math.ceil(config.actors * config.actor.cpus))):
        import ray

        wanted, there = config.actors * config.actor.cpus, ray.cluster_resources().get("CPU", 0.0)
        if wanted > there:
            raise ConfigError(
                f"actors is {config.actors}, with actor.cpus {config.actor.cpus:g} each, but the cluster has {there:g} "
                "CPUs in all: use fewer, or a smaller actor.cpus."
            )
        yield


@dataclass
class Seat:
    """An actor, or after its end the one in its place."""

    number: int
    lanes: slice
    handle: Any
    newest: np.ndarray
    life: int = 0
    orders: "deque[tuple[Any, int, int]]" = field(default_factory=deque)
    """What was ordered: the reference, steps of each environment, and the updates its weights have seen."""
    version: int = -1
    """Updates that the weights it was sent last have seen."""
    heard: float = 0.0
    started: bool = False
    """Whether it has sent anything in this life."""
    deaths: int = 0
    """Since one in its place last sent anything."""
    lost: bool = False
    """Whether episodes of the one before are still in flight."""


class Actors(Stage):
    """Hands out orders, takes what comes back, and replaces who is gone."""

    def __init__(
        self, config: Config, envs: EnvFactory, brain: Brain, say: Callable[[str], None], updates: int = 0
    ) -> None:
        """`updates` are those that the brain has made before."""
        import ray

        self._ray, self._config, self._envs, self._brain, self._say = ray, config, envs, brain, say
        spec, count = envs.observation_spec, config.env.num_envs
        blank = np.zeros((count, *spec.shape), spec.dtype)
        self._seats = [
            Seat(number, slice(number * count, (number + 1) * count), self._hired(number, 0), blank)
            for number in range(config.actors)
        ]
        self._schedules = [replace(config.epsilon, end=float(end)) for end in config.actor.epsilons(config.lanes)]
        self._updates, self._version = updates, -1
        self._weights: Any = None
        self._seen: dict[str, list[torch.Tensor]] = {"lag_updates": []}

    def _hired(self, number: int, life: int) -> Any:
        """Return a new actor."""
        options = {"num_cpus": self._config.actor.cpus, "max_restarts": 0, "max_task_retries": 0}
        return self._ray.remote(Player).options(**options).remote(self._config, self._envs.source, number, life)

    def learned(self, updates: int) -> None:
        """Put new weights out when they are due; who gets an order next is sent them with it."""
        self._updates = updates
        if updates - self._version >= self._config.actor.broadcast_every_updates:
            self._broadcast()

    def _broadcast(self) -> None:
        weights: Weights = {name: tensor.detach().cpu().numpy() for name, tensor in self._brain.state().items()}
        # The last one is let go of, and gone with the last order that carries it.
        self._weights, self._version = self._ray.put(weights), self._updates

    def metrics(self) -> dict[str, float]:
        """Mean updates between the weights acted with and those of the moment, and what the explorers averaged."""
        return drained(**self._seen)

    def moves(self, iteration: int, step: int, steps: int) -> Generator[Move]:
        """Take steps as they come, in the order of each actor's own."""
        lanes, left = self._config.env.num_envs, steps // self._config.env.num_envs
        for seat in self._seats:
            seat.lost = False  # the replay was cut between iterations
        self._broadcast()
        while left or any(seat.orders for seat in self._seats):
            for seat in self._seats:
                left -= self._order(seat, iteration, step, left)
            for seat in self._arrived():
                count, version = seat.orders[0][1:]
                sending = self._taken(seat)
                if not isinstance(sending, Sending):
                    left += self._replace(seat, sending)
                    continue
                self._brain.explorer.absorb({name: torch.tensor(array) for name, array in sending.lived.items()})
                for name, value in sending.metrics.items():
                    self._seen.setdefault(name, []).append(torch.tensor(value))
                left -= self._order(seat, iteration, step, left)
                epsilon = float(np.mean(self._epsilons(ALL_LANES, step)))
                for number in range(count):
                    lost = seat.newest if seat.lost and not number else None
                    self._seen["lag_updates"].append(torch.tensor(float(self._updates - version)))
                    yield Move(sending.step(number), sending.returns[number], epsilon, seat.lanes, lost)
                    step += lanes
                seat.newest, seat.lost = sending.newest, False
        self.newest = np.concatenate([seat.newest for seat in self._seats])

    def _epsilons(self, lanes: slice, step: int) -> np.ndarray:
        since = step - self._config.replay.warmup_steps
        return np.array([schedule.at(since) for schedule in self._schedules[lanes]])

    def _order(self, seat: Seat, iteration: int, step: int, left: int) -> int:
        """Keep an actor busy; return how many steps of each environment were ordered."""
        ordered = 0
        while left > ordered and len(seat.orders) < IN_FLIGHT:
            steps = min(self._config.actor.send_every_steps, left - ordered)
            weights, seat.version = (None if seat.version == self._version else self._weights), self._version
            order = Order(iteration, step, steps, self._epsilons(seat.lanes, step))
            if not seat.orders:
                seat.heard = time.monotonic()
            seat.orders.append((seat.handle.play.remote(order, weights), steps, seat.version))
            ordered += steps
        return ordered

    def _arrived(self) -> list[Seat]:
        """Return whose first order is done, or will never be; wait for one."""
        waiting = {seat.orders[0][0]: seat for seat in self._seats if seat.orders}
        while waiting:
            self._ray.wait([*waiting], num_returns=1, timeout=LOOK_SECONDS)
            ready, _ = self._ray.wait([*waiting], num_returns=len(waiting), timeout=0)
            if ready:
                return [waiting[reference] for reference in ready]
            now = time.monotonic()
            if silent := [seat for seat in waiting.values() if now - seat.heard > self._patience(seat)]:
                for seat in silent:
                    self._ray.kill(seat.handle)
                return silent
        return []

    def _patience(self, seat: Seat) -> float:
        patience = self._config.actor.patience_seconds
        return patience if seat.started else max(patience, START_SECONDS)

    def _taken(self, seat: Seat) -> Sending | str:
        """Return what an actor sent, or why it is gone; what went wrong in its environments goes wrong here."""
        reference = seat.orders[0][0]
        errors = self._ray.exceptions
        try:
            # Gone or there, it is known at once, but for a network that has just failed.
            sending: Sending = self._ray.get(reference, timeout=self._config.actor.patience_seconds)
        except errors.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, ConfigError):
                raise ConfigError(
                    f"actor {seat.number}: {cause} Actors are other processes: an environment that only this one knows "
                    "must be given as 'module:Env-v0', or as a callable that makes it."
                ) from None
            if isinstance(cause, EnvironmentFault):
                raise EnvironmentFault(f"actor {seat.number}: {cause}") from None
            raise EnvironmentFault(f"actor {seat.number}: it raised {in_one_line(cause)}") from None
        except errors.RayError as error:  # the actor, its node, or what it sent is lost
            return in_one_line(error)
        seat.orders.popleft()
        seat.heard, seat.deaths, seat.started = time.monotonic(), 0, True
        return sending

    def _replace(self, seat: Seat, reason: str) -> int:
        """Put another in the place of an actor; return how many steps of each environment are to be ordered anew."""
        seat.deaths += 1
        if seat.deaths >= MOST_DEATHS:
            raise EnvironmentFault(
                f"actor {seat.number} ended {seat.deaths} times in a row before it sent a step: {reason[:300]}"
            )
        self._ray.kill(seat.handle)
        undone = sum(count for _, count, _ in seat.orders)
        seat.orders.clear()
        seat.life, seat.version, seat.lost, seat.started = seat.life + 1, -1, True, False
        seat.handle = self._hired(seat.number, seat.life)
        self._say(f"[yellow]warning:[/] actor {seat.number} is gone and was replaced ({reason[:120]})")
        return undone

    def close(self) -> None:
        """End the actors."""
        for seat in self._seats:
            self._ray.kill(seat.handle)
