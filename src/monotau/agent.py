"""The Python API: an agent for one environment, in a few lines."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
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
from monotau.presets import DEFAULT_PRESET, Resolved, resolve, settle, take_names
from monotau.progress import Display
from monotau.settings import brief, override, to_plain
from monotau.storage import read_json, read_tensors, write_json, write_tensors
from monotau.streams import numpy_stream, stream_seed, torch_stream
from monotau.train import Brain, Training, torch_threads

FORMAT = 1
"""Version of what `save` writes."""


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
        by_id = isinstance(env, str)
        if not (by_id or isinstance(env, gym.Env) or callable(env)):
            raise ConfigError(f"env is {brief(env)}, but must be an id, a gymnasium.Env or a callable that makes one.")
        section = dict(env_settings or {}) | ({"id": env} if by_id else {})
        layer = overrides | {"seed": seed, "env": section}
        resolved = resolve(preset, layer, profile=profile, source=None if isinstance(env, str) else env)
        self._start(resolved.config, resolved.envs, _MadeFor.of(resolved.envs, by_id=by_id))
        self.verbose = verbose

    @classmethod
    def of(cls, resolved: Resolved) -> "Agent":
        """Make an agent from settled settings and an environment given by id."""
        agent = cls.__new__(cls)
        agent._start(resolved.config, resolved.envs, _MadeFor.of(resolved.envs, by_id=True))
        return agent

    def _start(self, config: Config, envs: EnvFactory | None, made_for: "_MadeFor") -> None:
        self.config, self.envs, self._made_for = config, envs, made_for
        self.spec, self.actions = made_for.observation, made_for.actions
        self.brain = Brain(config, self.spec, self.actions)
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

    def learn(self, total_steps: int, *, evaluated: bool = False) -> "Agent":
        """Train for so many steps more; `evaluated` adds an evaluation after each iteration to the history."""
        if not isinstance(total_steps, int) or total_steps < 1 or total_steps % self.config.env.num_envs:
            raise ConfigError(
                f"total_steps is {total_steps}, but must be a positive multiple of env.num_envs "
                f"({self.config.env.num_envs})."
            )
        if self._training is None:
            display = Display(Console(stderr=True) if self.verbose else None)
            self._training = Training(Resolved(self.config, self._envs()), self.brain, Log(), display)
        self._training.run(self._training.step + total_steps, evaluated=evaluated)
        return self

    def evaluate(self, episodes: int = 20, on_episode: Callable[[int], None] = lambda done: None) -> Evaluation:
        """Play whole episodes greedily, with the settings of `config.evaluation`; tells how many are done, if asked."""
        config, (rng, generator) = self.config, self._acting
        settings = to_plain(config.evaluation, KINDS) | {"episodes": episodes, "steps": 0}
        with torch_threads(config.threads):
            return evaluate(
                self._envs(),
                lambda seen: self.brain.greedy.act(seen, config.evaluation.epsilon, rng, generator),
                type(config.evaluation)(**settings),
                stack=config.env.frame_stack,
                seed=stream_seed(int(rng.integers(2**62)), "evaluation environments"),
                on_episode=on_episode,
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
        actions = actions + self._made_for.action_start
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
        if fractions.ndim != 1 or not ((fractions >= 0) & (fractions <= 1)).all():
            raise ConfigError(f"taus is {brief(taus)}, but must be a list of fractions from 0 to 1.")
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
            about = {"format": FORMAT, "config": self.config.to_plain()} | to_plain(self._made_for, KINDS)
            write_json(directory / "agent.json", about)
        except OSError as error:
            raise ConfigError(f"the agent cannot be saved in {directory}: {error}.") from None

    @classmethod
    def load(cls, directory: str | Path, env: str | EnvSource | None = None) -> "Agent":
        """Read an agent that `save` wrote; nothing in the files is executed.

        `env` takes the place of the agent's environment. An agent whose environment was not given by id, or by an id
        that names a module to import, needs it: without, it can predict but not learn.
        """
        directory = Path(directory)
        config, made_for = _read_about(directory / "agent.json")
        envs, source = None, None if isinstance(env, str) else env
        if isinstance(env, str):
            config = replace(config, env=replace(config.env, id=env))
        elif env is not None:  # keyword arguments are for making an environment by its id
            config = replace(config, env=replace(config.env, kwargs={}))
        # An id of the form 'module:Env-v0' imports the module: a stranger's file must not choose what is run.
        if env is not None or (made_for.env_by_id and ":" not in config.env.id):
            envs = EnvFactory(config.env, source)
            here = _MadeFor.of(envs, by_id=source is None)
            if replace(here, env_by_id=made_for.env_by_id) != made_for:
                raise ConfigError(f"the agent in {directory} is for {made_for}, but {envs.name} has {here}.")
            made_for = here
        tensors = read_tensors(directory / "weights.safetensors")
        agent = cls.__new__(cls)
        try:
            agent._start(config, envs, made_for)
            agent.brain.learner.load_state(tensors)
            agent.brain.explorer.load_state(unprefixed("explorer", tensors))
        except (RuntimeError, KeyError) as error:  # RuntimeError: sizes that differ, or that no memory could hold
            reason = " ".join(str(error).split())[:200]
            raise ConfigError(f"{directory / 'weights.safetensors'} does not fit its settings: {reason}") from None
        return agent

    def _envs(self) -> EnvFactory:
        if self.envs is None:
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


@dataclass(frozen=True, kw_only=True)
class _MadeFor:
    """The environment as far as an agent depends on it; what agent.json holds beside the settings."""

    observation: ObservationSpec
    actions: int
    action_start: int
    env_by_id: bool

    def __post_init__(self) -> None:
        spec = self.observation
        axes = {"vector": (0, 1, 2, 3), "image": (2, 3), "discrete": (0,)}[spec.kind]
        dtypes = ("int64",) if spec.kind == "discrete" else ("uint8", "bool", "float32")
        if len(spec.shape) not in axes or spec.dtype not in dtypes or min(spec.size, *spec.shape, self.actions) < 1:
            raise ConfigError(f"no environment has {self}.")

    def __str__(self) -> str:
        return f"{self.actions} actions from {self.action_start} and observations {self.observation}"

    @classmethod
    def of(cls, envs: EnvFactory, *, by_id: bool) -> "_MadeFor":
        """Look at environments."""
        actions, start = envs.num_actions, envs.action_start
        return cls(observation=envs.observation_spec, actions=actions, action_start=start, env_by_id=by_id)


_ANY_SPEC = ObservationSpec("vector", (1,), "float32", channels_last=False, scale=1.0, size=1)
_ANYTHING = _MadeFor(observation=_ANY_SPEC, actions=1, action_start=0, env_by_id=False)


def _read_about(path: Path) -> tuple[Config, _MadeFor]:
    """Read the settings and what the agent was made for; what `save` could not have written is refused."""
    about = read_json(path)
    names = {"format", "config", *(field.name for field in fields(_MadeFor))}
    try:
        if (number := about.get("format")) != FORMAT:
            raise ConfigError(f"the format is {brief(number)}, but must be {FORMAT}.")
        if about.keys() != names:
            raise ConfigError(f"the fields are {', '.join(sorted(about))}, but must be {', '.join(sorted(names))}.")
        preset, profile, plain = take_names(about["config"])
        if preset is None or profile is None:
            raise ConfigError("config must name a preset and a profile.")
        made_for = override(_ANYTHING, {name: about[name] for name in names - {"format", "config"}}, KINDS)
        ObservationSpec.from_dict(about["observation"])  # refuses fields left out, which `override` would fill
        return settle(preset, profile, plain, made_for.observation), made_for
    except (ConfigError, RuntimeError) as error:  # RuntimeError: torch, for images that no memory could hold
        raise ConfigError(f"{path}: {' '.join(str(error).split())[:400]}") from None
