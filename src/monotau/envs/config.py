"""The settings of an environment, and what training needs to know of a factory of environments."""

from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol, runtime_checkable

import tyro
from gymnasium.vector import VectorEnv

from monotau.envs.spec import ObservationSpec
from monotau.errors import ConfigError, brief, check_least

LONGEST_ID = 200

ProtocolName = Literal["none", "noop", "sticky"]


@dataclass(frozen=True, kw_only=True)
class EnvConfig:
    """The environment. A step is one action in one environment."""

    id: Annotated[str, tyro.conf.Fixed] = "CartPole-v1"  # the command line has --env for it
    """Gymnasium id; 'package.module:Env-v0' imports the module that registers it first."""
    num_envs: int = 1
    """Environments that are stepped together."""
    frame_stack: int = 1
    """Observations that the agent sees at once, the newest last."""
    max_episode_steps: int = 0
    """Truncate episodes after this many steps, instead of the limit registered with the id; 0 keeps that one."""
    protocol: ProtocolName = "none"
    """How Atari games are played: noop, the paper's, or sticky (arXiv 1709.06009); none is for all else."""
    kwargs: dict[str, bool | int | float | str] = field(default_factory=dict)
    """Keyword arguments of the environment, as in `gymnasium.make`."""

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        check_least("env.", self, num_envs=1, frame_stack=1, max_episode_steps=0)
        if len(self.id) > LONGEST_ID:
            raise ConfigError(f"env.id is {brief(self.id)}, but must have at most {LONGEST_ID} characters.")

    @property
    def title(self) -> str:
        """The id with everything that a score depends on: the protocol of Atari, and keyword arguments."""
        protocol = [] if self.protocol == "none" else [self.protocol]
        return " ".join([self.id, *protocol, *(f"{name}={value}" for name, value in self.kwargs.items())])


@runtime_checkable
class EnvMaker(Protocol):
    """Makes vectors of one kind of environment; `EnvFactory` does so from an id, a callable or an environment."""

    name: str
    """For messages: the id, or the class of an environment that has none."""
    observation_spec: ObservationSpec
    """How observations are stored."""
    num_actions: int
    """Size of the Discrete action space; actions are learned as 0 .. num_actions - 1."""
    action_start: int
    """First action of the environment's own action space."""
    reusable: bool
    """False if every vector holds the same borrowed environment, so that only one of them may be in use."""

    def make_vector(self, num_envs: int) -> VectorEnv:
        """Make a vector of so many environments."""
