"""Visits states with an agent's policy, and measures the returns of actions there by rollouts from snapshots."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped

from monotau.agent import Agent
from monotau.audit.curves import Curve
from monotau.audit.snapshots import Game, Seen, Snapshots
from monotau.distributions import Distribution
from monotau.errors import ConfigError, EnvironmentFault, in_one_line
from monotau.learning.policy import random_actions
from monotau.networks import Role
from monotau.seeding import numpy_stream

STATES_PER_EPISODE = 2
"""States taken from an episode; states of one episode resemble each other."""
NEGLIGIBLE = 1 / 200
"""A rollout ends when rewards count less than this; the agent's own estimate stands for the rest."""
LONGEST_STEPS = 27_000
"""Limit of all rollouts; one that reaches it, with a discount close to 1, is not measured."""
KEPT_DECISIONS = 200_000
"""Observations whose greedy actions are remembered: rollouts from the same state begin alike."""

ActionChoice = Literal["all", "greedy"]


@dataclass(frozen=True)
class Visit:
    """A state that the agent visited."""

    saved: Any
    """What `Snapshots.resume` takes."""
    stack: Shaped[np.ndarray, "S *frame"]
    """The observation, with the frames before it if the agent sees several."""
    mask: Bool[np.ndarray, " A"] | None
    episode: int
    step: int
    picture: Shaped[np.ndarray, "H W 3"] | None = None


@dataclass(frozen=True, kw_only=True)
class StateAudit:
    """What the agent claims on the actions of one state, and what was measured."""

    episode: int
    step: int
    greedy: int
    """The action that the agent takes."""
    actions: tuple[int, ...]
    """The audited actions."""
    curves: tuple[Curve, ...]
    """The learned quantile function of each."""
    crossing: Float[np.ndarray, " A"]
    """Share of neighbouring quantile estimates that decrease, before they were sorted."""
    returns: Float[np.ndarray, "A R"]
    """Discounted returns of the rollouts."""
    steps: Int[np.ndarray, "A R"]
    """Their lengths."""
    unmeasured: Bool[np.ndarray, "A R"]
    """Whether a rollout was truncated while rewards still counted, so that its return is unknown."""
    picture: Shaped[np.ndarray, "H W 3"] | None = None


class Player:
    """An agent's greedy policy, its estimates and the rewards as it sees them."""

    def __init__(self, agent: Agent) -> None:
        self.agent, self.config = agent, agent.config
        self.network, self.device, self.unit = agent.networks.evaluated, agent.networks.device, agent.unit
        self.clip = self.config.replay.reward_clip or math.inf
        self._known: dict[bytes, int] = {}

    @property
    def horizon(self) -> int:
        """The number of steps after which rewards count less than `NEGLIGIBLE`, and at most `LONGEST_STEPS`."""
        gamma = self.config.gamma
        fades = gamma < 1 and (gamma == 0 or math.log(NEGLIGIBLE) / math.log(gamma) < LONGEST_STEPS)
        return LONGEST_STEPS if not fades else 1 if gamma == 0 else math.ceil(math.log(NEGLIGIBLE) / math.log(gamma))

    def greedy(
        self, stacks: Shaped[np.ndarray, "B S *frame"], masks: Bool[np.ndarray, "B A"] | None
    ) -> Int[np.ndarray, " B"]:
        """Return the agent's actions; an observation that came up before has the same action again."""
        keys = [
            stack.tobytes() if masks is None else stack.tobytes() + masks[row].tobytes()
            for row, stack in enumerate(stacks)
        ]
        new = list({key: row for row, key in enumerate(keys) if key not in self._known}.values())
        if new:
            chosen = self.agent.networks.evaluation_policy.best(
                stacks[new], None, None if masks is None else masks[new]
            )
            if len(self._known) > KEPT_DECISIONS:
                kept = {key: self._known[key] for key in keys if key in self._known}
                self._known = kept
            self._known |= {keys[row]: int(action) for row, action in zip(new, chosen, strict=True)}
        return np.array([self._known[key] for key in keys], np.int64)

    @torch.no_grad()
    def value(self, stack: Shaped[np.ndarray, "S *frame"], mask: Bool[np.ndarray, " A"] | None) -> float:
        """Return the mean return that the agent expects of its action."""
        batch = torch.from_numpy(stack[None]).to(self.device)
        values = self.network.predict_values(batch, self.network.fractions(Role.ACT, 1, None))[0].cpu().numpy()
        return float((values if mask is None else values[mask]).max()) * self.unit

    @torch.no_grad()
    def distributions(self, stacks: Shaped[np.ndarray, "B S *frame"]) -> Distribution:
        """Return the learned distributions of all actions, in raw rewards."""
        batch = torch.from_numpy(stacks).to(self.device)
        view = self.network.predict(batch, self.network.fractions(Role.ACT, len(batch), None))
        scale, shift = (torch.full(view.batch_shape, number, device=self.device) for number in (self.unit, 0.0))
        return view.affine(scale, shift)


def visit(player: Player, snapshots: Snapshots, states: int, seed: int) -> list[Visit]:
    """Play whole episodes as in an evaluation, and take up to `STATES_PER_EPISODE` of each, all equally likely."""
    rng, game, episode = numpy_stream(seed, "visits"), snapshots.new_game(), 0
    visits: list[Visit] = []
    try:
        while len(visits) < states:
            wanted = min(STATES_PER_EPISODE, states - len(visits))
            visits += _episode(player, snapshots, game, wanted, episode, rng)
            episode += 1
    except EnvironmentFault:
        raise
    except Exception as error:  # third-party code may raise anything
        raise EnvironmentFault(f"{player.config.env.id}: it raised {in_one_line(error)}") from error
    finally:
        game.close()
    return visits


def _episode(
    player: Player, snapshots: Snapshots, game: Game, wanted: int, episode: int, rng: np.random.Generator
) -> list[Visit]:
    evaluation = player.config.evaluation
    limit = min(snapshots.limit_steps or math.inf, evaluation.episode_cap_steps)
    seen = game.reset(seed=int(rng.integers(2**31)))
    stack = first_stack(player, seen)
    kept: list[Visit] = []
    step = 0
    while not seen.over and step < limit:
        place = step if step < wanted else int(rng.integers(step + 1))  # each state so far is kept equally often
        if place < wanted:
            taken = Visit(snapshots.save(game), stack.copy(), seen.mask, episode, step, game.picture())
            kept[place : place + 1] = [taken]
        masks = None if seen.mask is None else seen.mask[None]
        if rng.random() < evaluation.epsilon:
            action = int(random_actions(rng, 1, player.agent.actions, masks)[0])
        else:
            action = int(player.greedy(stack[None], masks)[0])
        seen = game.step(action)
        stack = next_stack(stack, seen)
        step += 1
    return sorted(kept, key=lambda visit: visit.step)


def first_stack(player: Player, seen: Seen) -> Shaped[np.ndarray, "S *frame"]:
    """Return the observation at the start of an episode: empty frames before the first one."""
    stack = np.zeros((player.config.env.frame_stack, *seen.frame.shape), seen.frame.dtype)
    stack[-1] = seen.frame
    return stack


def next_stack(stack: Shaped[np.ndarray, "S *frame"], seen: Seen) -> Shaped[np.ndarray, "S *frame"]:
    """Return the observation after a step."""
    return np.concatenate([stack[1:], seen.frame[None]])


@dataclass
class _Rollout:
    """A rollout in play."""

    place: tuple[int, int, int]
    """Number of the state, of the action among those audited, and of the rollout."""
    game: Game
    stack: np.ndarray
    mask: np.ndarray | None
    total: float = 0.0
    discount: float = 1.0
    steps: int = 0
    unmeasured: bool = False


def audit_states(
    player: Player,
    snapshots: Snapshots,
    visits: Sequence[Visit],
    *,
    rollouts: int,
    actions: ActionChoice = "all",
    seed: int = 0,
    beyond_truncation: bool = False,
    on_rollout: Callable[[], None] = lambda: None,
) -> list[StateAudit]:
    """Compare what an agent claims on states with the returns that it earns from there.

    A rollout takes the audited action, then follows the agent's greedy policy with new randomness. It ends with the
    episode, or when rewards no longer count; the agent's own estimate, with a weight below `NEGLIGIBLE`, stands for the
    rest. A truncation by the environment itself leaves the return unmeasured, unless `beyond_truncation` says that the
    environment can go on.
    """
    stacks = np.stack([visit.stack for visit in visits])
    masks = None if visits[0].mask is None else np.stack([visit.mask for visit in visits if visit.mask is not None])
    greedy = player.greedy(stacks, masks)
    chosen = [
        (int(best),) if actions == "greedy" else tuple(map(int, np.flatnonzero(_allowed(visit, player))))
        for visit, best in zip(visits, greedy, strict=True)
    ]
    shapes = [(len(some), rollouts) for some in chosen]
    returns, steps = [np.zeros(shape) for shape in shapes], [np.zeros(shape, np.int64) for shape in shapes]
    unmeasured = [np.zeros(shape, np.bool_) for shape in shapes]
    starts = (
        (state, action, rollout)
        for state, (some, _) in enumerate(shapes)
        for action in range(some)
        for rollout in range(rollouts)
    )
    try:
        for done in _play(player, snapshots, visits, chosen, starts, seed, beyond_truncation):
            state, action, rollout = done.place
            returns[state][action, rollout], steps[state][action, rollout] = done.total, done.steps
            unmeasured[state][action, rollout] = done.unmeasured
            on_rollout()
    except EnvironmentFault:
        raise
    except Exception as error:  # third-party code may raise anything
        raise EnvironmentFault(f"{player.config.env.id}, in a rollout: it raised {in_one_line(error)}") from error
    learned = player.distributions(stacks)
    crossing = learned.crossing().cpu().numpy().astype(np.float64)
    pieces = learned.ordered().segments()
    arrays = [part.expand(*learned.batch_shape, -1).cpu().numpy().astype(np.float64) for part in pieces]
    return [
        StateAudit(
            episode=visit.episode,
            step=visit.step,
            greedy=int(greedy[row]),
            actions=chosen[row],
            curves=tuple(Curve(*(array[row, action] for array in arrays)) for action in chosen[row]),
            crossing=crossing[row, list(chosen[row])],
            returns=returns[row],
            steps=steps[row],
            unmeasured=unmeasured[row],
            picture=visit.picture,
        )
        for row, visit in enumerate(visits)
    ]


def _allowed(visit: Visit, player: Player) -> Bool[np.ndarray, " A"]:
    return np.ones(player.agent.actions, np.bool_) if visit.mask is None else visit.mask


def _play(
    player: Player,
    snapshots: Snapshots,
    visits: Sequence[Visit],
    chosen: Sequence[tuple[int, ...]],
    starts: Iterator[tuple[int, int, int]],
    seed: int,
    beyond_truncation: bool,
) -> Iterator[_Rollout]:
    """Step many rollouts together, so that the network chooses their actions in batches; yield those that ended."""
    lanes: list[_Rollout | None] = [None] * snapshots.lanes
    while True:
        for lane, held in enumerate(lanes):
            if held is None and (place := next(starts, None)) is not None:
                visit = visits[place[0]]
                # The seed names the rollout, not its lane, so the result does not depend on the number of lanes.
                own = int(np.random.SeedSequence((seed, *place)).generate_state(1, np.uint64)[0] >> np.uint64(1))
                game = snapshots.resume(visit.saved, own, lane)
                lanes[lane] = _Rollout(place, game, visit.stack, visit.mask)
        active = [held for held in lanes if held is not None]
        if not active:
            return
        for each, action in zip(active, _decisions(player, active, chosen), strict=True):
            _advance(player, each, action, beyond_truncation)
        for lane, held in enumerate(lanes):
            if held is not None and held.discount == 0:
                lanes[lane] = None
                yield held


def _decisions(player: Player, active: Sequence[_Rollout], chosen: Sequence[tuple[int, ...]]) -> list[int]:
    """Return the audited action of rollouts that begin, and the agent's greedy action of the others."""
    later = [rollout for rollout in active if rollout.steps]
    greedy: Iterator[np.integer] = iter(())
    if later:
        masks = None if later[0].mask is None else np.stack([each.mask for each in later if each.mask is not None])
        greedy = iter(player.greedy(np.stack([each.stack for each in later]), masks))
    return [int(next(greedy)) if each.steps else chosen[each.place[0]][each.place[1]] for each in active]


def _advance(player: Player, rollout: _Rollout, action: int, beyond_truncation: bool) -> None:
    """Take a step; a discount of 0 marks the end of the rollout."""
    seen = rollout.game.step(action)
    rollout.total += rollout.discount * min(max(seen.reward, -player.clip), player.clip)
    rollout.discount *= player.config.gamma
    rollout.steps += 1
    rollout.stack, rollout.mask = next_stack(rollout.stack, seen), seen.mask
    if seen.ended:
        rollout.discount = 0.0
    elif rollout.steps >= player.horizon or (seen.truncated and not beyond_truncation):
        rollout.unmeasured = rollout.discount > NEGLIGIBLE
        if not rollout.unmeasured:
            rollout.total += rollout.discount * player.value(rollout.stack, rollout.mask)
        rollout.discount = 0.0


def check_learns_distribution(agent: Agent) -> None:
    """Raise for an agent that learns expected returns only."""
    if not agent.config.head.has_spread:
        raise ConfigError(
            f"the agent is {agent.config.preset}, whose head learns mean returns only; an audit needs distributions."
        )
