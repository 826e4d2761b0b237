"""The contract of a replay: steps go in as they happen, batches of n-step transitions come out."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Float64, Int64, Shaped
from numpy.typing import DTypeLike

from monotau.errors import ConfigError
from monotau.replay.rows import Rows
from monotau.replay.transitions import Batch, Steps, Written

ALL_LANES = slice(None)

Priority = Literal["loss", "td"]
"""What tells how much there is to learn from a transition: its loss, or the difference of prediction and target."""


class Replay(ABC):
    """Stores steps of a fixed number of lanes, one environment each, and replays them."""

    priority: Priority | None = None
    """What `update` takes of each transition; without it nothing, so that nothing leaves its device in vain."""

    @abstractmethod
    def __len__(self) -> int:
        """How many steps are stored."""

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether the warm-up is over and `sample` has something to return."""

    @abstractmethod
    def add(self, steps: Steps, lanes: slice = ALL_LANES) -> Written:
        """Store one step of each of those lanes."""

    @abstractmethod
    def cut(self, frames: Shaped[np.ndarray, "E *frame"], lanes: slice = ALL_LANES) -> Written:
        """Truncate those lanes' episodes in flight, where `frames` are the newest; their next steps are firsts."""

    @abstractmethod
    def sample(self, size: int, rng: np.random.Generator, unit: float = 1.0) -> Batch:
        """Return `size` transitions, with replacement, rewards divided by `unit`; changes nothing but the generator."""

    @abstractmethod
    def recent_returns(self, most: int) -> Float64[np.ndarray, " N"]:
        """Return the discounted returns from each of about the `most` newest steps on.

        A return ends with its episode, or with what is stored.
        """

    def update(self, index: Int64[np.ndarray, "B"], priorities: Float[np.ndarray, "B"]) -> None:
        """Take note of the priorities of a batch, before anything is added; the default has no use for them."""
        return

    @property
    @abstractmethod
    def span(self) -> "Span":
        """Which rows of each lane are stored, counted from its first; between iterations only."""

    @abstractmethod
    def rows(self, since: Int64[np.ndarray, "E"]) -> dict[str, list[np.ndarray]]:
        """Return views of the stored rows from those of each lane on; what a row holds does not change any more."""

    @abstractmethod
    def put_back(self, rows: Mapping[str, Rows]) -> None:
        """Store rows that `rows` returned, joined; older ones first."""

    def state(self) -> dict[str, np.ndarray]:
        """Return what there is beside the rows; nothing by default."""
        return {}

    def load_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over what `state` returned, after the rows were put back."""
        return


class ReplayMemory(NamedTuple):
    """Bytes of a full replay."""

    frames: int
    beside: int
    """Actions, rewards and flags, and what chooses among them."""

    @property
    def total(self) -> int:
        """Return the sum."""
        return self.frames + self.beside


class Span(NamedTuple):
    """The rows of each lane that are stored, by their numbers: from the first to before the end."""

    first: Int64[np.ndarray, "E"]
    end: Int64[np.ndarray, "E"]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What a replay must know of the environments and of the transitions made from their steps."""

    lanes: int
    frame_shape: tuple[int, ...]
    frame_dtype: DTypeLike
    stack: int
    n_step: int
    gamma: float


@dataclass(frozen=True, kw_only=True)
class ReplayConfig(ABC):
    """Experience replay. A step is one agent decision: four emulator frames on Atari."""

    capacity_steps: int = 100_000
    """Oldest steps are overwritten beyond this. The last frame of a truncated episode takes the room of a step."""
    warmup_steps: int = 1_000
    """No learning before this many steps are stored."""
    reward_clip: float = 0.0
    """Rewards are stored clipped to [-reward_clip, reward_clip]; 0 stores them as they are."""

    def __post_init__(self) -> None:
        if self.capacity_steps < 1:
            raise ConfigError(
                f"replay.capacity_steps is {self.capacity_steps}, but must be at least 1; "
                "a replay without room has nothing to learn from."
            )
        if not 1 <= self.warmup_steps <= self.capacity_steps:
            raise ConfigError(
                f"replay.warmup_steps is {self.warmup_steps}, but must be between 1 and "
                f"replay.capacity_steps ({self.capacity_steps}); otherwise learning never starts."
            )
        if not 0 <= self.reward_clip < math.inf:
            raise ConfigError(
                f"replay.reward_clip is {self.reward_clip}, but must be a finite number, 0 or more; "
                "rewards are clipped to [-reward_clip, reward_clip], and 0 stores them as they are."
            )

    @abstractmethod
    def memory(self, layout: Layout) -> "ReplayMemory":
        """Return the size of the replay that `build` makes, once it is full."""

    @abstractmethod
    def build(self, layout: Layout, horizon_steps: int) -> Replay:
        """Make the replay; `horizon_steps` are those of the whole run."""
