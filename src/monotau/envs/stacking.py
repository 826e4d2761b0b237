"""Brings observations that a caller passes, as single frames or whole stacks, to the shape that networks take."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Shaped

from monotau.envs.checked import lossless, numbers, wrong_dtype
from monotau.envs.spec import ObservationSpec, Part
from monotau.errors import ConfigError, EnvironmentFault

TAKEN = {"f": "biuf", "i": "iuf", "u": "biu", "b": "biu"}
"""The numeric kinds of dtypes from which a caller's observations are taken, by the kind of the stored dtype."""


def stack_frames(
    observation: Any, spec: ObservationSpec, stack: int, state: np.ndarray | None = None, episode_start: Any = None
) -> tuple[Shaped[np.ndarray, "B S *frame"], bool, np.ndarray | None]:
    """Convert one observation or a batch, of single frames or whole stacks, to the shape `[B, S, *frame]`.

    Single frames are added to the stacks in `state`, unless an episode starts. The second result is whether one
    observation was given, and the third is the state for the next call, None unless single frames are stacked.
    """
    shape = spec.shape
    raw = packed(observation, spec) if spec.parts else _blaming_the_caller(lambda: _held(observation, spec))
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
    """Return observations in their stored format."""
    return _blaming_the_caller(lambda: spec.frame(observations))


def _held(observation: Any, spec: ObservationSpec) -> np.ndarray:
    """Return what a caller passes as an array whose values the stored format can hold.

    A caller may use wider types than an environment, as lists have, and whole floats for discrete states.
    """
    array, stored = numbers(observation), np.dtype(spec.dtype)
    if array.dtype.kind not in TAKEN[stored.kind]:
        raise wrong_dtype(array, stored)
    return array if spec.dtype == "float32" else lossless(array, stored)  # what float32 cannot hold is refused later


def _blaming_the_caller(read: Callable[[], np.ndarray]) -> np.ndarray:
    """Return what a function reads from an observation; it is the caller's mistake if that is impossible."""
    try:
        return read()
    except EnvironmentFault as fault:
        raise ConfigError(f"the observation is invalid. {fault}") from None


def packed(observation: Any, spec: ObservationSpec) -> Shaped[np.ndarray, "*batch bytes"]:
    """Return an observation with parts, or a batch or stack of them, as frames of bytes."""
    leading: tuple[int, ...] = ()

    def read(part: Part) -> np.ndarray:
        """Return the array of a part with one axis for all observations; `pack` refuses other shapes."""
        nonlocal leading
        array = _held(part.of(observation), part.spec)
        if part is spec.parts[0]:  # which `pack` reads first
            leading = array.shape[: max(array.ndim - len(part.spec.shape), 0)]
        return array.reshape(-1, *array.shape[len(leading) :]) if array.shape[: len(leading)] == leading else array

    frames = _blaming_the_caller(lambda: spec.pack(read))
    return frames.reshape(*leading, -1)
