"""Every setting of a run in one frozen object; the settings of a part stand beside the part."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import tyro

from monotau.envs import EnvConfig
from monotau.errors import ConfigError, check_least
from monotau.explorers import EXPLORERS, EpsilonSchedule, ExplorerConfig
from monotau.networks import HEADS, TORSOS, HeadConfig, TorsoConfig
from monotau.networks.factory import OptimiserConfig
from monotau.replay import REPLAYS, ReplayConfig, Uniform
from monotau.settings import Kinds, to_plain

KINDS: Kinds = {HeadConfig: HEADS, TorsoConfig: TORSOS, ExplorerConfig: EXPLORERS, ReplayConfig: REPLAYS}


@dataclass(frozen=True, kw_only=True)
class UpdateConfig:
    """When and on how much the networks learn."""

    batch_size: int = 32
    """Transitions in an update."""
    every_steps: int = 4
    """Agent steps between updates."""
    sync_every_steps: int = 8_000
    """Agent steps between copies of the online network into the target network."""

    def __post_init__(self) -> None:
        check_least("update.", self, batch_size=1, every_steps=1, sync_every_steps=1)


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Evaluation after iterations, on environments of its own, with no bonus and on raw rewards."""

    every_iterations: int = 1
    """Iterations between evaluations; the last iteration of a run always has one."""
    episodes: int = 20
    """Episodes at least."""
    steps: int = 0
    """Agent steps at least; the episode that reaches them is finished."""
    epsilon: float = 0.001
    """Probability of a random action."""
    num_envs: int = 1
    """Environments evaluated together; each plays its own share of the episodes, so short ones are not favoured."""
    episode_cap_steps: int = 27_000
    """An evaluation episode longer than this is cut and counted as it stands."""

    def __post_init__(self) -> None:
        check_least("evaluation.", self, every_iterations=1, episodes=1, steps=0, num_envs=1, episode_cap_steps=1)
        if not 0 <= self.epsilon <= 1:
            raise ConfigError(f"evaluation.epsilon is {self.epsilon}, but must be a probability, from 0 to 1.")


@dataclass(frozen=True, kw_only=True)
class Config:
    """A run. A step is one decision of the agent: four emulator frames on Atari."""

    preset: Annotated[str, tyro.conf.Fixed]
    profile: Annotated[str, tyro.conf.Fixed]
    env: EnvConfig = field(default_factory=EnvConfig)
    steps: int = 50_000
    """Agent steps to train for."""
    seed: int = 0
    """Every random number of the run follows from it."""
    gamma: float = 0.99
    """Discount of a step."""
    n_step: int = 3
    """Rewards summed before the target network is asked."""
    double_q: bool = True
    """Let the online network choose the next action of a target (False: the target network does, the paper's Eq. 6)."""
    iteration_steps: int = 5_000
    """Training steps between checkpoints; an iteration starts with fresh environments."""
    log_every_steps: int = 1_000
    """Training steps between two lines of kind train in metrics.jsonl."""
    noisy: bool = False
    """Give the head's layers noise of learned size (NoisyNet), under any explorer; evaluation is without it."""
    dueling: bool = False
    """Split the head into a value that all actions share and advantages, under any head."""
    precision: Literal["fp32", "bf16", "auto"] = "fp32"
    """Arithmetic of the large products; bf16 keeps weights in fp32, and auto takes it where the hardware has it."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where networks live; auto takes a GPU if there is one."""
    compile: bool = False
    """Compile what learning computes with torch.compile; where that fails, the run goes on without it and says so."""
    threads: int = 1
    """CPU threads of torch; 0 takes every core. Small networks are fastest with one."""
    torso: TorsoConfig
    head: HeadConfig
    explorer: ExplorerConfig
    epsilon: EpsilonSchedule = field(default_factory=EpsilonSchedule)
    replay: ReplayConfig = field(default_factory=Uniform)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    update: UpdateConfig = field(default_factory=UpdateConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self) -> None:
        check_least("", self, steps=1, seed=0, n_step=1, iteration_steps=1, log_every_steps=1, threads=0)
        self.explorer.check(self.head)
        if not 0 <= self.gamma <= 1:
            raise ConfigError(f"gamma is {self.gamma}, but must be from 0 to 1: beyond 1 returns do not converge.")
        for name in ("steps", "iteration_steps"):
            if getattr(self, name) % self.env.num_envs:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}, but must be a multiple of env.num_envs ({self.env.num_envs}): "
                    "all environments are stepped together."
                )

    def to_plain(self) -> dict[str, Any]:
        """Return all settings as plain values: what `config.json` holds."""
        return to_plain(self, KINDS)
