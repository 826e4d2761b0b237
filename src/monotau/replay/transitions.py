"""What goes into a replay, one vector step at a time, and what comes out of it, one batch at a time."""

from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64, Integer, Shaped
from torch import Tensor

from monotau.networks.devices import sent


@final
@dataclass(frozen=True)
class Steps:
    """One step of every lane: E lanes, one environment each.

    `terminated` may be a life lost, after which the episode goes on: frames are stacked back to `first`, rewards are
    folded up to `terminated` or `truncated`. Where both are set, `terminated` wins.
    """

    frames: Shaped[np.ndarray, "E *frame"]
    """The newest frame of each observation acted upon."""
    first: Bool[np.ndarray, "E"]
    """This frame starts an episode."""
    actions: Integer[np.ndarray, "E"]
    rewards: Float[np.ndarray, "E"]
    """As the environment gave them; never NaN."""
    terminated: Bool[np.ndarray, "E"]
    truncated: Bool[np.ndarray, "E"]
    final_frames: Shaped[np.ndarray, "E *frame"]
    """The frame after the step; read only where the episode was truncated."""


@final
@dataclass(frozen=True)
class Written:
    """Which slots of a replay were written to."""

    steps: Int64[np.ndarray, "W"]
    """These hold steps now."""
    finals: Int64[np.ndarray, "F"]
    """These hold the frame after a truncated episode's last step, and no step."""


@final
@dataclass(frozen=True)
class Batch:
    """B transitions, with gamma, the end of the episode and the n steps folded into `rewards` and `discounts`."""

    observations: Shaped[Tensor, "B S *frame"]
    """Stacks of S frames, the newest last, zeros before the episode's first."""
    actions: Int64[Tensor, "B"]
    rewards: Float32[Tensor, "B"]
    """Discounted sum over the m steps of the transition."""
    discounts: Float32[Tensor, "B"]
    """gamma^m, or 0 where the episode terminated."""
    next_observations: Shaped[Tensor, "B S *frame"]
    """The stacks m steps later; where `discounts` is 0 because of termination, `observations` once more."""
    weights: Float32[Tensor, "B"]
    """What each transition's loss is multiplied by."""
    index: Int64[np.ndarray, "B"]
    """Which slots of the ring these are. Only a replay reads it, so it stays in host memory."""

    def to(self, device: torch.device) -> "Batch":
        """Return a batch in host memory with its tensors on `device`: three transfers, one for each kind of them."""
        if device.type == "cpu":
            return self
        observations, next_observations = sent((self.observations, self.next_observations), device)
        rewards, discounts, weights = sent((self.rewards, self.discounts, self.weights), device)
        (actions,) = sent((self.actions,), device)
        return replace(
            self,
            observations=observations,
            actions=actions,
            rewards=rewards,
            discounts=discounts,
            next_observations=next_observations,
            weights=weights,
        )
