"""`Config`, every setting of a run in one frozen object; the settings of a part are defined beside the part."""

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from jaxtyping import Float

from monotau.config.plain import Kinds, to_plain
from monotau.envs.config import EnvConfig
from monotau.errors import ConfigError, check_least, check_positive
from monotau.explorers import EXPLORERS, EpsilonSchedule, ExplorerConfig
from monotau.networks import HEADS, TORSOS, HeadConfig, TorsoConfig
from monotau.networks.compile import CompileSetting
from monotau.networks.optimiser import OptimiserConfig
from monotau.replay import REPLAYS, ReplayConfig, Uniform

LOCAL = "local"
"""Address of a Ray of one's own on this machine, for actors and suites."""

KINDS: Kinds = {HeadConfig: HEADS, TorsoConfig: TORSOS, ExplorerConfig: EXPLORERS, ReplayConfig: REPLAYS}


MOST_THREADS = 1_024
"""With many more threads than any machine has cores, the operating system kills the process."""
SMALLEST_UNIT = 1e-30
"""Least return_scale; the largest is its inverse. Returns in units beyond them overflow float32."""


@dataclass(frozen=True, kw_only=True)
class UpdateConfig:
    """Updates of the online and target networks."""

    batch_size: int = 32
    """Transitions per update."""
    every_steps: int = 4
    """Agent steps between updates."""
    sync: Literal["copy", "average"] = "copy"
    """Target updates: periodic copies, or Polyak averaging."""
    sync_every_steps: int = 8_000
    """Agent steps between copies into the target network, or the time constant of Polyak averaging."""
    average: float = 0.0
    """Evaluate and save a running average of the online network over about this share of all updates so far; 0 uses the
    online network itself."""

    def __post_init__(self) -> None:
        check_least("update.", self, batch_size=1, every_steps=1, sync_every_steps=1)
        if not 0 <= self.average <= 1:
            raise ConfigError(f"update.average is {self.average}, but must be a share from 0 to 1.")

    @property
    def sync_share(self) -> float:
        """The coefficient of Polyak averaging: the share of the online weights that an update mixes into the target."""
        return min(1.0, self.every_steps / self.sync_every_steps)

    def average_share(self, updates: int) -> float:
        """Share of the online weights that the update after `updates` others mixes into the running average."""
        return 1 / max(1.0, self.average * (updates + 1))


@dataclass(frozen=True, kw_only=True)
class MunchausenConfig:
    """Munchausen targets, for any head: a soft policy, whose log-probability of the taken action adds to the reward.

    Vieillard, Pietquin, Geist 2020, arXiv 2007.14430.
    """

    alpha: float = 0.0
    """Weight of the log-probability; the paper's is 0.9, and 0 turns Munchausen off."""
    temperature: float = 0.03
    """Temperature of the softmax policy over mean returns, in the unit of returns."""
    clip: float = -1.0
    """Lower bound of temperature times log-probability, l_0, in the unit of returns."""

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ConfigError(f"munchausen.alpha is {self.alpha}, but must be a weight from 0 to 1.")
        check_positive("munchausen.", self, "temperature")
        if not (math.isfinite(self.clip) and self.clip < 0):
            raise ConfigError(
                f"munchausen.clip is {self.clip}, but must be a finite number below 0: log-probabilities are negative."
            )


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Evaluation in separate environments between iterations, without exploration bonus and on raw rewards."""

    every_iterations: int = 1
    """Iterations between evaluations; the last iteration of a run is always evaluated."""
    episodes: int = 20
    """Minimum number of episodes."""
    steps: int = 0
    """Minimum number of agent steps; the episode that reaches it is played to its end."""
    epsilon: float = 0.001
    """Probability of a random action."""
    num_envs: int = 1
    """Environments evaluated in parallel; each plays a fixed number of episodes, so short ones are not favoured."""
    episode_cap_steps: int = 27_000
    """Maximum length of an evaluation episode; a longer one is truncated, and counts with its return so far."""

    def __post_init__(self) -> None:
        check_least("evaluation.", self, every_iterations=1, episodes=1, steps=0, num_envs=1, episode_cap_steps=1)
        if not 0 <= self.epsilon <= 1:
            raise ConfigError(f"evaluation.epsilon is {self.epsilon}, but must be a probability, from 0 to 1.")


@dataclass(frozen=True, kw_only=True)
class ActorConfig:
    """Actor processes that collect experience while this process learns, as in Ape-X (Horgan et al. 2018).

    `actors` sets their number. The final epsilon of environment j of L is epsilon ** (1 + power * j / (L - 1)).
    """

    send_every_steps: int = 32
    """Steps per environment in each batch that an actor sends; an actor pauses while two batches are unread."""
    broadcast_every_updates: int = 100
    """Updates between broadcasts of the network weights to the actors."""
    epsilon: float = 0.4
    """Final epsilon of the environment that explores most; replaces epsilon.end."""
    power: float = 7.0
    """How fast the final epsilon falls from the first environment to the last; 0 gives all the same epsilon."""
    cpus: float = 1.0
    """CPUs that Ray reserves for each actor; a fraction suits environments that mostly wait."""
    patience_seconds: float = 300.0
    """An actor that sends nothing for this long is replaced."""

    def __post_init__(self) -> None:
        check_least("actor.", self, send_every_steps=1, broadcast_every_updates=1, power=0, cpus=0)
        check_positive("actor.", self, "patience_seconds")
        if not 0 <= self.epsilon <= 1:
            raise ConfigError(f"actor.epsilon is {self.epsilon}, but must be a probability, from 0 to 1.")
        for name in ("power", "cpus"):
            if not math.isfinite(getattr(self, name)):
                raise ConfigError(f"actor.{name} is {getattr(self, name)}, but must be a finite number.")

    def epsilons(self, lanes: int) -> Float[np.ndarray, " L"]:
        """Return the final epsilon of each environment; a single environment takes the middle of the range."""
        place = np.linspace(0.0, 1.0, lanes) if lanes > 1 else np.array([0.5])
        return np.asarray(self.epsilon ** (1 + self.power * place))


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of a run. A step is one decision of the agent: four emulator frames on Atari."""

    preset: Annotated[str, tyro.conf.Fixed]
    profile: Annotated[str, tyro.conf.Fixed]
    imports: Annotated[tuple[str, ...], tyro.conf.Fixed] = ()  # the command line has --import instead
    env: EnvConfig = field(default_factory=EnvConfig)
    steps: int = 50_000
    """Agent steps to train for."""
    seed: int = 0
    """Seed of every random number of the run."""
    gamma: float = 0.99
    """Discount factor per step."""
    n_step: int = 3
    """n of the n-step return."""
    cut_at_random: bool = False
    """End n-step returns before the next random action, so that they do not measure the cost of exploring."""
    double_q: bool = True
    """Double Q-learning: the online network selects the next action (False: the target network, the paper's Eq. 6)."""
    return_scale: float | None = None
    """Unit of learned returns, kappa and bonuses; by default estimated from the rewards. Output is in raw rewards."""
    scale_observations: bool = True
    """Normalise vector observations to mean 0 and standard deviation 1, with running statistics of replayed steps."""
    iteration_steps: int = 5_000
    """Training steps between checkpoints; each iteration starts with new environments."""
    log_every_steps: int = 1_000
    """Training steps between lines of kind `train` in metrics.jsonl."""
    noisy: bool = False
    """Use noisy linear layers (NoisyNet) in the head, with any explorer; evaluation uses no noise."""
    dueling: bool = False
    """Use dueling streams, a state value and advantages, with any head."""
    precision: Literal["fp32", "bf16", "auto"] = "fp32"
    """Precision of matrix products; bf16 keeps the weights in fp32, and auto uses bf16 if the hardware supports it."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of the networks; auto uses a GPU if there is one."""
    compile: CompileSetting = "auto"
    """Compile the update with torch.compile; auto does so for vectors, discrete states and small images on a CPU with a
    C++ compiler, if the run has at least 20,000 updates. If compiling fails, the run warns and continues without."""
    actors: int = 0
    """Ray processes that collect experience while this process learns, each in env.num_envs environments; 0: none."""
    threads: int = 1
    """CPU threads of torch; 0 uses all cores. Small networks are fastest with one."""
    torso: TorsoConfig
    head: HeadConfig
    explorer: ExplorerConfig
    epsilon: EpsilonSchedule = field(default_factory=EpsilonSchedule)
    replay: ReplayConfig = field(default_factory=Uniform)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    update: UpdateConfig = field(default_factory=UpdateConfig)
    munchausen: MunchausenConfig = field(default_factory=MunchausenConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    actor: ActorConfig = field(default_factory=ActorConfig)

    def __post_init__(self) -> None:
        check_least("", self, steps=1, seed=0, n_step=1, iteration_steps=1, log_every_steps=1, threads=0)
        if self.threads > MOST_THREADS:
            raise ConfigError(f"threads is {self.threads}, but must be at most {MOST_THREADS}; 0 uses all cores.")
        check_least("", self, actors=0)
        self.explorer.check(self.head)
        if self.return_scale is not None and not SMALLEST_UNIT <= self.return_scale <= 1 / SMALLEST_UNIT:
            raise ConfigError(
                f"return_scale is {self.return_scale}, but must be a finite number above 0: it is the unit of returns, "
                f"from {SMALLEST_UNIT:g} to {1 / SMALLEST_UNIT:g}; leave it out to estimate it from the rewards."
            )
        if not self.actors and self.actor != ActorConfig():
            raise ConfigError("actor.* settings are given, but actors is 0, so they would have no effect.")
        if not self.munchausen.alpha and self.munchausen != MunchausenConfig():
            raise ConfigError(
                "munchausen.* settings are given, but munchausen.alpha is 0, so they would have no effect."
            )
        if self.munchausen.alpha and self.double_q:
            raise ConfigError(
                f"munchausen.alpha is {self.munchausen.alpha} and double_q is on, but a Munchausen target averages "
                "over all next actions instead of choosing one, so there is nothing to choose by another network: turn "
                "double_q off."
            )
        if not 0 <= self.gamma <= 1:
            raise ConfigError(f"gamma is {self.gamma}, but must be from 0 to 1: above 1 returns do not converge.")
        for name in ("steps", "iteration_steps"):
            if getattr(self, name) % self.env.num_envs:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}, but must be a multiple of env.num_envs ({self.env.num_envs}): "
                    "all environments are stepped together."
                )

    @property
    def planned_updates(self) -> int:
        """The number of updates in `steps` steps."""
        return max(0, self.steps - self.replay.warmup_steps) // self.update.every_steps

    @property
    def lanes(self) -> int:
        """The number of training environments, over all actors."""
        return self.env.num_envs * max(1, self.actors)

    def to_plain(self) -> dict[str, Any]:
        """Return all settings as plain values, as in `config.json`; `imports` only if there are any."""
        plain = to_plain(self, KINDS)
        if not self.imports:  # most runs have none, and runs of versions without this setting stay as they are
            del plain["imports"]
        return plain
