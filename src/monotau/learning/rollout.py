"""Steps a vector of environments; shared by training and evaluation."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from jaxtyping import Bool, Float, Int, Shaped

from monotau.envs.config import EnvMaker
from monotau.envs.masks import ACTION_MASK
from monotau.errors import ConfigError, EnvironmentFault, in_one_line
from monotau.replay import Newest, Steps


@dataclass(frozen=True)
class Outcome:
    """One step of every environment."""

    steps: Steps
    returns: list[tuple[int, float, int]]
    """Environment, undiscounted return on raw rewards, and length of each episode that ended in this step."""


class Rollout:
    """Steps a vector of environments, stacks their frames and tracks the returns of their episodes."""

    def __init__(self, factory: EnvMaker, num_envs: int, stack: int, seed: int, first_step: int | None = None) -> None:
        """Make and reset the environments; `first_step` is the training step, None for an evaluation."""
        self.factory, self.spec, self.step_count = factory, factory.observation_spec, first_step or 0
        self._stage = "evaluation step" if first_step is None else "step"
        # An evaluation counts the steps of each environment, because its environments play their own episodes.
        self._steps_counted = 1 if first_step is None else num_envs
        with self._located_errors():
            self.envs: VectorEnv = factory.make_vector(num_envs)
        try:
            with self._located_errors():
                # Gymnasium seeds environment i with seed + i, which some environments store in 32 bits.
                raw, info = self.envs.reset(seed=seed % 2**31)
            frames = self._frames(raw)
        except EnvironmentFault:
            self.close()
            raise
        self.observations = np.zeros((num_envs, stack, *self.spec.shape), dtype=self.spec.dtype)
        self.observations[:, -1] = frames
        self.masks: Bool[np.ndarray, "E A"] | None = info[ACTION_MASK] if factory.masked else None
        self.first = np.ones(num_envs, dtype=bool)
        self.returns, self.lengths = np.zeros(num_envs), np.zeros(num_envs, dtype=np.int64)

    def step(self, actions: Int[np.ndarray, " E"], random: Bool[np.ndarray, " E"] | None = None) -> Outcome:
        """Take one step in every environment; NaN or infinite observations and rewards raise EnvironmentFault.

        `random` says which actions are random, for the replay.
        """
        before = self.observations[:, -1].copy()
        self.step_count += self._steps_counted
        with self._located_errors():
            raw, rewards, terminated, truncated, info = self.envs.step(actions + self.factory.action_start)
        self._check_rewards(rewards)
        frames = self._frames(raw)
        ended = terminated | truncated
        final = frames
        if ended.any():
            final = frames.copy()
            for lane in np.flatnonzero(ended):
                final[lane] = self._frames(np.asarray(info["final_obs"][lane])[None])[0]
        learned_end = terminated | info["life_lost"] if "life_lost" in info else terminated
        rewards = np.asarray(rewards, np.float64)
        masks, final_masks = self._advance_masks(info, ended)
        steps = Steps(before, self.first, actions, rewards, learned_end, truncated, final, random, masks, final_masks)
        return Outcome(steps, self._advance(frames, ended, rewards))

    def _advance_masks(
        self, info: Mapping[str, Any], ended: Bool[np.ndarray, " E"]
    ) -> tuple[Bool[np.ndarray, "E A"] | None, Bool[np.ndarray, "E A"] | None]:
        """Update the masks to those of the new observations; return those before the step and those right after it."""
        before = after = self.masks
        if before is not None:
            self.masks = after = info[ACTION_MASK]
            if ended.any():  # the environment was reset, and the new masks are those of the next episode
                after = np.where(ended[:, None], info["final_info"][ACTION_MASK], after)
        return before, after

    @property
    def newest(self) -> Newest:
        """The newest frame of every environment, and the actions allowed there."""
        return Newest(self.observations[:, -1], self.masks)

    def _advance(
        self, frames: Shaped[np.ndarray, "E *frame"], ended: Bool[np.ndarray, " E"], rewards: Float[np.ndarray, " E"]
    ) -> list[tuple[int, float, int]]:
        """Update observations, returns and lengths, and return the episodes that ended."""
        self.returns += rewards
        self.lengths += 1
        if self.observations.shape[1] > 1:
            self.observations = np.roll(self.observations, -1, axis=1)
        finished: list[tuple[int, float, int]] = []
        if ended.any():
            self.observations[ended] = 0
            finished = [(int(i), float(self.returns[i]), int(self.lengths[i])) for i in np.flatnonzero(ended)]
            self.returns[ended], self.lengths[ended] = 0, 0
        self.observations[:, -1] = frames
        self.first = ended
        return finished

    def _frames(self, raw: np.ndarray) -> np.ndarray:
        with self._located_errors():
            return self.spec.frame(np.asarray(raw))

    @property
    def _location(self) -> str:
        return f"{self.factory.name}, {self._stage} {self.step_count}"

    @contextmanager
    def _located_errors(self) -> Iterator[None]:
        """Add the environment's name and the step to its errors."""
        try:
            yield
        except ConfigError:  # already tells the caller what to fix
            raise
        except EnvironmentFault as fault:
            raise EnvironmentFault(f"{self._location}: {fault}") from fault.__cause__
        except Exception as error:  # third-party code may raise anything
            raise EnvironmentFault(f"{self._location}: it raised {in_one_line(error)}") from error

    def _check_rewards(self, rewards: np.ndarray) -> None:
        with np.errstate(over="ignore"):  # values beyond float32, in which batches hold rewards, become infinite
            bad = np.flatnonzero(~np.isfinite(np.asarray(rewards).astype(np.float32)))
        if bad.size:
            raise EnvironmentFault(
                f"{self._location}: the environment returned the reward {rewards[bad[0]]}, which float32 cannot "
                "hold as a finite number; learning from it would make every weight NaN."
            )

    def cut_beyond(self, most_steps: int) -> list[tuple[int, float, int]]:
        """End episodes that have lasted `most_steps` with their return so far, and start new ones.

        Only their environments are reset: every vector that `EnvMaker` makes supports `reset_mask`. The reset has no
        seed, so the random state continues as after an episode that ended by itself.
        """
        long = self.lengths >= most_steps
        if not long.any():
            return []
        cut = [(int(i), float(self.returns[i]), int(self.lengths[i])) for i in np.flatnonzero(long)]
        with self._located_errors():
            raw, info = self.envs.reset(options={"reset_mask": long})
        frames = self._frames(np.asarray(raw)[long])
        self.observations[long] = 0
        self.observations[long, -1] = frames
        if self.masks is not None:
            self.masks = np.where(long[:, None], info[ACTION_MASK], self.masks)
        self.first = self.first | long
        self.returns[long], self.lengths[long] = 0, 0
        return cut

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()
