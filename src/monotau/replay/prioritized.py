"""Prioritised replay (Schaul et al. 2016, arXiv 1511.05952): transitions with a large error are sampled more often."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64

from monotau.errors import ConfigError, Divergence
from monotau.replay.base import ALL_LANES, Layout, Priority, Replay, ReplayConfig, ReplayMemory, Span
from monotau.replay.ring import Ring
from monotau.replay.rows import Rows
from monotau.replay.sum_tree import SumTree
from monotau.replay.transitions import Batch, Newest, Steps, Written

# Gives transitions without error a positive probability (Schaul et al., Section 3.3).
LEAST_PRIORITY = 1e-6

# Nearly all priority mass usually belongs to valid starts, but not if little is stored or if the newest steps have a
# priority far above all others. Each round therefore draws more candidates, up to thousands.
REJECTION_ROUNDS = 8
FIRST_ROUND = 32


@final
@dataclass(frozen=True, kw_only=True)
class Prioritized(ReplayConfig):
    """Transitions are sampled in proportion to priority^alpha; importance weights correct the bias.

    Schaul, Quan, Antonoglou, Silver 2016, arXiv 1511.05952.
    """

    priority: Priority = "loss"
    """loss: the transition's loss, as in Rainbow; td: the absolute difference between predicted and target mean."""
    alpha: float = 0.6
    """Exponent of the priority: 0 samples uniformly, 1 in proportion to the priority."""
    beta_start: float = 0.4
    """Initial exponent beta of the importance weights; it rises to 1, which corrects the bias fully."""
    beta_steps: int = 0
    """Steps over which beta rises linearly from beta_start to 1; 0 uses the steps of the run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("alpha", "beta_start"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"replay.{name} is {getattr(self, name)}, but must be a number from 0 to 1.")
        if self.beta_steps < 0:
            raise ConfigError(
                f"replay.beta_steps is {self.beta_steps}, but must not be negative; 0 uses the steps of the run."
            )

    def memory(self, layout: Layout) -> ReplayMemory:
        """Return the memory of a full ring and of the sum tree over its slots."""
        ring = Ring.memory(self, layout)
        slots = self.capacity_steps // layout.lanes * layout.lanes
        return ring._replace(beside=ring.beside + SumTree.memory(slots))

    def build(self, layout: Layout, horizon_steps: int) -> "PrioritizedReplay":
        """Make the replay."""
        ring = Ring(self, **vars(layout))
        return PrioritizedReplay(self, ring, beta_steps=self.beta_steps or horizon_steps)


@final
class PrioritizedReplay(Replay):
    """A ring buffer that stores steps and a sum tree that samples them; a leaf is priority^alpha, 0 for an empty slot.

    A distributional loss has an irreducible part: a state with an uncertain return keeps a high priority however well
    it is learned. The difference of the means (`td`), which for DQN is the absolute TD error of Schaul et al., has no
    such part, but ignores errors in the shape of the distribution.
    """

    def __init__(self, config: Prioritized, ring: Ring, *, beta_steps: int) -> None:
        self._config, self.priority = config, config.priority
        self._ring = ring
        self._tree = SumTree(ring.slots)
        self._beta_steps = beta_steps
        self._added_steps = 0
        self._largest = 1.0  # largest leaf so far

    def __len__(self) -> int:
        return len(self._ring)

    @property
    def ready(self) -> bool:
        """Whether the warm-up is over and `sample` can return a batch."""
        return self._ring.ready

    @property
    def beta(self) -> float:
        """Current exponent of the importance weights."""
        done = min(1.0, self._added_steps / self._beta_steps)
        return self._config.beta_start + (1.0 - self._config.beta_start) * done

    def add(self, steps: Steps, lanes: slice = ALL_LANES) -> Written:
        """Store one step of each of these lanes with the largest priority so far, so that it is sampled soon."""
        written = self._ring.add(steps, lanes)
        self._added_steps += len(written.steps)
        return self._set_new_leaves(written)

    def cut(self, newest: Newest, lanes: slice = ALL_LANES) -> Written:
        """Truncate the open episodes of these lanes at their newest `frames`; their next steps start new episodes."""
        return self._set_new_leaves(self._ring.cut(newest, lanes))

    def sample(self, size: int, rng: np.random.Generator, unit: float = 1.0) -> Batch:
        """Sample `size` transitions by priority, with importance weights of which the largest is 1.

        A weight is (N P(i))^-beta divided by the batch's largest (Section 3.4), so that N and the total mass cancel.
        """
        index = self.draw(size, rng)
        leaves = self._tree.values(index)
        weights = (leaves / leaves.min()) ** -self.beta
        return replace(self._ring.gather(index, unit), weights=torch.from_numpy(weights.astype(np.float32)))

    def recent_returns(self, most: int) -> Float64[np.ndarray, " N"]:
        """Return the discounted returns that start at the newest steps."""
        return self._ring.recent_returns(most)

    def draw(self, size: int, rng: np.random.Generator) -> Int64[np.ndarray, "B"]:
        """Return the indices of `size` valid starts, each drawn in proportion to its leaf in expectation.

        One index comes from each of `size` equal strata of the mass, so that i is expected size * leaf_i / total times.
        Indices that are not valid starts are replaced by independent draws from the valid ones, again in proportion to
        the leaves: both expectations are in this proportion, and so is their sum, whatever share was replaced.
        """
        total = self._tree.total
        if not total:
            raise RuntimeError("The replay holds 0 steps; add steps until `ready` before sampling.")
        index = self._tree.find((np.arange(size) + rng.random(size)) * (total / size))
        missing = np.flatnonzero(~self._ring.valid(index))
        for doublings in range(REJECTION_ROUNDS):
            if not len(missing):
                return index
            candidates = self._tree.find(rng.random(max(size, FIRST_ROUND << doublings)) * total)
            found = candidates[self._ring.valid(candidates)][: len(missing)]
            index[missing[: len(found)]] = found
            missing = missing[len(found) :]
        if len(missing):
            starts = self._ring.starts()
            leaves = self._tree.values(starts)
            index[missing] = rng.choice(starts, len(missing), p=leaves / leaves.sum())
        return index

    def update(self, index: Int64[np.ndarray, "B"], priorities: Float[np.ndarray, "B"]) -> None:
        """Set the priorities of a batch; for repeated indices the last one counts."""
        if not np.isfinite(priorities).all():
            raise Divergence(
                f"the priority of a sampled transition became {priorities[~np.isfinite(priorities)][0]}, "
                "but must be finite"
            )
        if (priorities < 0).any():
            raise ValueError(f"A priority is {priorities.min()}, but must not be negative; it is a probability mass.")
        leaves = (priorities.astype(np.float64) + LEAST_PRIORITY) ** self._config.alpha
        self._tree.set(index, leaves)
        self._largest = max(self._largest, float(leaves.max()))

    @property
    def span(self) -> Span:
        """The range of stored rows of each lane."""
        return self._ring.span

    def rows(self, since: Int64[np.ndarray, "E"]) -> dict[str, list[np.ndarray]]:
        """Return views of each lane's stored rows from `since` on."""
        return self._ring.rows(since)

    def put_back(self, rows: Mapping[str, Rows]) -> None:
        """Store concatenated rows that `rows` returned; call it for older rows first."""
        self._ring.put_back(rows)

    def state(self) -> dict[str, np.ndarray]:
        """Return all leaves, the largest leaf so far and the number of added steps."""
        leaves = self._tree.values(np.arange(self._ring.slots))
        return {"leaves": leaves, "largest": np.array(self._largest), "added_steps": np.array(self._added_steps)}

    def load_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the leaves, the largest leaf and the number of added steps."""
        self._tree.set(np.arange(self._ring.slots), arrays["leaves"])
        self._largest, self._added_steps = float(arrays["largest"]), int(arrays["added_steps"])

    def _set_new_leaves(self, written: Written) -> Written:
        self._tree.set(written.steps, np.full(len(written.steps), self._largest))
        self._tree.set(written.finals, np.zeros(len(written.finals)))
        return written
