"""Names of actions, for people who look at what an agent does."""

from itertools import product
from typing import Any

from monotau.envs.atari import AtariVector
from monotau.envs.catalog import MINATAR_PREFIX
from monotau.envs.checked import close
from monotau.envs.make import EnvFactory

ACTION_NAMES: dict[str, tuple[str, ...]] = {
    "CartPole": ("push left", "push right"),
    "MountainCar": ("push left", "coast", "push right"),
    "Acrobot": ("torque -1", "torque 0", "torque +1"),
    "LunarLander": ("coast", "left engine", "main engine", "right engine"),
    "FrozenLake": ("left", "down", "right", "up"),
    "FrozenLake8x8": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "CliffWalkingSlippery": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pick up", "drop off"),
    "monotau/Grid": ("up", "right", "down", "left"),
    "monotau/Chain": ("left", "right"),
}
"""Names of the actions of environments that do not name them."""
MINATAR_NAMES = ("stay", "left", "up", "right", "down", "fire")


def action_names(envs: EnvFactory) -> list[str]:
    """Return a short name for every action; numbers if nobody has named them."""
    if envs.is_atari:
        games = AtariVector(envs.config.id, 1, envs.config.protocol)
        games.close()
        return list(games.action_names)
    if envs.action_sizes:
        return ["(" + ", ".join(map(str, choice)) + ")" for choice in product(*map(range, envs.action_sizes))]
    known: tuple[str, ...] = ()
    if envs.by_id and envs.config.id.startswith(MINATAR_PREFIX):
        game = envs.make_one()
        played: Any = game.unwrapped
        known = tuple(MINATAR_NAMES[action] for action in played.action_set)
        close(game)
    elif envs.by_id:
        known = ACTION_NAMES.get(envs.config.id.rpartition("-v")[0], ())
    start, count = envs.action_start, envs.num_actions
    return list(known) if len(known) == count else [f"action {start + action}" for action in range(count)]
