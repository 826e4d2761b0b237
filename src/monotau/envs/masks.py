"""Masks of allowed actions: how environments offer them, and checks of what they return.

A mask has one value for each action; for a MultiDiscrete space, one for each choice of its first axis, then of the
second, and so on, as in sb3-contrib. It is `info["action_mask"]` of `reset` and `step`, as in Gymnasium's Taxi, or the
result of a method `action_masks()`, as in sb3-contrib.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from jaxtyping import Bool

from monotau.errors import EnvironmentFault, brief

ACTION_MASK = "action_mask"
METHOD = "action_masks"

MaskUse = Literal["auto", "use", "ignore"]


def mask_method(env: gym.Env) -> Callable[[], Any] | None:
    """Return the method `action_masks` of an environment or of one of its wrappers; None if there is none."""
    method = env.get_wrapper_attr(METHOD) if env.has_wrapper_attr(METHOD) else None
    return method if callable(method) else None


def offers_masks(env: gym.Env) -> bool:
    """Whether an environment offers masks, by its method or by the info of a reset."""
    try:
        if mask_method(env) is not None:
            return True
        _, info = env.reset(seed=0)
        return ACTION_MASK in info
    except Exception:  # third-party code may raise anything; the first rollout then reports it with its step
        return False


def as_masks(
    given: Any, actions: int, sizes: tuple[int, ...] = (), batch: tuple[int, ...] = ()
) -> Bool[np.ndarray, "*batch A"]:
    """Return masks as an array of booleans, and raise if they are not 0 and 1 or allow no action.

    `sizes` are those of a MultiDiscrete action space, whose combinations are allowed if all their choices are.
    """
    shape = (*batch, sum(sizes) or actions)
    try:
        array = np.asarray(given)
        valid = array.dtype.kind in "biuf" and bool(((array == 0) | (array == 1)).all())
    except Exception:  # ragged lists, and anything that third-party objects raise
        valid = False
    if not valid:
        raise EnvironmentFault(
            f"the action mask is {brief(given)}, but must be an array of true and false, or 1 and 0."
        )
    if array.shape != shape:
        each = "each action of each axis" if sizes else "each action"
        raise EnvironmentFault(f"the action mask has shape {array.shape}, but must have {shape}: one value for {each}.")
    masks = array.astype(np.bool_)
    if sizes:
        axes = np.split(masks, np.cumsum(sizes)[:-1], axis=-1)
        masks = reduce(lambda one, other: (one[..., None] & other[..., None, :]).reshape(*batch, -1), axes)
    if not masks.any(axis=-1).all():
        raise EnvironmentFault(
            "the action mask allows no action, but must allow at least one unless the episode ended."
        )
    return masks
