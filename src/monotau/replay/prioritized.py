"""Prioritised replay (Schaul et al. 2016, arXiv 1511.05952): transitions with a large error are replayed more often."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64, Shaped

from monotau.errors import ConfigError, Divergence
from monotau.replay.base import ALL_LANES, Layout, Priority, Replay, ReplayConfig, ReplayMemory, Span
from monotau.replay.ring import Ring
from monotau.replay.rows import Rows
from monotau.replay.sum_tree import SumTree
from monotau.replay.transitions import Batch, Steps, Written

# Keeps a transition with no error in play (Schaul et al., Section 3.3).
LEAST_PRIORITY = 1e-6

# Nearly all the mass of a replay in use is that of valid starts. It is not where little is stored, or where the newest
# steps have a priority far above all others: so each round draws more, up to thousands.
REJECTION_ROUNDS = 8
FIRST_ROUND = 32


@final
@dataclass(frozen=True, kw_only=True)
class Prioritized(ReplayConfig):
    """Transitions are drawn in proportion to priority^alpha; importance weights correct for that.

    Schaul, Quan, Antonoglou, Silver 2016, arXiv 1511.05952.
    """

    priority: Priority = "loss"
    """loss: that of the transition, as in Rainbow; td: the absolute difference of prediction's and target's means."""
    alpha: float = 0.6
    """How much the priority counts: 0 draws uniformly, 1 in proportion to it."""
    beta_start: float = 0.4
    """How much of that bias is made up for by weights at the start; in the end it is all of it, 1."""
    beta_steps: int = 0
    """Steps over which this rises in a straight line from beta_start to 1; 0 takes the steps of the run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("alpha", "beta_start"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"replay.{name} is {getattr(self, name)}, but must be a number from 0 to 1.")
        if self.beta_steps < 0:
            raise ConfigError(
                f"replay.beta_steps is {self.beta_steps}, but must not be negative; 0 takes the steps of the run."
            )

    def memory(self, layout: Layout) -> ReplayMemory:
        """Return the size of a full ring and of the tree over its slots."""
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

    The loss of a distribution has an irreducible part: a state whose return is uncertain keeps a high priority whatever
    is learned. The difference of the means (`td`), which for DQN is the absolute TD error of Schaul et al., has no such
    part, but does not see errors in the shape of the distribution.
    """

    def __init__(self, config: Prioritized, ring: Ring, *, beta_steps: int) -> None:
        self._config, self.priority = config, config.priority
        self._ring = ring
        self._tree = SumTree(ring.slots)
        self._beta_steps = beta_steps
        self._added_steps = 0
        self._largest = 1.0  # of all leaves so far

    def __len__(self) -> int:
        return len(self._ring)

    @property
    def ready(self) -> bool:
        """Whether the warm-up is over and `sample` has something to return."""
        return self._ring.ready

    @property
    def beta(self) -> float:
        """How much of the bias the weights make up for now."""
        done = min(1.0, self._added_steps / self._beta_steps)
        return self._config.beta_start + (1.0 - self._config.beta_start) * done

    def add(self, steps: Steps, lanes: slice = ALL_LANES) -> Written:
        """Store one step of each of those lanes, with the largest priority so far: each is to be replayed once."""
        written = self._ring.add(steps, lanes)
        self._added_steps += len(written.steps)
        return self._follow(written)

    def cut(self, frames: Shaped[np.ndarray, "E *frame"], lanes: slice = ALL_LANES) -> Written:
        """Truncate those lanes' episodes in flight, where `frames` are the newest; their next steps are firsts."""
        return self._follow(self._ring.cut(frames, lanes))

    def sample(self, size: int, rng: np.random.Generator, unit: float = 1.0) -> Batch:
        """Return `size` transitions drawn by priority, with weights against the bias, the largest of a batch 1.

        A weight is (N P(i))^-beta over the batch's largest (Section 3.4), so that N and the total mass cancel.
        """
        index = self.draw(size, rng)
        leaves = self._tree.values(index)
        weights = (leaves / leaves.min()) ** -self.beta
        return replace(self._ring.gather(index, unit), weights=torch.from_numpy(weights.astype(np.float32)))

    def recent_returns(self, most: int) -> Float64[np.ndarray, " N"]:
        """Return the returns from the newest steps on."""
        return self._ring.recent_returns(most)

    def draw(self, size: int, rng: np.random.Generator) -> Int64[np.ndarray, "B"]:
        """Return the indices of `size` valid starts, each expected in proportion to its leaf.

        One is drawn from each of `size` equal strata of the mass, so that i is expected size * leaf_i / total times.
        Those that are no valid starts are replaced by independent draws from all that are, again in proportion to the
        leaves: the sum of two expectations in one proportion is in that proportion, whatever share was replaced.
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
        """Set the priorities of a batch; where an index stands more than once, the last one counts."""
        if not np.isfinite(priorities).all():
            raise Divergence(
                f"the priority of a replayed transition is {priorities[~np.isfinite(priorities)][0]}, but must be a "
                "finite number"
            )
        if (priorities < 0).any():
            raise ValueError(f"A priority is {priorities.min()}, but must not be negative; no mass is less than 0.")
        leaves = (priorities.astype(np.float64) + LEAST_PRIORITY) ** self._config.alpha
        self._tree.set(index, leaves)
        self._largest = max(self._largest, float(leaves.max()))

    @property
    def span(self) -> Span:
        """Which rows of each lane are stored."""
        return self._ring.span

    def rows(self, since: Int64[np.ndarray, "E"]) -> dict[str, list[np.ndarray]]:
        """Return views of the stored rows from those of each lane on."""
        return self._ring.rows(since)

    def put_back(self, rows: Mapping[str, Rows]) -> None:
        """Store rows that `rows` returned, joined; older ones first."""
        self._ring.put_back(rows)

    def state(self) -> dict[str, np.ndarray]:
        """Return all leaves, the largest so far and the number of steps."""
        leaves = self._tree.values(np.arange(self._ring.slots))
        return {"leaves": leaves, "largest": np.array(self._largest), "added_steps": np.array(self._added_steps)}

    def load_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over the leaves, the largest and the number of steps."""
        self._tree.set(np.arange(self._ring.slots), arrays["leaves"])
        self._largest, self._added_steps = float(arrays["largest"]), int(arrays["added_steps"])

    def _follow(self, written: Written) -> Written:
        self._tree.set(written.steps, np.full(len(written.steps), self._largest))
        self._tree.set(written.finals, np.zeros(len(written.finals)))
        return written
