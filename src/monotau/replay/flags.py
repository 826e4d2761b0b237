"""What a slot of the replay ring says about its step, and the returns that can be read off it."""

import numpy as np
from jaxtyping import Float64, Int64, UInt8

# The bits of a slot's flags. FINAL is the highest, so that `flags < FINAL` says that the slot holds a step.
FIRST = 1
TERMINATED = 2
TRUNCATED = 4
FINAL = 8


def newest_returns(
    rewards: Float64[np.ndarray, " S"],
    flags: UInt8[np.ndarray, " S"],
    written: Int64[np.ndarray, " E"],
    gamma: float,
    most: int,
) -> Float64[np.ndarray, " N"]:
    """Return the discounted returns from the newest slots of each lane to their episodes' ends."""
    lane_slots = len(rewards) // len(written)
    share = max(1, most // len(written))
    found: list[float] = []
    for lane, end in enumerate(written.tolist()):
        rows = np.arange(end - min(share, lane_slots, end), end)[::-1]  # the newest first
        slots = lane * lane_slots + rows % lane_slots
        ahead = 0.0
        for reward, flag in zip(rewards[slots].tolist(), flags[slots].tolist(), strict=True):
            if flag >= FINAL:
                continue
            ahead = reward if flag >= TERMINATED else reward + gamma * ahead
            found.append(ahead)
    return np.array(found, np.float64)
