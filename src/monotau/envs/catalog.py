"""The built-in environment ids: our own, MinAtar's, Gymnasium's small ones and Atari's."""

import difflib
import importlib
import importlib.util
import re
from collections.abc import Iterable

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from monotau.envs.games import ATARI57, id_of
from monotau.errors import ConfigError, MissingExtra
from monotau.own_envs import OWN

MINATAR_PREFIX = "MinAtar/"
MINATAR = {
    "Asterix": "collect treasure, avoid enemies",
    "Breakout": "break bricks with a ball",
    "Freeway": "cross a road",
    "Seaquest": "rescue divers, watch the air",
    "SpaceInvaders": "shoot a descending grid of aliens",
}
MINATAR_VERSIONS = {0: "all 6 actions", 1: "only the actions the game uses"}

GYMNASIUM = {
    "CartPole": "balance a pole on a cart",
    "MountainCar": "rock a car out of a valley, -1 per step",
    "Acrobot": "swing a two-link pendulum up, -1 per step",
    "FrozenLake": "cross slippery ice, 4 x 4 states",
    "FrozenLake8x8": "cross slippery ice, 8 x 8 states",
    "CliffWalking": "walk along a cliff, 48 states",
    "CliffWalkingSlippery": "walk along an icy cliff, 48 states",
    "Taxi": "pick up and drop off a passenger, 500 states",
    "LunarLander": "land softly between two flags",
}
BOX2D = {"LunarLander"}
"""The environments among them that are listed only if the extra box2d is installed."""


def own_class(env_id: str) -> type[gym.Env] | None:
    """Return the class of one of our environments, or None for another id."""
    if env_id not in OWN:
        return None
    module, name = OWN[env_id][0].split(":")
    found: type[gym.Env] = getattr(importlib.import_module(f"monotau.envs.{module}"), name)
    return found


def register_minatar() -> None:
    """Register MinAtar's ids with Gymnasium; calling it again has no effect."""
    try:
        import minatar.gym  # imported here because it loads pandas and seaborn, which takes a second
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"env.id begins with {MINATAR_PREFIX!r}, but MinAtar cannot be imported ({error}); "
            f"pip install monotau[minatar]"
        ) from error
    if not any(env_id in gym.registry for env_id, _ in _minatar_envs()):
        minatar.gym.register_envs()


def list_envs() -> list[tuple[str, str]]:
    """Return (id, description) of the environments that the installed packages provide."""
    own = [(env_id, description) for env_id, (_, description) in OWN.items()]
    minatar = _minatar_envs() if importlib.util.find_spec("minatar") else []
    return own + minatar + _gymnasium_envs() + _atari_envs()


def is_emulators(spec: EnvSpec) -> bool:
    """Whether the Atari emulator itself registered an id; such environments do not follow our protocols."""
    return str(spec.entry_point).startswith("ale_py")


def unknown_id(env_id: str, more: Iterable[str] = ()) -> ConfigError:
    """Return the error for an unregistered id, with the closest ids as a hint."""
    known = {env_id for env_id, spec in gym.registry.items() if not is_emulators(spec)}
    ids = {*known, *(listed for listed, _ in list_envs()), *more}
    near = _nearest(env_id, ids)
    hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
    return ConfigError(
        f"env.id {env_id!r} is unknown.{hint} `monotau list envs` shows the built-in ids; "
        f"write the id of an environment in your own package as 'package.module:Env-v0'."
    )


def _minatar_envs() -> list[tuple[str, str]]:
    return [
        (f"{MINATAR_PREFIX}{game}-v{version}", f"MinAtar 10 x 10: {description}; {actions}")
        for game, description in MINATAR.items()
        for version, actions in MINATAR_VERSIONS.items()
    ]


def _atari_envs() -> list[tuple[str, str]]:
    missing = "" if importlib.util.find_spec("ale_py") else "; needs pip install 'monotau[atari]'"
    return [(id_of(game), f"Atari 2600, 84 x 84 grey; protocols noop and sticky{missing}") for game in ATARI57]


def _gymnasium_envs() -> list[tuple[str, str]]:
    """Return the newest version of each environment, because versions differ between Gymnasium's releases."""
    newest: dict[str, int] = {}
    for spec in gym.registry.values():
        if spec.namespace is None and spec.name in GYMNASIUM and spec.version is not None:
            newest[spec.name] = max(spec.version, newest.get(spec.name, 0))
    missing = set() if importlib.util.find_spec("Box2D") else BOX2D
    return [
        (f"{name}-v{newest[name]}", description)
        for name, description in GYMNASIUM.items()
        if name in newest and name not in missing
    ]


def _nearest(given: str, ids: Iterable[str]) -> list[str]:
    """Return up to three ids similar to the given one, ignoring case, with or without the namespace."""
    spellings: dict[str, str] = {}
    for env_id in sorted(ids):
        for spelling in (env_id, env_id.rpartition("/")[2]):
            spellings.setdefault(spelling.lower(), env_id)
    wanted = re.sub("noframeskip|deterministic", "", given.lower())  # as in old ids of Atari games
    near = difflib.get_close_matches(wanted, spellings, n=4, cutoff=0.6)
    return list(dict.fromkeys(spellings[spelling] for spelling in near))[:3]
