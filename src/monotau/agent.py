"""The Python API: an agent for one environment, in a few lines."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from jaxtyping import Float, Shaped
from rich.console import Console
from torch import Tensor

from monotau.config.parse import to_plain
from monotau.config.presets import DEFAULT_PRESET
from monotau.config.resolve import Resolved, resolve
from monotau.config.schema import KINDS, Config
from monotau.distributed.collector import make_collector
from monotau.distributed.connect import LOCAL
from monotau.distributions import MEAN, Distribution, Risk
from monotau.envs import EnvFactory, EnvSource
from monotau.envs.atari import default_protocol, is_atari
from monotau.errors import ConfigError, MissingExtra, StorageFault, brief
from monotau.learning.agent_networks import AgentNetworks
from monotau.learning.evaluate import Evaluation, evaluate
from monotau.learning.policy import Policy
from monotau.learning.train import Training
from monotau.networks import Role
from monotau.networks.devices import one_thread, torch_threads
from monotau.runs.agent_files import MadeFor, is_harmless, read_about, write_agent
from monotau.runs.files import check
from monotau.runs.memory import plan_memory
from monotau.runs.metrics import Line, Log
from monotau.runs.progress import Display
from monotau.runs.tensors import check_alike, read_tensors
from monotau.seeding import numpy_stream, stream_seed, torch_stream


class Agent:
    """Learns to act in a Gymnasium environment with discrete actions, and shows the return distributions it learned.

    `env` is an id, an environment or a callable that makes one. Any setting may be given by name, sections as
    dictionaries: `Agent("CartPole-v1", n_step=1, head={"increment": "softplus"})`. Only the section env goes by another
    name, `env_settings`.
    """

    def __init__(
        self,
        env: str | EnvSource,
        preset: str = DEFAULT_PRESET,
        seed: int = 0,
        *,
        profile: str | None = None,
        env_settings: Mapping[str, Any] | None = None,
        verbose: bool = False,
        **overrides: Any,
    ) -> None:
        section = dict(env_settings or {})
        resolved = resolve_for(env, preset, overrides | {"seed": seed, "env": section}, profile)
        self._start(resolved.config, resolved.envs, MadeFor.of(resolved.envs))
        self.verbose = verbose

    @classmethod
    def of(cls, resolved: Resolved) -> "Agent":
        """Make an agent from settled settings."""
        agent = cls.__new__(cls)
        agent._start(resolved.config, resolved.envs, MadeFor.of(resolved.envs))
        return agent

    def _start(self, config: Config, envs: EnvFactory | None, made_for: MadeFor) -> None:
        self.config, self.envs, self._made_for = config, envs, made_for
        self.spec, self.actions = made_for.observation, made_for.actions
        self.networks = AgentNetworks(config, self.spec, self.actions)
        self._training: Training | None = None
        self._acting = numpy_stream(config.seed, "predict"), torch_stream(config.seed, "predict")
        self.verbose = False

    @property
    def history(self) -> list[Line]:
        """What was logged while learning: the lines of metrics.jsonl."""
        return self._training.log.lines if self._training else []

    @property
    def steps(self) -> int:
        """How many steps it has learned from."""
        return self._training.step if self._training else 0

    @property
    def unit(self) -> float:
        """Raw reward that the networks' 1 stands for; every number that this class returns is in raw rewards."""
        return self.networks.unit.value

    def learn(self, total_steps: int, *, evaluated: bool = False, force: bool = False, ray: str = LOCAL) -> "Agent":
        """Train for so many steps more; `evaluated` adds the evaluations to the history.

        A replay that the machine has no memory for is refused before the first step, unless forced. `ray` is where
        `actors` run: 'local', 'auto' or 'host:port'.
        """
        if not isinstance(total_steps, int) or total_steps < 1 or total_steps % self.config.env.num_envs:
            raise ConfigError(
                f"total_steps is {total_steps}, but must be a positive multiple of env.num_envs "
                f"({self.config.env.num_envs})."
            )
        if self._training is None:
            display = Display(Console(stderr=True) if self.verbose else None)
            plan_memory(Resolved(self.config, self._envs()), display.say, force=force, ray=ray)
            self._training = self.start_training(Log(), display, ray)
        training, goal = self._training, self._training.step + total_steps
        with training.session(goal):
            while training.iterate(goal):
                if evaluated and training.evaluation_due(goal):
                    training.evaluate()
        return self

    def start_training(self, log: Log, display: Display, ray: str = LOCAL) -> Training:
        """Return a training of this agent's networks at step 0; nothing has been collected yet."""
        envs = self._envs()
        collector = make_collector(self.config, envs, self.networks, display.say, ray)
        return Training(self.config, envs, self.networks, collector, log, display)

    def evaluate(
        self,
        episodes: int = 20,
        on_episode: Callable[[int], None] = lambda done: None,
        *,
        risk: str = "mean",
        alpha: float | None = None,
        eta: float | None = None,
    ) -> Evaluation:
        """Play whole episodes greedily, with the settings of `config.evaluation`; tells how many are done, if asked.

        `risk` and its parameter are those of `predict`.
        """
        config, policy, (rng, generator) = self.config, self._greedy(Risk(risk, alpha, eta)), self._acting
        settings = to_plain(config.evaluation, KINDS) | {"episodes": episodes, "steps": 0}
        with torch_threads(config.threads):
            return evaluate(
                self._envs(),
                lambda seen: policy.act(seen, config.evaluation.epsilon, rng, generator),
                type(config.evaluation)(**settings),
                stack=config.env.frame_stack,
                seed=stream_seed(int(rng.integers(2**62)), "evaluation environments"),
                on_episode=on_episode,
            )

    @one_thread()
    def predict(
        self,
        observation: Any,
        state: Shaped[np.ndarray, "..."] | None = None,
        episode_start: Any = None,
        deterministic: bool = True,
        *,
        risk: str = "mean",
        alpha: float | None = None,
        eta: float | None = None,
    ) -> tuple[Any, Shaped[np.ndarray, "..."] | None]:
        """Choose an action for one observation, or one for each of a batch; the signature is Stable-Baselines3's.

        Without `deterministic` it acts as in training: with the exploration bonus and the final epsilon. The second
        value is None, unless frames are stacked and single frames are given: then it is the stack, to be handed back
        as `state` with the next observation (and `episode_start` true where an episode begins).

        `risk` is the measure of the return that decides, with its parameter: `risk="cvar", alpha=0.1` takes the action
        whose worst tenth of returns is best, `risk="wang", eta=0.75` seeks risk; `monotau.distributions.RISKS` names
        all. The returns are those that were learned, of acting by the mean from the next step on.
        """
        measure = Risk(risk, alpha, eta)
        stacks, single, state = self._stacks(observation, state, episode_start)
        if deterministic:
            actions = self._greedy(measure).best(stacks, None)
        elif measure != MEAN:
            raise ConfigError(
                f"risk is {risk!r}, but without deterministic the explorer decides: leave out one of the two."
            )
        else:
            actions = self.networks.exploration_policy.act(stacks, self.config.epsilon.end, *self._acting)
        actions = actions + self._made_for.action_start
        return (actions[0] if single else actions), state

    def distribution(self, observation: Any) -> Distribution:
        """Return distribution of each action, `[A]` for one observation and `[B, A]` for a batch."""
        stacks, single, _ = self._stacks(observation)
        batch, network = torch.from_numpy(stacks).to(self.networks.device), self.networks.evaluated
        view = network.predict(batch, network.fractions(Role.ACT, len(batch), None))
        view = view.affine(*(torch.full(view.batch_shape, number, device=batch.device) for number in (self.unit, 0.0)))
        return view.map(lambda tensor: tensor[0]) if single else view

    def quantiles(self, observation: Any, taus: Any) -> Float[Tensor, "..."]:
        """Quantiles of the return at the fractions `taus` for each action: `[A, M]`, or `[B, A, M]` for a batch."""
        stacks, single, _ = self._stacks(observation)
        batch = torch.from_numpy(stacks).to(self.networks.device)
        fractions = torch.as_tensor(taus, dtype=torch.float32)
        if fractions.ndim != 1 or not ((fractions >= 0) & (fractions <= 1)).all():
            raise ConfigError(f"taus is {brief(taus)}, but must be a list of fractions from 0 to 1.")
        values = self.networks.evaluated.quantiles(batch, fractions.to(self.networks.device)) * self.unit
        return values[0] if single else values

    def bonus(self, observation: Any) -> Float[Tensor, "..."]:
        """Exploration bonus of each action, before its weight c: `[A]`, or `[B, A]` for a batch."""
        stacks, single, _ = self._stacks(observation)
        with torch.no_grad():
            bonus = self.networks.explorer.bonus(torch.from_numpy(stacks).to(self.networks.device), None) * self.unit
        return bonus[0] if single else bonus

    def save(self, directory: str | Path) -> None:
        """Write the networks and settings, without the replay, into a directory."""
        try:
            self.write(Path(directory))
        except OSError as error:
            raise StorageFault(f"the agent cannot be saved in {directory}: {error}.") from None

    def write(self, directory: Path) -> None:
        """Do as `save` does, and leave it to the caller to say what it means that the disk does not take it."""
        write_agent(directory, self.config, self._made_for, self.networks.state())

    @classmethod
    def load(cls, directory: str | Path, env: str | EnvSource | None = None) -> "Agent":
        """Read an agent that `save` wrote; nothing in the files is executed.

        `env` takes the place of the agent's environment. An agent whose environment was not given by id, or by an id
        that names a module to import, needs it: without, it can predict but not learn.
        """
        directory = Path(directory)
        config, made_for, record = read_about(directory)
        # Before anything is made: settings and weights must agree about sizes, so that neither lies about the memory.
        weights = directory / "weights.safetensors"
        check_alike(weights, AgentNetworks.blank_state(config, made_for.observation, made_for.actions))
        check(weights, record)
        envs, source = None, None if isinstance(env, str) else env
        if isinstance(env, str):
            same = is_atari(env) == is_atari(config.env.id)
            protocol = config.env.protocol if same else default_protocol(env)
            config = replace(config, env=replace(config.env, id=env, protocol=protocol))
        elif env is not None:  # keyword arguments are for making an environment by its id
            config = replace(config, env=replace(config.env, kwargs={}, protocol="none"))
        if env is not None or (made_for.env_by_id and is_harmless(config.env)):
            with suppress(MissingExtra) if env is None else nullcontext():  # it can do without, until it is to play
                envs = EnvFactory(config.env, source)
        if envs is not None:
            here = MadeFor.of(envs)
            if replace(here, env_by_id=made_for.env_by_id) != made_for:
                raise ConfigError(f"the agent in {directory} is for {made_for}, but {envs.name} has {here}.")
            made_for = here
        agent = cls.__new__(cls)
        agent._start(config, envs, made_for)
        agent.networks.load_state(read_tensors(weights))
        return agent

    def _greedy(self, risk: Risk) -> Policy:
        return Policy(self.networks.evaluated, self.actions, risk=risk)

    def _envs(self) -> EnvFactory:
        if self.envs is None:
            if self._made_for.env_by_id and is_harmless(self.config.env):
                EnvFactory(self.config.env)  # says which package is missing
            raise ConfigError(
                f"this agent was loaded without its environment ({self.config.env.id}), which is not made from a file: "
                "name it by Agent.load(directory, env=...) or monotau evaluate --env."
            )
        return self.envs

    def _stacks(
        self, observation: Any, state: np.ndarray | None = None, episode_start: Any = None
    ) -> tuple[Shaped[np.ndarray, "B S *frame"], bool, np.ndarray | None]:
        """Bring one observation or a batch, of single frames or whole stacks, to `[B, S, *frame]`."""
        stack, shape = self.config.env.frame_stack, self.spec.shape
        raw = np.asarray(observation)
        axes = len(shape)
        # A batch as long as a stack looks like one stack; with a word about episodes it is a batch.
        batched = raw.ndim == axes + 2 or state is not None or episode_start is not None
        if stack > 1 and raw.shape[-axes - 1 :] == (stack, *shape) and raw.ndim == axes + 1 + batched:
            whole = raw if batched else raw[None]
            flat = self.spec.frame(whole.reshape(-1, *shape))
            return flat.reshape(whole.shape), not batched, None
        single = raw.ndim == axes
        if raw.shape[raw.ndim - axes :] != shape or raw.ndim not in (axes, axes + 1):
            raise ConfigError(
                f"the observation has shape {raw.shape}, but must be {shape}, or a batch of them"
                + (f", or stacks of {stack}" if stack > 1 else "")
                + "."
            )
        frames = self.spec.frame(raw[None] if single else raw)
        stacks = np.zeros((len(frames), stack, *shape), dtype=self.spec.dtype)
        if stack > 1 and state is not None:
            if state.shape != stacks.shape:
                raise ConfigError(
                    f"state has shape {state.shape}, but must be {stacks.shape}, as predict returned it for the "
                    "observations before these."
                )
            starts = np.asarray(False if episode_start is None else episode_start, dtype=bool)
            going_on = ~np.broadcast_to(starts, len(frames))
            stacks[going_on, :-1] = state[going_on, 1:]
        stacks[:, -1] = frames
        return stacks, single, (stacks if stack > 1 else None)


def resolve_for(env: str | EnvSource, preset: str, layer: Mapping[str, Any], profile: str | None) -> Resolved:
    """Settle the settings for an environment given by its id, ready made, or by what makes it."""
    if isinstance(env, str):
        section = dict(layer.get("env", {})) | {"id": env}
        return resolve(preset, dict(layer) | {"env": section}, profile=profile)
    if not (isinstance(env, gym.Env) or callable(env)):
        raise ConfigError(f"env is {brief(env)}, but must be an id, a gymnasium.Env or a callable that makes one.")
    return resolve(preset, layer, profile=profile, source=env)
