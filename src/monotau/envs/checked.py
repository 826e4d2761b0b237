"""What an environment hands over, checked before Gymnasium makes arrays of it: those take None for NaN."""

import warnings
from typing import Any, final

import gymnasium as gym
import numpy as np

from monotau.errors import EnvironmentFault, brief, in_one_line

OF_RESET = ("observation", "info")
OF_STEP = ("observation", "reward", "terminated", "truncated", "info")
NUMBERS = "biuf"
"""Kinds of numpy's dtypes: booleans, whole numbers with and without sign, and floats."""


def name_of(env: gym.Env) -> str:
    """Return the id of an environment, or the class of one that has none."""
    spec = env.unwrapped.spec
    return spec.id if spec else type(env.unwrapped).__name__


@final
class Checked(gym.Wrapper):
    """Refuses answers that are not those of a Gymnasium environment, and leaves out info, which nobody reads here.

    The bounds of a Box are not checked: many environments overstep theirs, and a network does not mind.
    """

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Start an episode; no options are None, though SyncVectorEnv leaves {} where it took a `reset_mask` out."""
        observation, info = _values("reset", self.env.reset(seed=seed, options=options or None), OF_RESET)
        _check_info(info)
        return self._array(observation), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Take a step; the last observation of an episode is a copy.

        SyncVectorEnv hands that one out as `final_obs` uncopied and then resets, which overwrites it in environments
        that return one buffer again and again.
        """
        observation, reward, terminated, truncated, info = _values("step", self.env.step(action), OF_STEP)
        number = _as_array(reward)
        if number is None or number.ndim or number.dtype.kind not in NUMBERS:
            raise EnvironmentFault(f"the reward is {brief(reward)}, but must be one number.")
        terminated, truncated = _flag("terminated", terminated), _flag("truncated", truncated)
        _check_info(info)
        array = self._array(observation)
        return array.copy() if terminated or truncated else array, float(number), terminated, truncated, {}

    def close(self) -> None:
        """Close the environment; a failure in that is no reason to lose a run, nor to hide what came before."""
        try:
            self.env.close()
        except Exception as error:  # foreign code, which may raise anything
            warnings.warn(f"{name_of(self)}: closing it raised {in_one_line(error)}", RuntimeWarning, stacklevel=2)

    def _array(self, observation: Any) -> np.ndarray:
        """Return the observation as an array of its space's shape and dtype."""
        space: Any = self.observation_space  # Discrete or Box, which have a dtype
        array = _as_array(observation)
        if array is None or array.dtype.kind not in f"{NUMBERS}c":
            raise EnvironmentFault(f"The observation is {brief(observation)}, but must be an array of numbers.")
        if array.shape != space.shape:
            raise EnvironmentFault(
                f"The observation is of shape {array.shape}, but its observation space has shape {space.shape}."
            )
        if array.dtype == space.dtype:
            return array
        if not np.can_cast(array.dtype, space.dtype, "same_kind"):
            raise EnvironmentFault(f"The observation is of {array.dtype}, but its observation space of {space.dtype}.")
        with np.errstate(over="ignore"):
            cast = array.astype(space.dtype)
        lost = ~np.isfinite(cast) if cast.dtype.kind == "f" else cast != array
        if lost.any():
            raise EnvironmentFault(
                f"The observation holds the value {array[lost].flat[0]}, which {space.dtype} cannot hold"
                f"{' as a finite number' if cast.dtype.kind == 'f' else ''}."
            )
        return cast


def _values(call: str, given: Any, names: tuple[str, ...]) -> Any:
    """Return what a call returned, if it is as many values as it must be."""
    if not isinstance(given, tuple | list) or len(given) != len(names):
        what = f"{len(given)} values" if isinstance(given, tuple | list) else brief(given)
        raise EnvironmentFault(f"{call} returned {what}, but must return {len(names)} values: {', '.join(names)}.")
    return given


def _flag(name: str, given: Any) -> bool:
    value = _as_array(given)
    if value is None or value.ndim or value.dtype.kind != "b":
        raise EnvironmentFault(f"{name} is {brief(given)}, but must be true or false.")
    return bool(value)


def _check_info(info: Any) -> None:
    if not isinstance(info, dict):
        raise EnvironmentFault(f"info is {brief(info)}, but must be a dictionary.")


def _as_array(given: Any) -> np.ndarray | None:
    try:
        return np.asarray(given)
    except Exception:  # lists of unequal lengths, and whatever foreign objects raise
        return None
