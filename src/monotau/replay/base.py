"""The contract of a replay: it stores steps as they happen and samples batches of n-step transitions."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Float64, Int64
from numpy.typing import DTypeLike

from monotau.errors import ConfigError
from monotau.replay.rows import Rows
from monotau.replay.transitions import Batch, Newest, Steps, Written

ALL_LANES = slice(None)

Priority = Literal["loss", "td"]
"""What the priority of a transition measures: its loss, or its absolute TD error."""


class Replay(ABC):
    """Stores steps in a fixed number of lanes, one per environment, and samples transitions from them."""

    priority: Priority | None = None
    """What `update` expects as priorities; None if it needs none, which saves a transfer from the GPU."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of stored steps."""

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether the warm-up is over and `sample` can return a batch."""

    @abstractmethod
    def add(self, steps: Steps, lanes: slice = ALL_LANES) -> Written:
        """Store one step of each of these lanes."""

    @abstractmethod
    def cut(self, newest: Newest, lanes: slice = ALL_LANES) -> Written:
        """Truncate the open episodes of these lanes at their newest frames; their next steps start new episodes."""

    @abstractmethod
    def sample(self, size: int, rng: np.random.Generator, unit: float = 1.0) -> Batch:
        """Sample `size` transitions with replacement, and divide their rewards by `unit`; only `rng` changes state."""

    @abstractmethod
    def recent_returns(self, most: int) -> Float64[np.ndarray, " N"]:
        """Return the discounted returns that start at each of about the `most` newest steps.

        A return ends with its episode, or with the last stored step.
        """

    def update(self, index: Int64[np.ndarray, "B"], priorities: Float[np.ndarray, "B"]) -> None:
        """Set the priorities of a batch, before further steps are added; nothing by default."""
        return

    @property
    @abstractmethod
    def span(self) -> "Span":
        """The range of stored rows of each lane, numbered from its first; valid between iterations only."""

    @abstractmethod
    def rows(self, since: Int64[np.ndarray, "E"]) -> dict[str, list[np.ndarray]]:
        """Return views of each lane's stored rows from `since` on; the content of a row no longer changes."""

    @abstractmethod
    def put_back(self, rows: Mapping[str, Rows]) -> None:
        """Store concatenated rows that `rows` returned; call it for older rows first."""

    def state(self) -> dict[str, np.ndarray]:
        """Return all state except the rows; nothing by default."""
        return {}

    def load_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned, after the rows were put back; nothing by default."""
        return


class ReplayMemory(NamedTuple):
    """Memory of a full replay, in bytes."""

    frames: int
    beside: int
    """Actions, rewards, flags, masks and the sum tree of priorities."""

    @property
    def total(self) -> int:
        """Bytes in total."""
        return self.frames + self.beside


class Span(NamedTuple):
    """The range of stored rows of each lane: from `first` up to, and without, `end`."""

    first: Int64[np.ndarray, "E"]
    end: Int64[np.ndarray, "E"]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Shapes of the environments' frames, and how transitions are made from their steps."""

    lanes: int
    frame_shape: tuple[int, ...]
    frame_dtype: DTypeLike
    stack: int
    n_step: int
    gamma: float
    cut_at_random: bool = False
    """Whether a transition ends before the next random action, even if it has fewer than n steps."""
    masked_actions: int = 0
    """Number of actions that a mask is stored for with every frame; 0 stores no masks."""


@dataclass(frozen=True, kw_only=True)
class ReplayConfig(ABC):
    """Experience replay. A step is one agent decision: four emulator frames on Atari."""

    capacity_steps: int = 100_000
    """Maximum number of stored steps; the oldest are overwritten. A truncated episode's last frame counts as a step."""
    warmup_steps: int = 1_000
    """No learning before this many steps are stored."""
    reward_clip: float = 0.0
    """Rewards are clipped to [-reward_clip, reward_clip] when stored; 0 does not clip."""

    def __post_init__(self) -> None:
        if self.capacity_steps < 1:
            raise ConfigError(
                f"replay.capacity_steps is {self.capacity_steps}, but must be at least 1; "
                "without stored steps there is nothing to learn from."
            )
        if not 1 <= self.warmup_steps <= self.capacity_steps:
            raise ConfigError(
                f"replay.warmup_steps is {self.warmup_steps}, but must be between 1 and "
                f"replay.capacity_steps ({self.capacity_steps}); otherwise learning never starts."
            )
        if not 0 <= self.reward_clip < math.inf:
            raise ConfigError(
                f"replay.reward_clip is {self.reward_clip}, but must be finite and not negative; "
                "rewards are clipped to [-reward_clip, reward_clip], and 0 does not clip."
            )

    @abstractmethod
    def memory(self, layout: Layout) -> "ReplayMemory":
        """Return the memory of the replay that `build` makes, once it is full."""

    @abstractmethod
    def build(self, layout: Layout, horizon_steps: int) -> Replay:
        """Make the replay; `horizon_steps` is the number of steps of the whole run."""
