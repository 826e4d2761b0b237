"""The flags of a slot in the replay ring, and the returns computed from them."""

import numpy as np
from jaxtyping import Float64, Int64, UInt8

# The bits of a slot's flags. FINAL is the highest, so that `flags < FINAL` means that the slot holds a step.
FIRST = 1
RANDOM = 2
TERMINATED = 4
TRUNCATED = 8
FINAL = 16


def newest_returns(
    rewards: Float64[np.ndarray, " S"],
    flags: UInt8[np.ndarray, " S"],
    written: Int64[np.ndarray, " E"],
    gamma: float,
    most: int,
) -> Float64[np.ndarray, " N"]:
    """Return the discounted returns that start at the newest slots of each lane and end with their episodes."""
    lane_slots = len(rewards) // len(written)
    lane_share = max(1, most // len(written))
    returns: list[float] = []
    for lane, end in enumerate(written.tolist()):
        rows = np.arange(end - min(lane_share, lane_slots, end), end)[::-1]  # the newest first
        slots = lane * lane_slots + rows % lane_slots
        discounted = 0.0
        for reward, flag in zip(rewards[slots].tolist(), flags[slots].tolist(), strict=True):
            if flag >= FINAL:
                continue
            discounted = reward if flag >= TERMINATED else reward + gamma * discounted
            returns.append(discounted)
    return np.array(returns, np.float64)
