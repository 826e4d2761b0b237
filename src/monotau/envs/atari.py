"""Atari games, vectorised in one process, under the two evaluation protocols of the literature."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import gymnasium as gym
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
"""What the agent sees."""
SCREEN = spaces.Box(0, 255, (210, 160, 3), np.uint8)
"""What a player of the console would see."""


@final
@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How a game is played. Both protocols skip four frames, max-pool the last two, and give 84x84 greyscale images."""

    about: str
    sticky: float
    """Probability, per frame, that the emulator repeats the previous action."""
    most_noops: int
    """Maximum number of random no-ops at the start of an episode."""
    life_loss: bool
    """Whether losing a life ends the episode for learning, while the game continues."""


PROTOCOLS: Mapping[str, Protocol] = {
    "noop": Protocol(about="up to 30 no-ops at reset, no sticky actions", sticky=0.0, most_noops=30, life_loss=True),
    "sticky": Protocol(
        about="sticky actions with probability 0.25, no no-ops", sticky=0.25, most_noops=0, life_loss=False
    ),
}


def is_atari(env_id: str) -> bool:
    """Whether an id names an Atari game."""
    return env_id.startswith(PREFIX)


def default_protocol(env_id: str) -> ProtocolName:
    """Return the paper's protocol for Atari games and `none` for other environments."""
    return "noop" if is_atari(env_id) else "none"


def check_protocol(env_id: str, protocol: str, kwargs: Mapping[str, object]) -> None:
    """Raise for a protocol without an Atari game, a game without a protocol, and arguments that would alter it."""
    if not is_atari(env_id):
        if protocol != "none":
            raise ConfigError(
                f"env.protocol is {protocol!r}, but must be 'none' for {env_id!r}: only Atari games, whose ids begin "
                f"with {PREFIX!r}, have protocols."
            )
        return
    if protocol not in PROTOCOLS:
        raise ConfigError(
            f"env.protocol is {protocol!r}, but must be one of {', '.join(PROTOCOLS)} for {env_id!r}: Atari scores "
            f"are comparable only under the same protocol."
        )
    if kwargs:
        raise ConfigError(
            f"env.kwargs is {dict(kwargs)}, but must be empty for {env_id!r}: the protocol {protocol!r} sets all "
            f"arguments; to use others, pass a callable that makes the environment."
        )


def rom_of(env_id: str) -> str:
    """Return the emulator's name of a game, and raise if it has no such game."""
    try:
        from ale_py import roms  # imported here because it is an extra
    except ImportError as error:
        raise MissingExtra(
            f"env.id is {env_id!r}, but the emulator cannot be imported ({error}); pip install 'monotau[atari]'"
        ) from error
    games = {id_of(rom): rom for rom in roms.get_all_rom_ids()}
    if env_id not in games:
        raise unknown_id(env_id, games)
    return games[env_id]


@final
class StickyFrames(gym.Wrapper):
    """Repeats the previous action with a given probability, drawn for every frame, as the emulator does."""

    def __init__(self, env: gym.Env, probability: float) -> None:
        super().__init__(env)
        self.probability = probability
        self.last_action: Any = 0
        self.generator = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a game; a seed is also that of the generator."""
        self.last_action = 0
        if seed is not None:
            self.generator = np.random.default_rng(seed)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play one frame."""
        if self.probability == 0 or self.generator.random() >= self.probability:
            self.last_action = action
        return self.env.step(self.last_action)


def single_game(env_id: str, protocol: str) -> gym.Env:
    """Make one game whose emulator can be reached, with the frames of `AtariVector` but without a limit of its length.

    Actions stick by a generator of this process instead of the emulator's, which could not be seeded without loading
    the game again. If there are no-ops at reset, there is at least one.
    """
    rom_of(env_id)
    import ale_py

    gym.register_envs(ale_py)
    rules = PROTOCOLS[protocol]
    emulator = gym.make(
        env_id,
        frameskip=1,
        repeat_action_probability=0.0,
        max_num_frames_per_episode=0,
        full_action_space=False,
        max_episode_steps=-1,
        disable_env_checker=True,
    )
    try:
        return gym.wrappers.AtariPreprocessing(
            StickyFrames(emulator, rules.sticky),
            noop_max=rules.most_noops,
            frame_skip=FRAME_SKIP,
            screen_size=FRAME.shape[0],
        )
    except gym.error.DependencyNotInstalled as error:
        raise MissingExtra(
            f"env.id is {env_id!r}, but OpenCV, which single games need, cannot be imported ({error.__cause__}); "
            f"pip install 'monotau[atari]'"
        ) from error


@final
class AtariVector(VectorEnv):
    """A vector of games with SAME_STEP autoreset, whose `info` tells a lost life from the end of the game.

    Rewards are not clipped. A step returns one frame instead of a stack, because the replay stores every frame once.
    With `colour`, frames are the screen of the console instead of what the agent sees. Games with the same seed and
    actions are the same, in colour or not.
    """

    def __init__(self, env_id: str, num_envs: int, protocol: str, max_steps: int = 0, *, colour: bool = False) -> None:
        rom = rom_of(env_id)
        from ale_py.vector_env import AtariVectorEnv

        rules, space = PROTOCOLS[protocol], SCREEN if colour else FRAME
        self._games = AtariVectorEnv(
            rom,
            num_envs,
            num_threads=min(num_envs, cores()),
            max_num_frames_per_episode=FRAME_SKIP * max_steps or FRAMES_PER_EPISODE,
            repeat_action_probability=rules.sticky,
            frameskip=FRAME_SKIP,
            img_height=space.shape[0],
            img_width=space.shape[1],
            grayscale=not colour,
            stack_num=1,
            noop_max=rules.most_noops + 1 if rules.most_noops else 0,  # draws from 0 to noop_max - 1
            life_loss_info=rules.life_loss,
            reward_clipping=False,  # clipping would lose the score
            use_fire_reset=False,
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
        self.num_envs = num_envs
        self.action_names = tuple(action.name.lower() for action in self._games.ale.get_action_set())
        self.num_actions = len(self.action_names)
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space, self.single_action_space = space, self._games.single_action_space
        self.observation_space = batch_space(space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._before_episode = np.zeros(num_envs, np.int64)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Reset every game, or only those in the option `reset_mask`."""
        frames, info = self._games.reset(seed=seed, options=options)
        self._before_episode = info["frame_number"] - info["episode_frame_number"]
        return frames[:, 0], {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Play four frames of every game."""
        frames, rewards, ended, truncated, info = self._games.step(actions)
        # The emulator reports a lost life like the end of the game, and its count of lives is already that of the next
        # game. But the number of frames in all previous games changes exactly when a game ends.
        before_episode = info["frame_number"] - info["episode_frame_number"]
        over = before_episode != self._before_episode
        self._before_episode = before_episode
        about: dict[str, Any] = {"life_lost": ended & ~over}
        if over.any():
            about["final_obs"] = info["final_obs"][:, 0]
        return frames[:, 0], rewards.astype(np.float64), ended & over, truncated, about
