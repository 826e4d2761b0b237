"""The Python API: an agent for one environment, in a few lines."""

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float, Shaped
from rich.console import Console
from torch import Tensor

from monotau.configs import KINDS, Config
from monotau.distributions import Distribution
from monotau.envs import EnvFactory, EnvSource, ObservationSpec
from monotau.errors import ConfigError
from monotau.evaluate import Evaluation, evaluate
from monotau.log import Line, Log
from monotau.networks import Role
from monotau.networks.factory import prefixed, unprefixed
from monotau.presets import DEFAULT_PRESET, Resolved, resolve, settle
from monotau.progress import Display
from monotau.settings import to_plain
from monotau.storage import read_json, read_tensors, write_json, write_tensors
from monotau.streams import numpy_stream, stream_seed, torch_stream
from monotau.train import Brain, Training, torch_threads

FORMAT = 1
"""Version of what `save` writes."""


class Agent:
    """Learns to act in a Gymnasium environment with discrete actions, and shows the return distributions it learned.

    `env` is an id, an environment or a callable that makes one. Any setting may be given by name, sections as
    dictionaries: `Agent("CartPole-v1", n_step=1, head={"increment": "softplus"})`.
    """

    def __init__(
        self,
        env: str | EnvSource,
        preset: str = DEFAULT_PRESET,
        seed: int = 0,
        *,
        profile: str | None = None,
        verbose: bool = False,
        **overrides: Any,
    ) -> None:
        by_id = isinstance(env, str)
        layers: tuple[dict[str, Any], ...] = ({"env": {"id": env}}, {"seed": seed}) if by_id else ({"seed": seed},)
        resolved = resolve(preset, *layers, overrides, profile=profile, source=None if isinstance(env, str) else env)
        self._start(resolved.config, resolved.envs, by_id, resolved.envs.observation_spec, resolved.envs.num_actions)
        self.verbose = verbose

    @classmethod
    def of(cls, resolved: Resolved) -> "Agent":
        """Make an agent from settled settings and an environment given by id."""
        agent = cls.__new__(cls)
        envs = resolved.envs
        agent._start(resolved.config, envs, True, envs.observation_spec, envs.num_actions)
        return agent

    def _start(self, config: Config, envs: EnvFactory | None, by_id: bool, spec: ObservationSpec, actions: int) -> None:
        self.config, self.envs, self.by_id, self.spec, self.actions = config, envs, by_id, spec, actions
        self.action_start = envs.action_start if envs else 0
        self.brain = Brain(config, spec, actions)
        self._training: Training | None = None
        self._acting = numpy_stream(config.seed, "predict"), torch_stream(config.seed, "predict")
        self.verbose = False

    @property
    def history(self) -> list[Line]:
        """What was logged while learning: the lines of metrics.jsonl."""
        return self._training.log.lines if self._training else []

    def learn(self, total_steps: int, *, evaluated: bool = False) -> Self:
        """Train for so many steps more; `evaluated` adds an evaluation after each iteration to the history."""
        if total_steps < 1 or total_steps % self.config.env.num_envs:
            raise ConfigError(
                f"total_steps is {total_steps}, but must be a positive multiple of env.num_envs "
                f"({self.config.env.num_envs})."
            )
        if self._training is None:
            display = Display(Console(stderr=True) if self.verbose else None)
            self._training = Training(Resolved(self.config, self._envs()), self.brain, Log(), display)
        self._training.run(self._training.step + total_steps, evaluated=evaluated)
        return self

    def evaluate(self, episodes: int = 20) -> Evaluation:
        """Play whole episodes greedily, with the settings of `config.evaluation`."""
        config, (rng, generator) = self.config, self._acting
        settings = to_plain(config.evaluation, KINDS) | {"episodes": episodes, "steps": 0}
        with torch_threads(config.threads):
            return evaluate(
                self._envs(),
                lambda seen: self.brain.greedy.act(seen, config.evaluation.epsilon, rng, generator),
                type(config.evaluation)(**settings),
                stack=config.env.frame_stack,
                seed=stream_seed(int(rng.integers(2**62)), "evaluation environments"),
            )

    def predict(
        self,
        observation: Any,
        state: Shaped[np.ndarray, "..."] | None = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[Any, Shaped[np.ndarray, "..."] | None]:
        """Choose an action for one observation, or one for each of a batch; the signature is Stable-Baselines3's.

        Without `deterministic` it acts as in training: with the exploration bonus and the final epsilon. The second
        value is None, unless frames are stacked and single frames are given: then it is the stack, to be handed back
        as `state` with the next observation (and `episode_start` true where an episode begins).
        """
        stacks, single, state = self._stacks(observation, state, episode_start)
        if deterministic:
            actions = self.brain.greedy.best(stacks, None)
        else:
            actions = self.brain.curious.act(stacks, self.config.epsilon.end, *self._acting)
        actions = actions + self.action_start
        return (actions[0] if single else actions), state

    def distribution(self, observation: Any) -> Distribution:
        """Return distribution of each action, `[A]` for one observation and `[B, A]` for a batch."""
        stacks, single, _ = self._stacks(observation)
        batch = torch.from_numpy(stacks).to(self.brain.device)
        network = self.brain.learner.online
        view = network.look(batch, network.head.fractions(Role.ACT, len(batch), None))
        return view.map(lambda tensor: tensor[0]) if single else view

    def quantiles(self, observation: Any, taus: Any) -> Float[Tensor, "..."]:
        """Quantiles of the return at the fractions `taus` for each action: `[A, M]`, or `[B, A, M]` for a batch."""
        stacks, single, _ = self._stacks(observation)
        batch = torch.from_numpy(stacks).to(self.brain.device)
        fractions = torch.as_tensor(taus, dtype=torch.float32, device=self.brain.device)
        values = self.brain.learner.online.quantiles(batch, fractions)
        return values[0] if single else values

    def bonus(self, observation: Any) -> Float[Tensor, "..."]:
        """Exploration bonus of each action, before its weight c: `[A]`, or `[B, A]` for a batch."""
        stacks, single, _ = self._stacks(observation)
        with torch.no_grad():
            bonus = self.brain.explorer.bonus(torch.from_numpy(stacks).to(self.brain.device), None)
        return bonus[0] if single else bonus

    def save(self, directory: str | Path) -> None:
        """Write the networks and settings, without the replay, into a directory."""
        directory = Path(directory)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            tensors = self.brain.learner.state() | prefixed("explorer", self.brain.explorer.state())
            write_tensors(directory / "weights.safetensors", tensors)
            about = {
                "format": FORMAT,
                "config": self.config.to_plain(),
                "observation": self.spec.to_dict(),
                "actions": self.actions,
                "action_start": self.action_start,
                "env_by_id": self.by_id,
            }
            write_json(directory / "agent.json", about)
        except OSError as error:
            raise ConfigError(f"the agent cannot be saved in {directory}: {error}.") from None

    @classmethod
    def load(cls, directory: str | Path, env: EnvSource | None = None) -> "Agent":
        """Read an agent that `save` wrote; nothing in the files is executed.

        An agent whose environment was not given by id gets it by `env`; without, it can predict but not learn.
        """
        directory = Path(directory)
        about = read_json(directory / "agent.json")
        if about.get("format") != FORMAT:
            raise ConfigError(f"{directory} holds an agent of format {about.get('format')!r}, but must be {FORMAT}.")
        try:
            plain = dict(about["config"])
            preset, profile = plain.pop("preset"), plain.pop("profile")
            spec = ObservationSpec.from_dict(about["observation"])
            actions, start, by_id = int(about["actions"]), int(about["action_start"]), bool(about["env_by_id"])
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{directory / 'agent.json'} is not what an agent's file should be: {error}.") from None
        if by_id or env is not None:
            resolved = resolve(preset, plain, profile=profile, source=env)
            config, envs = resolved.config, resolved.envs
            if envs.observation_spec != spec or envs.num_actions != actions:
                raise ConfigError(
                    f"{envs.name} has {envs.num_actions} actions and observations {envs.observation_spec}, but the "
                    f"agent in {directory} was made for {actions} and {spec}."
                )
        else:
            config, envs = settle(preset, profile, plain, spec), None
        agent = cls.__new__(cls)
        agent._start(config, envs, by_id and env is None, spec, actions)
        agent.action_start = start
        tensors = read_tensors(directory / "weights.safetensors")
        try:
            agent.brain.learner.load_state(tensors)
            agent.brain.explorer.load_state(unprefixed("explorer", tensors))
        except (RuntimeError, KeyError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ConfigError(f"{directory / 'weights.safetensors'} does not fit its settings: {reason}") from None
        return agent

    def _envs(self) -> EnvFactory:
        if self.envs is None:
            raise ConfigError("this agent was loaded without an environment; use Agent.load(directory, env=...).")
        return self.envs

    def _stacks(
        self, observation: Any, state: np.ndarray | None = None, episode_start: Any = None
    ) -> tuple[Shaped[np.ndarray, "B S *frame"], bool, np.ndarray | None]:
        """Bring one observation or a batch, of single frames or whole stacks, to `[B, S, *frame]`."""
        stack, shape = self.config.env.frame_stack, self.spec.shape
        raw = np.asarray(observation)
        axes = len(shape)
        if stack > 1 and raw.shape[-axes - 1 :] == (stack, *shape) and raw.ndim in (axes + 1, axes + 2):
            single = raw.ndim == axes + 1
            whole = raw[None] if single else raw
            flat = self.spec.frame(whole.reshape(-1, *shape))
            return flat.reshape(whole.shape), single, None
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
            going_on = ~np.broadcast_to(np.asarray(False if episode_start is None else episode_start), len(frames))
            stacks[going_on, :-1] = state[going_on, 1:]
        stacks[:, -1] = frames
        return stacks, single, (stacks if stack > 1 else None)
