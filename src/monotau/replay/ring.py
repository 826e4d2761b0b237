"""The replay ring: stores each frame once, one lane per environment, and builds n-step transitions when sampled."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64, Shaped
from numpy.typing import DTypeLike
from torch import Tensor

from monotau.errors import ConfigError
from monotau.replay.base import ALL_LANES, Layout, Replay, ReplayConfig, ReplayMemory, Span
from monotau.replay.flags import FINAL, FIRST, RANDOM, TERMINATED, TRUNCATED, newest_returns
from monotau.replay.rows import Rows, check_rows, columns_of, copy_rows, lane_slices, slot_bytes
from monotau.replay.transitions import Batch, Newest, Steps, Written

# Nearly every slot is usually a valid start, so that one round suffices.
REJECTION_ROUNDS = 8

NO_SLOTS = np.empty(0, np.int64)


@final
@dataclass(frozen=True, kw_only=True)
class Uniform(ReplayConfig):
    """Uniform replay: every stored transition is equally likely (DQN, Mnih et al. 2015, doi 10.1038/nature14236)."""

    def memory(self, layout: Layout) -> ReplayMemory:
        """Return the memory of a full ring."""
        return Ring.memory(self, layout)

    def build(self, layout: Layout, horizon_steps: int) -> "Ring":
        """Make the replay."""
        return Ring(self, **vars(layout))


@final
class Ring(Replay):
    """Uniform replay over the last `capacity_steps` steps, divided evenly among the lanes.

    A slot holds one frame with its action, reward and flags, and the mask of allowed actions if there are masks. A
    truncated episode has one more slot, flagged FINAL: the frame that its last transitions bootstrap from. A terminated
    episode needs none, because its discount is 0.

    The index of a slot is lane * slots per lane + position. Lanes use FINAL slots at different times, so each has its
    own write head: a running total of written rows, which gives both the next position and the rows still stored.
    """

    def __init__(
        self,
        config: ReplayConfig,
        *,
        lanes: int,
        frame_shape: tuple[int, ...],
        frame_dtype: DTypeLike,
        stack: int,
        n_step: int,
        gamma: float,
        cut_at_random: bool = False,
        masked_actions: int = 0,
    ) -> None:
        lane_slots = config.capacity_steps // lanes
        # With this many slots, two neighbours have a full stack and n-step window, and at least one of them is a step.
        self._enough_slots = stack + n_step + 1
        if lane_slots < self._enough_slots:
            raise ConfigError(
                f"replay.capacity_steps is {config.capacity_steps}, but must be at least {lanes * self._enough_slots} "
                f"for {lanes} lanes, a stack of {stack} and n_step {n_step}; "
                "with less, a transition is overwritten before it is complete."
            )
        self._config = config
        self._lanes = lanes
        self._lane_slots = lane_slots
        self._stack = stack
        self._n_step = n_step
        self._cut_at_random = cut_at_random
        self._masked_actions = masked_actions

        # Zeros take no memory until they are written to. FINAL also marks slots that were never written.
        slots = lanes * lane_slots
        try:
            self._columns = {
                name: np.zeros((slots, *shape), dtype)
                for name, (shape, dtype) in columns_of(frame_shape, frame_dtype, masked_actions).items()
            }
        except (MemoryError, ValueError) as error:  # ValueError: larger than numpy's index type
            raise ConfigError(
                f"replay.capacity_steps is {config.capacity_steps}, but this machine lacks the memory for it: {error}"
            ) from None
        self._frames, self._flags = self._columns["frames"], self._columns["flags"]
        self._actions, self._rewards = self._columns["actions"], self._columns["rewards"]
        self._masks = self._columns.get("masks")  # one bit per action
        self._flags.fill(FINAL)

        self._written = np.zeros(lanes, np.int64)
        self._open = np.zeros(lanes, np.bool_)  # whether the lane's last episode is unfinished
        self._stored_steps = 0

        self._lane_starts = np.arange(lanes) * lane_slots
        self._ahead = np.arange(n_step)
        self._back = np.arange(1 - stack, 1)
        self._gamma = gamma
        self._powers = gamma ** np.arange(n_step + 1)

    @staticmethod
    def memory(config: ReplayConfig, layout: Layout) -> ReplayMemory:
        """Return the memory of such a ring when it is full."""
        slots = config.capacity_steps // layout.lanes * layout.lanes
        sizes = slot_bytes(columns_of(layout.frame_shape, layout.frame_dtype, layout.masked_actions))
        frames = sizes.pop("frames")
        return ReplayMemory(slots * frames, slots * sum(sizes.values()))

    def __len__(self) -> int:
        return self._stored_steps

    @property
    def slots(self) -> int:
        """Number of slots; every index is below it."""
        return self._lanes * self._lane_slots

    @property
    def ready(self) -> bool:
        """Whether the warm-up is over and `sample` can return a batch."""
        if self._stored_steps >= self._config.warmup_steps:
            return bool(self._written.max() >= self._enough_slots)
        # FINAL slots take up space, so a full ring may never hold as many steps as the warm-up requires.
        return bool(self._written.min() >= self._lane_slots)

    def add(self, steps: Steps, lanes: slice = ALL_LANES) -> Written:
        """Store one step of each of these lanes, and return the slots written to."""
        ids = self._check(steps.frames, lanes)
        if np.count_nonzero(steps.first & self._open[lanes]):
            raise ValueError(
                f"Lanes {ids[steps.first & self._open[lanes]].tolist()} start an episode before the last one "
                "terminated or was truncated; call cut first, or transitions would span both episodes."
            )
        rewards = steps.rewards
        if self._config.reward_clip:
            rewards = rewards.clip(-self._config.reward_clip, self._config.reward_clip)
        flags = FIRST * steps.first + TERMINATED * steps.terminated + TRUNCATED * steps.truncated
        if steps.random is not None:
            flags = flags + RANDOM * steps.random
        slots = self._claim(lanes)
        self._frames[slots] = steps.frames
        self._actions[slots] = steps.actions
        self._rewards[slots] = rewards
        self._flags[slots] = flags
        self._put_masks(slots, steps.masks)
        self._open[lanes] = flags < TERMINATED
        self._stored_steps += len(ids)
        if not np.count_nonzero(steps.truncated):
            return Written(slots, NO_SLOTS)
        ends = steps.truncated & ~steps.terminated
        return Written(slots, self._close(ids, ends, steps.final_frames, steps.final_masks))

    def cut(self, newest: Newest, lanes: slice = ALL_LANES) -> Written:
        """Truncate the open episodes of these lanes at their newest frames; their next steps start new episodes."""
        ids = self._check(newest.frames, lanes)
        is_open = self._open[ids]
        cut = ids[is_open]
        self._flags[self._lane_starts[cut] + (self._written[cut] - 1) % self._lane_slots] |= TRUNCATED
        self._open[lanes] = False
        return Written(NO_SLOTS, self._close(ids, is_open, newest.frames, newest.masks))

    def sample(self, size: int, rng: np.random.Generator, unit: float = 1.0) -> Batch:
        """Sample `size` transitions uniformly with replacement, and divide their rewards by `unit`."""
        return self.gather(self.draw(size, rng), unit)

    def recent_returns(self, most: int) -> Float64[np.ndarray, " N"]:
        """Return the discounted returns that start at the newest steps of each lane and end with their episodes."""
        return newest_returns(self._rewards, self._flags, self._written, self._gamma, most)

    def draw(self, size: int, rng: np.random.Generator) -> Int64[np.ndarray, "B"]:
        """Draw the indices of `size` valid starts uniformly with replacement."""
        reach = self._reach
        drawn = np.empty(0, np.int64)
        for _ in range(REJECTION_ROUNDS):
            lanes, positions = np.divmod(rng.integers(self._lanes * reach, size=size + size // 8 + 8), reach)
            candidates = lanes * self._lane_slots + positions
            drawn = np.concatenate((drawn, candidates[self.valid(candidates)]))
            if len(drawn) >= size:
                return drawn[:size]
        # Valid starts are this rare only if little is stored, so a full scan is cheap.
        return rng.choice(self.starts(), size)

    def starts(self) -> Int64[np.ndarray, "N"]:
        """Return the indices of all valid starts, by a full scan."""
        stored = (self._lane_starts[:, None] + np.arange(self._reach)).ravel()
        starts: np.ndarray = stored[self.valid(stored)]
        if not len(starts):
            raise RuntimeError(
                f"The replay holds {len(self)} steps, but no complete transition of {self._n_step} steps; "
                "add steps until `ready` before sampling."
            )
        return starts

    def valid(self, index: Int64[np.ndarray, "B"]) -> Bool[np.ndarray, "B"]:
        """Return which slots start a complete transition: n steps or the episode's end, and a full frame stack."""
        newer = self._newer(index)
        older = self._lane_slots - 1 - newer  # and before it; until a lane is full, a first frame bounds the stack
        ahead = self._flags[self._shift(index[:, None], self._ahead)]  # B n
        back = self._flags[self._shift(index[:, None], self._back)]  # B S
        # Slots beyond the write head hold older data, so their flags do not count.
        ends = (ahead & (TERMINATED | TRUNCATED) != 0) & (self._ahead <= newer[:, None])
        starts = (back & FIRST != 0) & (-self._back <= older[:, None])
        has_window = (newer >= self._n_step) | ends.any(axis=1)
        has_stack = (older >= self._stack - 1) | starts.any(axis=1)
        valid: np.ndarray = (self._flags[index] < FINAL) & has_window & has_stack
        return valid

    def gather(self, index: Int64[np.ndarray, "B"], unit: float = 1.0) -> Batch:
        """Return the transitions that start at `index`, which must be valid, with rewards divided by `unit`."""
        window = self._shift(index[:, None], self._ahead)  # B n
        flags = self._flags[window]
        over = flags[:, :-1] & (TERMINATED | TRUNCATED) != 0  # nothing follows this step in the transition
        if self._cut_at_random:
            over |= flags[:, 1:] & RANDOM != 0
        lengths = self._n_step - np.count_nonzero(np.logical_or.accumulate(over, axis=1), axis=1)
        rewards = np.where(self._ahead < lengths[:, None], self._rewards[window], 0.0) * self._powers[:-1]
        terminated = flags[np.arange(len(index)), lengths - 1] & TERMINATED != 0
        discounts = np.where(terminated, 0.0, self._powers[lengths])
        # The frame after a termination is not stored and has discount 0. What the lane saw next, usually the start of
        # another episode, takes its place, or else the start's own frames.
        missing = terminated & (self._newer(index) < lengths)
        next_index = self._shift(index, np.where(missing, 0, lengths))
        stacks = torch.from_numpy(self._stacked(np.concatenate((index, next_index))))
        with np.errstate(over="ignore"):  # a sum beyond float32 becomes infinite, and its loss then stops the run
            folded = (rewards.sum(axis=1) / unit).astype(np.float32)
        return Batch(
            observations=stacks[: len(index)],
            actions=torch.from_numpy(self._actions[index].astype(np.int64)),
            rewards=torch.from_numpy(folded),
            discounts=torch.from_numpy(discounts.astype(np.float32)),
            next_observations=stacks[len(index) :],
            weights=torch.ones(len(index)),
            index=index,
            masks=self._masks_at(index),
            next_masks=self._masks_at(next_index),
        )

    @property
    def span(self) -> Span:
        """The range of stored rows of each lane: all before its write head that were not overwritten."""
        return Span(np.maximum(self._written - self._lane_slots, 0), self._written.copy())

    def rows(self, since: Int64[np.ndarray, "E"]) -> dict[str, list[np.ndarray]]:
        """Return views of the stored rows from `since` on, lane by lane, and the ranges of their numbers."""
        first, end = np.maximum(self.span.first, since), self._written
        spans = [
            span
            for lane in range(self._lanes)
            for span in lane_slices(lane, self._lane_slots, int(first[lane]), int(end[lane]))
        ]
        pieces = {name: [column[span] for span in spans] for name, column in self._columns.items()}
        return {"first": [first], "end": [end.copy()]} | pieces

    def put_back(self, rows: Mapping[str, Rows]) -> None:
        """Store concatenated rows that `rows` returned; call it for older rows first."""
        first, end = rows["first"][:], rows["end"][:]
        check_rows(rows, self._columns, self._written, self._lane_slots)
        done = 0
        for lane in range(self._lanes):
            for span in lane_slices(lane, self._lane_slots, int(first[lane]), int(end[lane])):
                count = span.stop - span.start
                for name, column in self._columns.items():
                    copy_rows(column[span], rows[name], done)
                done += count
        self._written[:] = end
        self._stored_steps = int(np.count_nonzero(self._flags < FINAL))

    @property
    def _reach(self) -> int:
        """Number of positions that any lane has written to; at least 1."""
        return min(max(int(self._written.max()), 1), self._lane_slots)

    def _check(self, frames: np.ndarray, lanes: slice) -> Int64[np.ndarray, "E"]:
        """Check type and shape of `frames`, and return the numbers of their lanes."""
        ids = np.arange(self._lanes)[lanes]
        shape = (len(ids), *self._frames.shape[1:])
        # Assignment would cast and broadcast silently.
        if frames.shape != shape or frames.dtype != self._frames.dtype:
            raise ValueError(
                f"The frames are {frames.dtype} of shape {frames.shape}, but must be {self._frames.dtype} of shape "
                f"{shape}, one frame for each lane; otherwise numpy would cast or broadcast them silently."
            )
        return ids

    def _stacked(self, index: Int64[np.ndarray, "B"]) -> Shaped[np.ndarray, "B S *frame"]:
        slots = self._shift(index[:, None], self._back)  # B S
        first = self._flags[slots] & FIRST != 0
        frames: np.ndarray = self._frames[slots]
        # A frame precedes the episode if a later frame of its stack is the first.
        before = np.logical_or.accumulate(first[:, :0:-1], axis=1)[:, ::-1]
        frames[:, :-1][before] = 0
        return frames

    def _newer(self, index: Int64[np.ndarray, "B"]) -> Int64[np.ndarray, "B"]:
        """Return how many slots of its lane were written after each slot."""
        lanes, positions = np.divmod(index, self._lane_slots)
        newer: np.ndarray = (self._written[lanes] - 1 - positions) % self._lane_slots
        return newer

    def _shift(self, index: np.ndarray, by: np.ndarray) -> np.ndarray:
        positions = index % self._lane_slots
        shifted: np.ndarray = index - positions + (positions + by) % self._lane_slots
        return shifted

    def _claim(self, lanes: slice | np.ndarray) -> np.ndarray:
        """Advance the write heads of `lanes` by one slot, and return the slots to write to."""
        slots: np.ndarray = self._lane_starts[lanes] + self._written[lanes] % self._lane_slots
        self._written[lanes] += 1
        self._stored_steps -= int(np.count_nonzero(self._flags[slots] < FINAL))
        return slots

    def _close(self, ids: np.ndarray, chosen: np.ndarray, frames: np.ndarray, masks: np.ndarray | None) -> np.ndarray:
        """Store the last frames of the chosen lanes, and return their slots."""
        slots = self._claim(ids[chosen])
        self._frames[slots] = frames[chosen]
        self._flags[slots] = FINAL
        self._put_masks(slots, masks if masks is None else masks[chosen])
        return slots

    def _put_masks(self, slots: np.ndarray, masks: np.ndarray | None) -> None:
        """Store the masks of frames that were just written."""
        if self._masks is None and masks is None:
            return
        wanted = (len(slots), self._masked_actions)
        if self._masks is None or masks is None or masks.shape != wanted:
            raise ValueError(
                f"The masks {'are missing' if masks is None else f'have shape {masks.shape}'}, but this replay "
                f"{'stores none' if self._masks is None else f'needs shape {wanted}'}; a target would allow other "
                "actions than the environment."
            )
        self._masks[slots] = np.packbits(masks, axis=1)

    def _masks_at(self, index: np.ndarray) -> Tensor | None:
        if self._masks is None:
            return None
        return torch.from_numpy(np.unpackbits(self._masks[index], axis=1, count=self._masked_actions).view(np.bool_))
