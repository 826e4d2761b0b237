"""Every setting of a run in one frozen object; the settings of a part stand beside the part."""

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from jaxtyping import Float

from monotau.config.parse import Kinds, to_plain
from monotau.envs.config import EnvConfig
from monotau.errors import ConfigError, check_least, check_positive
from monotau.explorers import EXPLORERS, EpsilonSchedule, ExplorerConfig
from monotau.networks import HEADS, TORSOS, HeadConfig, TorsoConfig
from monotau.networks.optimiser import OptimiserConfig
from monotau.replay import REPLAYS, ReplayConfig, Uniform

KINDS: Kinds = {HeadConfig: HEADS, TorsoConfig: TORSOS, ExplorerConfig: EXPLORERS, ReplayConfig: REPLAYS}


@dataclass(frozen=True, kw_only=True)
class UpdateConfig:
    """When and on how much the networks learn."""

    batch_size: int = 32
    """Transitions in an update."""
    every_steps: int = 4
    """Agent steps between updates."""
    sync: Literal["copy", "average"] = "copy"
    """How the target network follows the online network: copy replaces it every sync_every_steps; average moves it a
    little at each update (Polyak averaging, over about sync_every_steps), and evaluates and saves this average."""
    sync_every_steps: int = 8_000
    """Agent steps between copies of the online network into the target network, or the time constant of the average."""

    def __post_init__(self) -> None:
        check_least("update.", self, batch_size=1, every_steps=1, sync_every_steps=1)

    @property
    def average_share(self) -> float:
        """Share of the online weights that an update mixes into an averaged target network."""
        return min(1.0, self.every_steps / self.sync_every_steps)


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
    """An evaluation episode that gets so long is cut and counted as it stands, and its environment reset."""

    def __post_init__(self) -> None:
        check_least("evaluation.", self, every_iterations=1, episodes=1, steps=0, num_envs=1, episode_cap_steps=1)
        if not 0 <= self.epsilon <= 1:
            raise ConfigError(f"evaluation.epsilon is {self.epsilon}, but must be a probability, from 0 to 1.")


@dataclass(frozen=True, kw_only=True)
class ActorConfig:
    """Processes that act while another learns, as in Ape-X (Horgan et al. 2018); `actors` says how many.

    Environment j of all L of them ends with epsilon ** (1 + power * j / (L - 1)) of its actions random.
    """

    send_every_steps: int = 32
    """Steps of each environment that an actor sends at a time; it waits while two such sendings are not taken."""
    broadcast_every_updates: int = 100
    """Updates between two broadcasts of the networks to the actors."""
    epsilon: float = 0.4
    """Random actions of the most curious environment, instead of epsilon.end."""
    power: float = 7.0
    """How much less curious the last environment is: 0 makes all alike."""
    cpus: float = 1.0
    """What an actor asks for of a cluster; a fraction where its environments mostly wait."""
    patience_seconds: float = 300.0
    """An actor that sends nothing for so long is replaced."""

    def __post_init__(self) -> None:
        check_least("actor.", self, send_every_steps=1, broadcast_every_updates=1, power=0, cpus=0)
        check_positive("actor.", self, "patience_seconds")
        if not 0 <= self.epsilon <= 1:
            raise ConfigError(f"actor.epsilon is {self.epsilon}, but must be a probability, from 0 to 1.")
        for name in ("power", "cpus"):
            if not math.isfinite(getattr(self, name)):
                raise ConfigError(f"actor.{name} is {getattr(self, name)}, but must be a finite number.")

    def epsilons(self, lanes: int) -> Float[np.ndarray, " L"]:
        """Return what share of its actions each environment takes at random in the end; a lone one is in the middle."""
        place = np.linspace(0.0, 1.0, lanes) if lanes > 1 else np.array([0.5])
        return np.asarray(self.epsilon ** (1 + self.power * place))


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
    return_scale: float | None = None
    """Unit in which returns are learned, and in which kappa and the weight of bonuses count; by default it is measured
    from the rewards. What is shown is in raw rewards."""
    scale_observations: bool = True
    """Scale the numbers of vectors to mean 0 and deviation 1, by running statistics of the replayed steps."""
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
    actors: int = 0
    """Processes of Ray that act, each in env.num_envs environments, while this one learns; 0 does all in this one."""
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
    actor: ActorConfig = field(default_factory=ActorConfig)

    def __post_init__(self) -> None:
        check_least("", self, steps=1, seed=0, n_step=1, iteration_steps=1, log_every_steps=1, threads=0)
        check_least("", self, actors=0)
        self.explorer.check(self.head)
        if self.return_scale is not None and not (math.isfinite(self.return_scale) and self.return_scale > 0):
            raise ConfigError(
                f"return_scale is {self.return_scale}, but must be a finite number above 0: it is the unit of returns; "
                "leave it out to have it measured."
            )
        if not self.actors and self.actor != ActorConfig():
            raise ConfigError("there are settings for actors, but actors is 0, so that nobody would heed them.")
        if not 0 <= self.gamma <= 1:
            raise ConfigError(f"gamma is {self.gamma}, but must be from 0 to 1: beyond 1 returns do not converge.")
        for name in ("steps", "iteration_steps"):
            if getattr(self, name) % self.env.num_envs:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}, but must be a multiple of env.num_envs ({self.env.num_envs}): "
                    "all environments are stepped together."
                )

    @property
    def lanes(self) -> int:
        """How many environments are trained in, at all places."""
        return self.env.num_envs * max(1, self.actors)

    def to_plain(self) -> dict[str, Any]:
        """Return all settings as plain values: what `config.json` holds."""
        return to_plain(self, KINDS)
