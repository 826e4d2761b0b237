"""Plays one run for its viewers in a thread of its own, and keeps the last moments for looking back.

Viewers never slow the thread down: it replaces the newest moment whether or not anybody has fetched the one before. It
plays only while somebody is looking.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from monotau.agent import Agent
from monotau.distributions import MEAN, Risk
from monotau.errors import ConfigError, EnvironmentFault
from monotau.watch.check import ROLLOUTS, audit_message, audit_state, digest
from monotau.watch.messages import Request, pack_moment
from monotau.watch.scene import Moment, Player
from monotau.watch.source import Curves, Source
from monotau.watch.world import LARGEST_SEED

KEPT_STEPS = 2_000
"""Moments kept for looking back."""
CHECK_SECONDS = 1.0
"""How often the run directory is checked for a newer agent and newer metrics."""
END_SECONDS = 0.8
"""How long the last moment of an episode is shown at least."""
MOST_STEPS_AHEAD = 100
"""Single steps that may be waiting."""


@final
@dataclass(frozen=True)
class Kept:
    """A moment as it is sent, and its point in the time line."""

    at: int
    data: bytes
    point: list[int | float]
    """Place, step, return so far, expected return, action (-1 after the end) and score."""
    digest: int
    """Digest of the observation."""


@final
class Interrupted(BaseException):
    """Ends an audit because something else was asked for; like KeyboardInterrupt, it is no error of an environment."""


@final
class Session:
    """The playing of one run."""

    def __init__(
        self, source: Source, *, risk: Risk = MEAN, seed: int = 0, speed: int = 20, epsilon: float | None = None
    ) -> None:
        self.source, self.seed, self.speed, self.risk, self.epsilon = source, seed, speed, risk, epsilon
        self.playing = True
        self.newest: Kept | None = None
        self.curves: Curves = {}
        self.audit: dict[str, Any] | None = None
        """The newest audit of a state, as the page receives it."""
        self._player: Player | None = None
        self._message, self._failed = "", False
        self._kept: deque[Kept] = deque(maxlen=KEPT_STEPS)
        self._count, self._first_of_episode = 0, 0
        self._steps_ahead, self._rethink = 0, False
        self._wanted_seed: int | None = seed
        self._actions: list[int] = []  # of the current episode
        self._wanted_audit: int | None = None
        self._audited_share: float | None = None
        self._audit_note = ""
        self._watching: dict[int, bool] = {}
        self._listeners: dict[int, Callable[[], None]] = {}
        self._training, self._next_check = False, 0.0
        self._wake, self._lock, self._stopped = threading.Event(), threading.Lock(), False
        self._thread = threading.Thread(target=self._run, name=f"watch {source.name}", daemon=True)

    def load(self) -> None:
        """Load what the run has saved so far; damaged files raise ConfigError."""
        self._check_source()

    @property
    def agent(self) -> Agent | None:
        """The agent that plays; None if the run has saved none yet."""
        return None if self._player is None else self._player.agent

    def start(self) -> None:
        """Begin to play."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the environment."""
        self._stopped = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    # Viewers, from the server's thread.

    def join(self, viewer: int, notify: Callable[[], None]) -> None:
        """Add a viewer; `notify` is called from this session's thread when there is something new."""
        with self._lock:
            self._listeners[viewer], self._watching[viewer] = notify, True
        self._wake.set()

    def leave(self, viewer: int) -> None:
        """Remove a viewer."""
        with self._lock:
            self._listeners.pop(viewer, None)
            self._watching.pop(viewer, None)

    def status(self) -> dict[str, Any]:
        """Return the state of the session, as the page shows it."""
        player, state = self._player, "playing" if self.playing else "paused"
        if self._failed:
            state = "error"
        elif player is None:
            state = "waiting"
        config = player.agent.config if player else None
        return {
            "state": state,
            "message": self._message or self._audit_note,
            "training": self._training,
            "finished": not self.source.unfinished,
            "run": self.source.name,
            "env": config.env.title if config else "",
            "preset": config.preset if config else "",
            "agent": self.source.agent_name,
            "gamma": config.gamma if config else None,
            "clip": config.replay.reward_clip if config else 0,
            "actions": player.action_names if player else [],
            "picture_note": player.world.picture_note if player else None,
            "speed": self.speed,
            "seed": self.seed,
            "epsilon": self.epsilon,
            "audited_share": self._audited_share,
            "risk": {"kind": self.risk.kind, "alpha": self.risk.alpha, "eta": self.risk.eta},
        }

    def points_since(self, at: int) -> list[list[int | float]]:
        """Return the time line of the current episode after the place `at`."""
        with self._lock:
            return [kept.point for kept in self._kept if kept.at > at and kept.at >= self._first_of_episode]

    def moment(self, at: int) -> Kept | None:
        """Return a kept moment; None if it is gone."""
        with self._lock:
            index = at - self._kept[0].at if self._kept else -1
            return self._kept[index] if 0 <= index < len(self._kept) else None

    def handle(self, viewer: int, request: Request) -> None:
        """Do what a viewer asks for."""
        kind, value = request.type, request.value
        with self._lock:
            if kind in ("play", "step", "next", "again", "seed"):
                self._wanted_audit, self._audit_note = None, ""
            if kind in ("next", "again", "seed"):
                self._steps_ahead = 0  # steps asked for from now on belong to the new episode
                if self._failed:  # a new episode may go well
                    self._failed, self._message = False, ""
            if kind in ("play", "pause"):
                self.playing = kind == "play"
            elif kind == "step":
                self.playing, self._steps_ahead = False, min(self._steps_ahead + 1, MOST_STEPS_AHEAD)
            elif kind == "next":
                self._wanted_seed = (self.seed + 1) % (LARGEST_SEED + 1)
            elif kind in ("again", "seed"):
                self._wanted_seed = self.seed if kind == "again" else value
            elif kind == "audit":
                self.playing, self._wanted_audit = False, value
            elif kind == "speed":
                self.speed = value
            elif kind == "epsilon":
                self.epsilon, self._rethink = value, True
            elif kind == "risk":
                self.risk, self._rethink = value, True
            elif kind == "visible" and viewer in self._watching:
                self._watching[viewer] = value
        self._notify()
        self._wake.set()

    # The thread.

    def _run(self) -> None:
        try:
            due = time.monotonic()
            while not self._stopped:
                self._wake.clear()
                try:
                    self._check_source()
                except (ConfigError, EnvironmentFault) as error:
                    self._fail(error)
                if self._failed or self._player is None or not any(self._watching.values()):
                    self._wake.wait(CHECK_SECONDS)
                    due = time.monotonic()
                    continue
                wait = due - time.monotonic()
                if self._act(due_now=wait <= 0):
                    # Steps are due at equal intervals, but time that was lost is not made up for.
                    pause = 1 / self.speed
                    if self._moment_ended():
                        pause = max(pause, END_SECONDS)
                    due = max(due + pause, time.monotonic())
                else:
                    limit = CHECK_SECONDS if not self.playing else max(min(wait, CHECK_SECONDS), 0.001)
                    self._wake.wait(limit)
                    if not self.playing:
                        due = time.monotonic()
        finally:
            if self._player is not None:
                self._player.close()

    def _moment_ended(self) -> bool:
        return self.newest is not None and self.newest.point[4] < 0

    def _act(self, *, due_now: bool) -> bool:
        """Do the next thing that was asked for or is due; return whether a new moment is shown."""
        player = self._player
        assert player is not None  # noqa: S101  # `_run` waits for it
        with self._lock:
            seed, self._wanted_seed = self._wanted_seed, None
            rethink, self._rethink = self._rethink, False
            step, audited = self._steps_ahead > 0, self._wanted_audit
            player.risk = self.risk
            player.epsilon = player.epsilon if self.epsilon is None else self.epsilon
        try:
            if seed is None and self.newest is None:
                seed = self.seed
            if seed is not None:
                self._begin(player, seed)
            elif rethink and not self._moment_ended():
                self._show(player.think_again(), again=True)
                return False
            elif audited is not None:
                self._audit(player, audited)
                return False
            elif step or (self.playing and due_now):
                if step:
                    with self._lock:
                        self._steps_ahead -= 1
                if self._moment_ended():
                    self._begin(player, (self.seed + 1) % (LARGEST_SEED + 1))
                else:
                    assert self.newest is not None  # noqa: S101  # the episode has begun
                    self._actions.append(int(self.newest.point[4]))
                    self._show(player.advance())
            else:
                return False
        except (EnvironmentFault, ConfigError) as error:
            self._fail(error)
        return True

    def _begin(self, player: Player, seed: int) -> None:
        moment = player.start(seed)
        with self._lock:
            self.seed, self._first_of_episode, self._actions = seed, self._count, []
        self._show(moment)

    def _audit(self, player: Player, at: int) -> None:
        """Roll out every action from a state of this episode, until something else is asked for."""
        kept, step = self.moment(at), at - self._first_of_episode
        if kept is not None and 0 <= step <= len(self._actions) and kept.point[4] >= 0:
            total, done = ROLLOUTS * len(player.action_names), 0

            def on_rollout() -> None:
                nonlocal done
                done += 1
                if self._stopped or self._wanted_audit != at or not any(self._watching.values()):
                    raise Interrupted
                if (share := done / total) - (self._audited_share or 0.0) >= 0.05:
                    self._audited_share = share
                    self._notify()

            self._audited_share, self._audit_note = 0.0, ""
            self._notify()
            try:
                result = audit_state(player.agent, self.seed, self._actions[:step], kept.digest, on_rollout=on_rollout)
                self.audit = audit_message(at, result)
            except Interrupted:
                pass
            except (ConfigError, EnvironmentFault) as error:
                self._audit_note = f"This state cannot be measured: {_shortened(error)}"
            self._audited_share = None
        else:
            self._audit_note = "This state cannot be measured: it is no state of this episode in which the agent acts."
        with self._lock:
            if self._wanted_audit == at:
                self._wanted_audit = None
        self._notify()

    def _show(self, moment: Moment, *, again: bool = False) -> None:
        """Make a moment the newest one, in place of the newest one if it is shown `again` with other predictions."""
        at = self._count - 1 if again else self._count
        action = -1 if moment.thought is None else moment.thought.action
        point: list[int | float] = [at, moment.step, moment.discounted, moment.expected, action, moment.score]
        assert self._player is not None  # noqa: S101  # it has made the moment
        kept = Kept(at, pack_moment(at, moment, time.time()), point, digest(self._player.stack))
        with self._lock:
            if again:
                self._kept.pop()
            self._kept.append(kept)
            self._count, self.newest = at + 1, kept
        self._notify()

    def _check_source(self) -> None:
        """Load a newer agent and newer metrics, at most once in CHECK_SECONDS."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + CHECK_SECONDS
        try:
            agent, curves = self.source.newer_agent(), self.source.newer_curves()
        except ConfigError as error:
            # A checkpoint may vanish while it is read, because a run keeps only the last two.
            if self._player is None:
                raise
            self._message = f"what the run has saved could not be read: {error}"
        else:
            if agent is not None:
                self._message = ""
                if self._player is None:
                    self._player = Player(agent, epsilon=self.epsilon, risk=self.risk)
                    self.epsilon = self._player.epsilon
                else:
                    self._player.agent, self._rethink = agent, True
            self.curves = self.curves if curves is None else curves
        self._training = self.source.training
        self._notify()

    def _fail(self, error: Exception) -> None:
        self._failed, self._message = True, _shortened(error)
        self._notify()

    def _notify(self) -> None:
        with self._lock:
            listeners = list(self._listeners.values())
        for listener in listeners:
            listener()


def _shortened(error: Exception) -> str:
    return " ".join(str(error).split())[:500]
