"""The input of a replay, one vector step at a time, and its output, one batch at a time."""

from dataclasses import dataclass, replace
from typing import NamedTuple, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64, Integer, Shaped
from torch import Tensor

from monotau.networks.devices import sent


@final
@dataclass(frozen=True)
class Steps:
    """One step of every lane: E lanes, one environment each.

    `terminated` may be a lost life, after which the episode continues: frames are stacked back to `first`, and rewards
    are summed up to `terminated` or `truncated`. If both are set, `terminated` takes precedence.
    """

    frames: Shaped[np.ndarray, "E *frame"]
    """The newest frame of the observation in which the action was taken."""
    first: Bool[np.ndarray, "E"]
    """Whether the frame starts an episode."""
    actions: Integer[np.ndarray, "E"]
    rewards: Float[np.ndarray, "E"]
    """Raw rewards of the environment; never NaN."""
    terminated: Bool[np.ndarray, "E"]
    truncated: Bool[np.ndarray, "E"]
    final_frames: Shaped[np.ndarray, "E *frame"]
    """The frame after the step; used only if the episode was truncated."""
    random: Bool[np.ndarray, "E"] | None = None
    """Whether the action was random; None if no action was."""
    masks: Bool[np.ndarray, "E A"] | None = None
    """The actions that were allowed; None for environments without masks."""
    final_masks: Bool[np.ndarray, "E A"] | None = None
    """The actions allowed after the step; used only if the episode was truncated."""


@final
class Newest(NamedTuple):
    """The newest frames of some lanes, at which their unfinished episodes can be truncated."""

    frames: Shaped[np.ndarray, "E *frame"]
    masks: Bool[np.ndarray, "E A"] | None = None
    """The actions allowed there; None for environments without masks."""


@final
@dataclass(frozen=True)
class Written:
    """The slots of a replay that were written to."""

    steps: Int64[np.ndarray, "W"]
    """Slots that now hold steps."""
    finals: Int64[np.ndarray, "F"]
    """Slots that hold only the frame after a truncated episode's last step."""


@final
@dataclass(frozen=True)
class Batch:
    """B n-step transitions; `rewards` and `discounts` account for gamma and the ends of episodes."""

    observations: Shaped[Tensor, "B S *frame"]
    """Stacks of S frames, the newest last, padded with zeros before the episode's first."""
    actions: Int64[Tensor, "B"]
    rewards: Float32[Tensor, "B"]
    """Discounted sum over the m steps of the transition."""
    discounts: Float32[Tensor, "B"]
    """gamma^m, or 0 where the episode terminated."""
    next_observations: Shaped[Tensor, "B S *frame"]
    """The stacks m steps later. After a termination, where `discounts` is 0: what the lane saw next, such as the start
    of another episode, or `observations` again if nothing is stored yet."""
    weights: Float32[Tensor, "B"]
    """Importance weight of each transition's loss."""
    index: Int64[np.ndarray, "B"]
    """Slots of the ring. Only the replay uses them, so they stay in host memory."""
    masks: Bool[Tensor, "B A"] | None = None
    """The actions allowed in `observations`; None for environments without masks."""
    next_masks: Bool[Tensor, "B A"] | None = None
    """The actions allowed in `next_observations`."""

    def to(self, device: torch.device) -> "Batch":
        """Move the tensors of a batch from host memory to `device`, in one transfer for each type."""
        if device.type == "cpu":
            return self
        observations, next_observations = sent((self.observations, self.next_observations), device)
        rewards, discounts, weights = sent((self.rewards, self.discounts, self.weights), device)
        (actions,) = sent((self.actions,), device)
        masks, next_masks = self.masks, self.next_masks
        if masks is not None and next_masks is not None:
            masks, next_masks = sent((masks, next_masks), device)
        return replace(
            self,
            observations=observations,
            actions=actions,
            rewards=rewards,
            discounts=discounts,
            next_observations=next_observations,
            weights=weights,
            masks=masks,
            next_masks=next_masks,
        )
