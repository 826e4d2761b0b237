"""The settings of an environment, and the interface of environment factories that training relies on."""

from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol, runtime_checkable

import tyro
from gymnasium.vector import VectorEnv

from monotau.envs.masks import MaskUse
from monotau.envs.spec import ObservationSpec
from monotau.errors import ConfigError, brief, check_least

LONGEST_ID = 200

ProtocolName = Literal["none", "noop", "sticky"]


@dataclass(frozen=True, kw_only=True)
class EnvConfig:
    """The environment. A step is one action in one environment."""

    id: Annotated[str, tyro.conf.Fixed] = "CartPole-v1"  # the command line has --env instead
    """Gymnasium id; 'package.module:Env-v0' first imports the module that registers it."""
    num_envs: int = 1
    """Environments stepped in parallel."""
    frame_stack: int = 1
    """Number of stacked observations that the agent sees, newest last."""
    max_episode_steps: int = 0
    """Truncate episodes after this many steps; 0 keeps the limit registered with the id."""
    protocol: ProtocolName = "none"
    """Protocol of Atari games: noop (the paper's) or sticky (arXiv 1709.06009); none for all other environments."""
    kwargs: dict[str, bool | int | float | str | None] = field(default_factory=dict)
    """Keyword arguments of the environment, as in `gymnasium.make`: on the command line names and values in turn, with
    values as in YAML."""
    action_masks: MaskUse = "auto"
    """Masks of allowed actions: use or ignore them; auto uses them if the environment has a method `action_masks`, or
    if `info` of its first reset has an `action_mask`. A run records which of the two it was."""

    def __post_init__(self) -> None:
        """Raise for settings that are out of range."""
        check_least("env.", self, num_envs=1, frame_stack=1, max_episode_steps=0)
        if len(self.id) > LONGEST_ID:
            raise ConfigError(f"env.id is {brief(self.id)}, but must have at most {LONGEST_ID} characters.")

    @property
    def title(self) -> str:
        """The id with everything that a score depends on: the Atari protocol and the keyword arguments."""
        protocol = [] if self.protocol == "none" else [self.protocol]
        return " ".join([self.id, *protocol, *(f"{name}={value}" for name, value in self.kwargs.items())])


@runtime_checkable
class EnvMaker(Protocol):
    """Makes vectors of one kind of environment; `EnvFactory` makes them from an id, a callable or an environment."""

    name: str
    """Name for messages: the id, or the class name if there is no id."""
    observation_spec: ObservationSpec
    """How observations are stored."""
    num_actions: int
    """Number of actions, or of combinations of actions; they are learned as 0 .. num_actions - 1."""
    action_start: int
    """First action of the environment's own action space."""
    masked: bool
    """Whether `info` holds the mask of the allowed actions, under `action_mask`, after every step and reset."""
    lacks_masks: bool
    """Whether the setting says to use masks, but the environment offers none."""
    reusable: bool
    """False if every vector wraps the same environment of the caller, so that only one vector may be used at a time."""

    def make_vector(self, num_envs: int) -> VectorEnv:
        """Make a vector of `num_envs` environments."""
