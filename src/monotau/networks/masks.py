"""Masks of allowed actions, applied to numbers that a network or an explorer has for every action."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def allowed_scores(scores: Float[Tensor, "B A"], masks: Bool[Tensor, "B A"] | None) -> Float[Tensor, "B A"]:
    """Return the scores with -inf for actions that are not allowed, so that a maximum never selects them."""
    return scores if masks is None else scores.masked_fill(~masks, -torch.inf)


def of_allowed(values: Float[Tensor, "B A"], masks: Bool[Tensor, "B A"] | None) -> Float[Tensor, "..."]:
    """Return the values of allowed actions only, for statistics over them."""
    return values if masks is None else values[masks]
