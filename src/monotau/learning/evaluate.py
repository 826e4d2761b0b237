"""Evaluation: complete episodes in separate environments, scored by raw rewards."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from monotau.config.schema import EvaluationConfig
from monotau.envs.config import EnvMaker
from monotau.learning.rollout import Rollout
from monotau.networks import Network

Act = Callable[[Shaped[np.ndarray, "E S *frame"], Bool[np.ndarray, "E A"] | None], Int[np.ndarray, " E"]]
"""Chooses an action for each observation, given the masks of allowed actions, if the environments have them."""

KEPT_STATES = 64
"""Maximum number of states that an evaluation keeps, to inspect the distributions predicted there."""


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths of finished episodes, and a sample of their states."""

    returns: list[float]
    lengths: list[int]
    states: Shaped[np.ndarray, "n S *frame"] = field(repr=False)

    def line(self) -> dict[str, float | int | str | None]:
        """Return the fields of a log line of kind eval."""
        return {
            "return_mean": float(np.mean(self.returns)),
            "return_std": float(np.std(self.returns)),
            "return_min": float(np.min(self.returns)),
            "return_max": float(np.max(self.returns)),
            "length_mean": float(np.mean(self.lengths)),
            "episodes": len(self.returns),
        }


def evaluate(
    envs: EnvMaker,
    act: Act,
    config: EvaluationConfig,
    *,
    stack: int,
    seed: int,
    on_episode: Callable[[int, float], None] = lambda done, share: None,
) -> Evaluation:
    """Play at least the configured episodes and steps, an equal share of them in each environment.

    After each episode, `on_episode` receives the number of episodes so far and the share of the work that is done.
    An episode that reaches the cap is cut and counts with its return so far; the next one starts with a normal reset.
    """
    lanes = min(config.num_envs, config.episodes) if envs.reusable else 1
    # Shares differ by at most one; an environment that has played its share keeps stepping but no longer counts.
    episode_shares = [config.episodes // lanes + (lane < config.episodes % lanes) for lane in range(lanes)]
    step_share = math.ceil(config.steps / lanes)
    rollout = Rollout(envs, lanes, stack, seed)
    returns: list[list[float]] = [[] for _ in range(lanes)]
    lengths: list[list[int]] = [[] for _ in range(lanes)]
    states = _Sample()

    def done(lane: int) -> float:
        """Return the share of a lane's episodes and steps that it has played."""
        of_steps = sum(lengths[lane]) / step_share if step_share else 1.0
        return min(len(returns[lane]) / episode_shares[lane], of_steps, 1.0)

    try:
        while any(done(lane) < 1 for lane in range(lanes)):
            states.offer(rollout.observations[0])
            outcome = rollout.step(act(rollout.observations, rollout.masks))
            for lane, episode_return, length in outcome.returns + rollout.cut_beyond(config.episode_cap_steps):
                if done(lane) < 1:
                    returns[lane].append(episode_return)
                    lengths[lane].append(length)
                    on_episode(sum(map(len, returns)), sum(map(done, range(lanes))) / lanes)
    finally:
        rollout.close()
    return Evaluation(list(chain(*returns)), list(chain(*lengths)), states.stacked())


class _Sample:
    """Keeps at most KEPT_STATES evenly spaced states of a sequence of unknown length."""

    def __init__(self) -> None:
        self.kept: list[np.ndarray] = []
        self.stride, self.count = 1, 0

    def offer(self, state: np.ndarray) -> None:
        if self.count % self.stride == 0:
            if len(self.kept) == KEPT_STATES:
                self.kept, self.stride = self.kept[::2], self.stride * 2
            if self.count % self.stride == 0:
                self.kept.append(state.copy())
        self.count += 1

    def stacked(self) -> np.ndarray:
        return np.stack(self.kept)


def fine_crossing(network: Network, states: Shaped[np.ndarray, "n S *frame"], points: int = 1001) -> float:
    """Return the share of decreases among the changes between finely spaced quantiles, over states and actions.

    Only changes count, because a step function is constant between most neighbouring fractions.
    """
    device = next(network.parameters()).device
    taus = torch.linspace(0, 1, points, device=device)
    decreases, changes = 0, 0
    for state in states:  # one at a time: a sampling head makes `points` passes for each
        curves = network.quantiles(torch.from_numpy(state[None]).to(device), taus)
        decreased, changed = falls_and_changes(curves)
        decreases, changes = decreases + decreased, changes + changed
    return decreases / max(changes, 1)


def falls_and_changes(curves: Float[Tensor, "... M"]) -> tuple[int, int]:
    """Count the neighbouring quantiles that decrease or are NaN, and those that differ at all."""
    steps = curves.diff(dim=-1)
    return int((~(steps >= 0)).sum()), int((steps != 0).sum())
