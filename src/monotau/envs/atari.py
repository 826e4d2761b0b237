"""Atari games under two named protocols, several in one process: what is learned from is what was published."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from monotau.envs.catalog import unknown_id
from monotau.envs.config import ProtocolName
from monotau.envs.games import PREFIX, id_of
from monotau.errors import ConfigError, MissingExtra
from monotau.machine import cores

FRAME_SKIP = 4
FRAMES_PER_EPISODE = 108_000
FRAME = spaces.Box(0, 255, (84, 84), np.uint8)


@final
@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How a game is played. Both skip four frames, take the brighter of the last two, and show 84x84 grey levels."""

    about: str
    sticky: float
    """Probability that the emulator repeats the action before, frame by frame."""
    most_noops: int
    """An episode begins with 0 to so many actions that do nothing."""
    life_loss: bool
    """Whether a life lost ends what is learned from in training, though not the game."""


PROTOCOLS: Mapping[str, Protocol] = {
    "noop": Protocol(about="up to 30 no-ops at reset, no sticky actions", sticky=0.0, most_noops=30, life_loss=True),
    "sticky": Protocol(
        about="actions repeat with probability 0.25, no no-ops", sticky=0.25, most_noops=0, life_loss=False
    ),
}


def is_atari(env_id: str) -> bool:
    """Whether an id is one of the emulator's."""
    return env_id.startswith(PREFIX)


def default_protocol(env_id: str) -> ProtocolName:
    """The paper's for a game, and none for all else."""
    return "noop" if is_atari(env_id) else "none"


def check_protocol(env_id: str, protocol: str, kwargs: Mapping[str, object]) -> None:
    """Refuse a protocol without a game, a game without a protocol, and what would make it another one."""
    if not is_atari(env_id):
        if protocol != "none":
            raise ConfigError(
                f"env.protocol is {protocol!r}, but must be 'none' for {env_id!r}: only Atari games, whose ids begin "
                f"with {PREFIX!r}, have protocols."
            )
        return
    if protocol not in PROTOCOLS:
        raise ConfigError(
            f"env.protocol is {protocol!r}, but must be one of {', '.join(PROTOCOLS)} for {env_id!r}: without its "
            f"protocol a score means nothing."
        )
    if kwargs:
        raise ConfigError(
            f"env.kwargs is {dict(kwargs)}, but must be empty for {env_id!r}: the protocol {protocol!r} settles all of "
            f"them; a callable that makes the environment is free to differ."
        )


def rom_of(env_id: str) -> str:
    """Return the emulator's name of a game, after a look at what it has."""
    try:
        from ale_py import roms  # only now: it is an extra
    except ImportError as error:
        raise MissingExtra(
            f"env.id is {env_id!r}, but the emulator cannot be imported ({error}); pip install 'monotau[atari]'"
        ) from error
    games = {id_of(rom): rom for rom in roms.get_all_rom_ids()}
    if env_id not in games:
        raise unknown_id(env_id, games)
    return games[env_id]


@final
class AtariVector(VectorEnv):
    """Games side by side that reset in the step that ends them; `info` tells lives lost apart from games over.

    Rewards are the game's own. One frame is handed over for each step, since the replay stores each once.
    """

    def __init__(self, env_id: str, num_envs: int, protocol: str, max_steps: int = 0) -> None:
        rom = rom_of(env_id)
        from ale_py.vector_env import AtariVectorEnv

        rules = PROTOCOLS[protocol]
        self._games = AtariVectorEnv(
            rom,
            num_envs,
            num_threads=min(num_envs, cores()),
            max_num_frames_per_episode=FRAME_SKIP * max_steps or FRAMES_PER_EPISODE,
            repeat_action_probability=rules.sticky,
            frameskip=FRAME_SKIP,
            stack_num=1,
            noop_max=rules.most_noops + 1 if rules.most_noops else 0,  # it draws from 0 to one less
            life_loss_info=rules.life_loss,
            reward_clipping=False,  # would lose the score
            use_fire_reset=False,
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
        self.num_envs, self.num_actions = num_envs, len(self._games.ale.get_action_set())
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space, self.single_action_space = FRAME, self._games.single_action_space
        self.observation_space = batch_space(FRAME, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._before_episode = np.zeros(num_envs, np.int64)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start every game, or those of the option `reset_mask` alone."""
        frames, info = self._games.reset(seed=seed, options=options)
        self._before_episode = info["frame_number"] - info["episode_frame_number"]
        return frames[:, 0], {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Play four frames of every game."""
        frames, rewards, ended, truncated, info = self._games.step(actions)
        # The emulator ends a step by a life lost as by a game over, and what it says of lives is of the next game
        # already. But the frames of all games before this one are constant in a game, and only there.
        before_episode = info["frame_number"] - info["episode_frame_number"]
        over = before_episode != self._before_episode
        self._before_episode = before_episode
        about: dict[str, Any] = {"life_lost": ended & ~over}
        if over.any():
            about["final_obs"] = info["final_obs"][:, 0]
        return frames[:, 0], rewards.astype(np.float64), ended & over, truncated, about
