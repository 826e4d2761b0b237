"""Validates what an environment returns before Gymnasium converts it to arrays, which would turn None into NaN."""

import warnings
from collections.abc import Sequence
from typing import Any, final

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from monotau.envs.masks import ACTION_MASK, METHOD, as_masks, mask_method
from monotau.envs.spec import ObservationSpec, leaves
from monotau.errors import EnvironmentFault, brief, in_one_line

OF_RESET = ("observation", "info")
OF_STEP = ("observation", "reward", "terminated", "truncated", "info")
NUMBERS = "biuf"
"""Numeric kinds of numpy dtypes: boolean, signed and unsigned integer, and float."""


def name_of(env: gym.Env) -> str:
    """Return the id of an environment, or its class name if it has no id."""
    spec = env.unwrapped.spec
    return spec.id if spec else type(env.unwrapped).__name__


@final
class Checked(gym.Wrapper):
    """Raises EnvironmentFault if reset or step violate the Gymnasium API, and keeps only the action mask of `info`.

    The bounds of a Box are not checked: many environments exceed theirs, which does not harm learning.

    Observations with parts become frames of bytes, and a number takes the place of each combination of the actions of
    a MultiDiscrete space, whose sizes are `action_sizes`.
    """

    def __init__(
        self, env: gym.Env, spec: ObservationSpec, action_sizes: Sequence[int] = (), *, masked: bool | None = False
    ) -> None:
        """`masked` is whether to return masks; None raises EnvironmentFault if one appears."""
        super().__init__(env)
        self._spec, self._action_sizes, self._leaves = spec, tuple(action_sizes), dict(leaves(env.observation_space))
        self._masked = masked
        self._mask_method = mask_method(env) if masked else None
        if spec.parts:
            self.observation_space = spaces.Box(0, 255, spec.shape, np.uint8)
        if action_sizes:
            self.action_space = spaces.Discrete(int(np.prod(action_sizes)))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Start an episode; empty options, which SyncVectorEnv leaves after removing `reset_mask`, become None."""
        observation, info = _values("reset", self.env.reset(seed=seed, options=options or None), OF_RESET)
        array = self._array(observation)
        try:
            return array, self._info(info)
        except EnvironmentFault as fault:  # which may occur in a step that ends an episode
            raise EnvironmentFault(f"in reset, {fault}") from None

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Take a step; the last observation of an episode is copied.

        SyncVectorEnv returns it as `final_obs` without a copy and then resets, which overwrites it in environments that
        reuse their observation buffer.
        """
        if self._action_sizes:
            action = np.array(np.unravel_index(action, self._action_sizes))
        observation, reward, terminated, truncated, info = _values("step", self.env.step(action), OF_STEP)
        number = _as_array(reward)
        if number is None or number.ndim or number.dtype.kind not in NUMBERS:
            raise EnvironmentFault(f"the reward is {brief(reward)}, but must be one number.")
        terminated, truncated = _flag("terminated", terminated), _flag("truncated", truncated)
        info, array = self._info(info, terminated), self._array(observation)
        return array.copy() if terminated or truncated else array, float(number), terminated, truncated, info

    def close(self) -> None:
        """Close the environment."""
        close(self.env)

    def _info(self, info: Any, terminated: bool = False) -> dict[str, np.ndarray]:
        """Return the mask of allowed actions, if masks are used. Without a mask, and after the end, all are allowed."""
        if not isinstance(info, dict):
            raise EnvironmentFault(f"info is {brief(info)}, but must be a dictionary.")
        if self._masked:
            space: Any = self.action_space  # Discrete, which has n
            actions = int(space.n)
            if not terminated and ACTION_MASK in info:
                return {ACTION_MASK: as_masks(info[ACTION_MASK], actions, self._action_sizes)}
            if not terminated and self._mask_method is not None:
                return {ACTION_MASK: as_masks(self._mask_method(), actions, self._action_sizes)}
            return {ACTION_MASK: np.ones(actions, np.bool_)}
        if self._masked is None and ACTION_MASK in info:
            raise EnvironmentFault(
                f"info has an {ACTION_MASK}, but the first reset had none: return one from reset too, or set "
                f"env.{METHOD} to use or ignore."
            )
        return {}

    def _array(self, observation: Any) -> np.ndarray:
        """Return the observation as an array; if it has parts, as the bytes of a frame."""
        if not self._spec.parts:
            return checked_array(observation, self.observation_space)
        frames = self._spec.pack(lambda part: checked_array(part.of(observation), self._leaves[part.path])[None])
        return np.squeeze(frames, axis=0)


def close(env: gym.Env) -> None:
    """Close an environment; an exception becomes a warning, so that it neither ends the run nor hides another."""
    try:
        env.close()
    except Exception as error:  # third-party code may raise anything
        warnings.warn(f"{name_of(env)}: closing it raised {in_one_line(error)}", RuntimeWarning, stacklevel=2)


def _values(call: str, given: Any, names: tuple[str, ...]) -> Any:
    """Return the values that a call returned, and raise if their number is wrong."""
    if not isinstance(given, tuple | list) or len(given) != len(names):
        what = f"{len(given)} values" if isinstance(given, tuple | list) else brief(given)
        raise EnvironmentFault(f"{call} returned {what}, but must return {len(names)} values: {', '.join(names)}.")
    return given


def _flag(name: str, given: Any) -> bool:
    value = _as_array(given)
    if value is None or value.ndim or value.dtype.kind != "b":
        raise EnvironmentFault(f"{name} is {brief(given)}, but must be true or false.")
    return bool(value)


def checked_array(observation: Any, space: Any) -> np.ndarray:
    """Return an observation as an array with the shape and dtype of its space, which is no Dict or Tuple."""
    array = numbers(observation)
    if array.shape != space.shape:
        raise EnvironmentFault(
            f"The observation has shape {array.shape}, but its observation space has shape {space.shape}."
        )
    if array.dtype == space.dtype:
        return array
    if not np.can_cast(array.dtype, space.dtype, "same_kind"):
        raise wrong_dtype(array, space.dtype)
    return lossless(array, space.dtype)


def numbers(observation: Any) -> np.ndarray:
    """Return an observation as an array of numbers."""
    array = _as_array(observation)
    if array is None or array.dtype.kind not in f"{NUMBERS}c":
        raise EnvironmentFault(f"The observation is {brief(observation)}, but must be an array of numbers.")
    return array


def wrong_dtype(array: np.ndarray, dtype: Any) -> EnvironmentFault:
    """Return the error for an observation with a dtype that its space does not take."""
    return EnvironmentFault(f"The observation is {array.dtype}, but its observation space is {dtype}.")


def lossless(array: np.ndarray, dtype: Any) -> np.ndarray:
    """Return an observation in another dtype, and raise if a value changes by more than the precision of floats."""
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
    lost = ~np.isfinite(cast) if cast.dtype.kind == "f" else cast != array
    if lost.any():
        raise EnvironmentFault(
            f"The observation contains {array[lost].flat[0]}, which {dtype} cannot hold"
            f"{' as a finite number' if cast.dtype.kind == 'f' else ''}."
        )
    return cast


def _as_array(given: Any) -> np.ndarray | None:
    try:
        return np.asarray(given)
    except Exception:  # ragged lists, and anything that third-party objects raise
        return None
