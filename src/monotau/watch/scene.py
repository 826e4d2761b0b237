"""What a viewer sees of an agent: it plays an environment step by step, and every state comes with its predictions.

The page and the videos draw the same moments. All numbers are in raw rewards.
"""

from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped, UInt8

from monotau.agent import Agent
from monotau.distributions import MEAN, Risk
from monotau.envs.action_names import action_names
from monotau.errors import ConfigError
from monotau.learning.policy import random_actions
from monotau.seeding import numpy_stream
from monotau.watch.world import LARGEST_SEED, Arrival, make_world

FRACTIONS = 64
"""Number of quantiles that are shown of every action, at midpoints of equal parts of (0, 1)."""
TAUS = (np.arange(FRACTIONS) + 0.5) / FRACTIONS
BINS = 96
"""Number of points of a density."""
CVAR_ALPHA = 0.1
"""Share of the worst returns whose mean is shown, unless the agent acts on another one."""
INTERVAL = (0.05, 0.95)
"""Quantiles that bound the predicted interval."""


@final
@dataclass(frozen=True)
class Thought:
    """What the agent predicts in a state, and which action it takes."""

    quantiles: Float[np.ndarray, "A M"]
    means: Float[np.ndarray, " A"]
    cvars: Float[np.ndarray, " A"]
    cvar_alpha: float
    scores: Float[np.ndarray, " A"]
    """The risk measure that decides."""
    bonuses: Float[np.ndarray, " A"] | None
    """DPE's bonuses before their weight; None if the explorer has none."""
    allowed: Bool[np.ndarray, " A"] | None
    best: int
    """The allowed action with the highest score."""
    action: int
    """The action that is taken: the best one, or a random one with probability epsilon."""


@final
@dataclass(frozen=True)
class Prediction:
    """The return of the chosen action as predicted at the start of an episode."""

    mean: float
    quantiles: Float[np.ndarray, " M"]

    @property
    def interval(self) -> tuple[float, float]:
        """The central 90 %."""
        low, high = np.interp(INTERVAL, TAUS, self.quantiles)
        return float(low), float(high)

    def share_below(self, value: float) -> float:
        """Return the predicted probability of a return up to `value`."""
        return float(np.searchsorted(self.quantiles, value, side="right") / FRACTIONS)


@final
@dataclass(frozen=True)
class Moment:
    """One state of an episode, as it is shown."""

    seed: int
    step: int
    picture: UInt8[np.ndarray, "H W 3"] | None
    thought: Thought | None
    """None after the last step."""
    reward: float
    """Reward of the step that led here."""
    score: float
    """Sum of the rewards so far."""
    discounted: float
    """Return so far as the agent learns it: rewards clipped as in training, discounted to the start."""
    expected: float
    """That return plus what is predicted for the rest of the episode."""
    start: Prediction
    ended: str = ""
    """`terminated` or `truncated` after the last step."""


@final
class Player:
    """Plays episodes with an agent; `agent`, `epsilon` and `risk` may be changed at any time."""

    def __init__(self, agent: Agent, *, epsilon: float | None = None, risk: Risk = MEAN) -> None:
        self.agent, self.risk = agent, risk
        self.epsilon = agent.config.evaluation.epsilon if epsilon is None else epsilon
        envs = agent.env_factory()
        self.world, self.action_names = make_world(envs), action_names(envs)
        self._arrival: Arrival | None = None
        self._moment: Moment | None = None

    @property
    def stack(self) -> Shaped[np.ndarray, "S *frame"]:
        """The observation of the current state."""
        observation: np.ndarray = self._stack[0]
        return observation

    def start(self, seed: int) -> Moment:
        """Start the episode of a seed."""
        if not 0 <= seed <= LARGEST_SEED:
            raise ConfigError(f"the seed is {seed}, but must be from 0 to {LARGEST_SEED}.")
        self._rng = numpy_stream(seed, "watch")
        self._arrival = self.world.reset(seed)
        stack, frame = self.agent.config.env.frame_stack, self._arrival.frame
        self._stack = np.zeros((1, stack, *frame.shape), frame.dtype)
        self._stack[0, -1] = frame
        self._draw_luck()
        thought = self._think()
        start = Prediction(float(thought.means[thought.action]), np.sort(thought.quantiles[thought.action]))
        self._moment = Moment(seed, 0, self.world.picture(), thought, 0.0, 0.0, 0.0, start.mean, start)
        return self._moment

    def advance(self) -> Moment:
        """Take the action of the current moment, and return the next one."""
        before = self._moment
        if before is None or before.thought is None:
            raise ValueError("there is no episode to continue; start one first.")
        arrival = self._arrival = self.world.step(before.thought.action)
        self._stack = np.roll(self._stack, -1, axis=1)
        self._stack[0, -1] = arrival.frame
        config, step = self.agent.config, before.step + 1
        clip = config.replay.reward_clip
        learned = float(np.clip(arrival.reward, -clip, clip)) if clip else arrival.reward
        discounted = before.discounted + config.gamma**before.step * learned
        ended = "terminated" if arrival.terminated else "truncated" if arrival.truncated else ""
        self._draw_luck()
        # A state after the time limit still has a value; one after the end has none.
        last = self._think() if not arrival.terminated else None
        rest = config.gamma**step * float(last.means[last.action]) if last else 0.0
        self._moment = Moment(
            before.seed,
            step,
            self.world.picture(),
            None if ended else last,
            arrival.reward,
            before.score + arrival.reward,
            discounted,
            discounted + rest,
            before.start,
            ended,
        )
        return self._moment

    def think_again(self) -> Moment:
        """Return the current moment with the predictions and the choice of the present agent, risk and epsilon."""
        moment = self._moment
        if moment is None:
            raise ValueError("there is no episode to think about; start one first.")
        if moment.thought is not None:
            self._moment = moment = replace(moment, thought=self._think())
        return moment

    def close(self) -> None:
        """Close the environment."""
        self.world.close()

    def _draw_luck(self) -> None:
        """Draw whether the next action is random, and which one, so that thinking again does not draw again."""
        mask = None if self._arrival is None or self._arrival.mask is None else self._arrival.mask[None]
        self._luck = float(self._rng.random()), int(random_actions(self._rng, 1, self.agent.actions, mask)[0])

    @torch.no_grad()
    def _think(self) -> Thought:
        networks = self.agent.networks
        allowed = None if self._arrival is None else self._arrival.mask
        returns = networks.returns(self._stack)
        quantiles = networks.quantiles(self._stack, torch.from_numpy(TAUS).float())[0].cpu().numpy()
        alpha = self.risk.alpha if self.risk.kind == "cvar" and self.risk.alpha else CVAR_ALPHA
        scores = self.risk.of(returns)[0].cpu().numpy()
        best = int(np.where(allowed, scores, -np.inf).argmax() if allowed is not None else scores.argmax())
        chance, drawn = self._luck
        return Thought(
            quantiles=quantiles,
            means=returns.mean()[0].cpu().numpy(),
            cvars=returns.cvar(alpha)[0].cpu().numpy(),
            cvar_alpha=alpha,
            scores=scores,
            bonuses=self._bonuses(),
            allowed=allowed,
            best=best,
            action=drawn if chance < self.epsilon else best,
        )

    def _bonuses(self) -> Float[np.ndarray, " A"] | None:
        try:
            return self.agent.networks.bonus(self._stack)[0].cpu().numpy()
        except ConfigError:  # the explorer is epsilon-greedy
            return None


def densities(quantiles: Float[np.ndarray, "A M"]) -> tuple[float, float, Float[np.ndarray, "A bins"]]:
    """Return the ends of an axis and the densities of all actions on it, as probability per bin; each sums to 1.

    The mass between neighbouring quantiles is spread evenly, and then smoothed by a kernel of three bins: the steps of
    heads that learn a few atoms would otherwise be spikes without width.
    """
    ordered = np.sort(quantiles, axis=1).astype(np.float64)
    low, high = float(ordered.min()), float(ordered.max())
    margin = 0.12 * (high - low) or max(abs(high), 1.0) * 0.1
    low, high = low - margin, high + margin
    edges = np.linspace(low, high, BINS + 1)
    # Ties are moved apart by less than a bin, because interpolation needs rising values.
    rising = ordered + (high - low) / BINS * 1e-3 * TAUS
    masses = np.stack([np.diff(np.interp(edges, row, TAUS, left=0.0, right=1.0)) for row in rising])
    offsets = np.arange(-6, 7)
    kernel = np.exp(-((offsets / 2.0) ** 2) / 2)
    smooth = np.stack([np.convolve(row, kernel, mode="same") for row in masses])
    return low, high, smooth / smooth.sum(axis=1, keepdims=True)
