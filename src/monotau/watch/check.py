"""Rollouts from a state that is on the screen: are the returns from there what the agent predicts?"""

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Shaped

from monotau.agent import Agent
from monotau.audit.rollouts import (
    Player,
    StateAudit,
    Visit,
    audit_states,
    check_learns_distribution,
    first_stack,
    next_stack,
)
from monotau.audit.snapshots import Snapshots, snapshots_of
from monotau.errors import ConfigError

ROLLOUTS = 32
"""Rollouts of each action."""


def digest(stack: Shaped[np.ndarray, "S *frame"]) -> int:
    """Return a number by which an observation is recognised."""
    return zlib.crc32(np.ascontiguousarray(stack).tobytes())


def audit_state(
    agent: Agent, seed: int, actions: Sequence[int], wanted: int, *, on_rollout: Callable[[], None] = lambda: None
) -> StateAudit:
    """Play an episode again up to a state, whose observation has the digest `wanted`, and roll out every action there.

    Raise ConfigError if the environment cannot be restored or does not come to that state again.
    """
    check_learns_distribution(agent)
    envs = agent.env_factory()
    if envs.is_atari:
        raise ConfigError(
            "a game on this page cannot be restored, because its emulator cannot be copied; "
            "monotau audit plays Atari in another one."
        )
    snapshots, player = snapshots_of(envs), Player(agent)
    visit = _return_to(player, snapshots, seed, actions)
    if digest(visit.stack) != wanted:
        raise ConfigError(f"{envs.name} does not come to this state again with the same seed and actions.")
    return audit_states(player, snapshots, [visit], rollouts=ROLLOUTS, seed=seed, on_rollout=on_rollout)[0]


def _return_to(player: Player, snapshots: Snapshots, seed: int, actions: Sequence[int]) -> Visit:
    game = snapshots.new_game()
    try:
        seen = game.reset(seed)
        stack = first_stack(player, seen)
        for action in actions:
            seen = game.step(action)
            stack = next_stack(stack, seen)
        return Visit(snapshots.save(game), stack, seen.mask, episode=0, step=len(actions))
    finally:
        game.close()


def audit_message(at: int, audit: StateAudit) -> dict[str, Any]:
    """Return what a page shows of an audit: for every audited action the measured returns, lowest first."""
    rows = []
    for row, action in enumerate(audit.actions):
        returns = np.sort(audit.returns[row][~audit.unmeasured[row]])
        error = float(returns.std(ddof=1) / np.sqrt(len(returns))) if len(returns) > 1 else None
        mean = float(returns.mean()) if len(returns) else None
        rows.append({"action": action, "returns": returns.tolist(), "mean": mean, "error": error})
    return {"type": "audit", "at": at, "rollouts": ROLLOUTS, "rows": rows}
