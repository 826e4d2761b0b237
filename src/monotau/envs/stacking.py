"""Brings observations that a caller passes, as single frames or whole stacks, to the shape that networks take."""

from typing import Any

import numpy as np
from jaxtyping import Shaped

from monotau.envs.spec import ObservationSpec, Part
from monotau.errors import ConfigError, EnvironmentFault


def stack_frames(
    observation: Any, spec: ObservationSpec, stack: int, state: np.ndarray | None = None, episode_start: Any = None
) -> tuple[Shaped[np.ndarray, "B S *frame"], bool, np.ndarray | None]:
    """Convert one observation or a batch, of single frames or whole stacks, to the shape `[B, S, *frame]`.

    Single frames are added to the stacks in `state`, unless an episode starts. The second result is whether one
    observation was given, and the third is the state for the next call, None unless single frames are stacked.
    """
    shape = spec.shape
    raw = packed(observation, spec) if spec.parts else np.asarray(observation)
    axes = len(shape)
    # A batch of S frames has the shape of one stack; `state` or `episode_start` mark it as a batch.
    batched = raw.ndim == axes + 2 or state is not None or episode_start is not None
    if stack > 1 and raw.shape[-axes - 1 :] == (stack, *shape) and raw.ndim == axes + 1 + batched:
        whole = raw if batched else raw[None]
        flat = _stored(whole.reshape(-1, *shape), spec)
        return flat.reshape(whole.shape), not batched, None
    single = raw.ndim == axes
    if raw.shape[raw.ndim - axes :] != shape or raw.ndim not in (axes, axes + 1):
        raise ConfigError(
            f"the observation has shape {raw.shape}, but must be {shape}, or a batch of them"
            + (f", or stacks of {stack}" if stack > 1 else "")
            + "."
        )
    frames = _stored(raw[None] if single else raw, spec)
    stacks = np.zeros((len(frames), stack, *shape), dtype=spec.dtype)
    if stack > 1 and state is not None:
        if state.shape != stacks.shape:
            raise ConfigError(
                f"state has shape {state.shape}, but must be {stacks.shape}, as predict returned it for the previous "
                "observations."
            )
        starts = np.asarray(False if episode_start is None else episode_start, dtype=bool)
        continuing = ~np.broadcast_to(starts, len(frames))
        stacks[continuing, :-1] = state[continuing, 1:]
    stacks[:, -1] = frames
    return stacks, single, (stacks if stack > 1 else None)


def _stored(observations: Shaped[np.ndarray, "B *frame"], spec: ObservationSpec) -> Shaped[np.ndarray, "B *frame"]:
    """Return observations in their stored format; it is the caller's mistake if that is impossible."""
    try:
        return spec.frame(observations)
    except EnvironmentFault as fault:
        raise ConfigError(f"the observation is invalid. {fault}") from None


def packed(observation: Any, spec: ObservationSpec) -> Shaped[np.ndarray, "*batch bytes"]:
    """Return an observation with parts, or a batch or stack of them, as frames of bytes."""
    first = spec.parts[0]

    def read(part: Part) -> np.ndarray:
        """Return the array of a part with one axis for all observations; `pack` refuses other shapes."""
        array = np.asarray(part.of(observation))
        return array.reshape(-1, *array.shape[len(leading) :]) if array.shape[: len(leading)] == leading else array

    try:
        axes = np.ndim(first.of(observation)) - len(first.spec.shape)
        leading = np.shape(first.of(observation))[: max(axes, 0)]
        frames = spec.pack(read)
    except EnvironmentFault as fault:
        raise ConfigError(f"the observation is invalid. {fault}") from None
    return frames.reshape(*leading, -1)
