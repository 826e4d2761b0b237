"""Reads and writes saved agents: settings and environment spaces in agent.json, weights in weights.safetensors."""

import math
import os
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Int
from torch import Tensor

from monotau.config.imports import check_parts, is_imported, needed
from monotau.config.parse import build
from monotau.config.plain import to_plain
from monotau.config.resolve import resolve_for_spec, split_names
from monotau.config.schema import KINDS, Config
from monotau.envs.atari import default_protocol, is_atari
from monotau.envs.config import EnvConfig
from monotau.envs.make import EnvFactory, EnvSource
from monotau.envs.spec import ObservationSpec
from monotau.errors import ConfigError, MissingExtra, brief
from monotau.learning.agent_networks import AgentNetworks
from monotau.runs.files import Record, check, read_json, to_record, write_json
from monotau.runs.layout import AGENT, BEST_AGENT, CONFIG, differences
from monotau.runs.manifest import newest_agent
from monotau.runs.tensors import check_alike, read_tensors, write_tensors

FORMAT = 3
"""Version of the file format."""
OLDER = {1: "monotau 0.1", 2: "a development version of monotau 0.2"}
"""Older formats, which are no longer supported, and the version that wrote each."""
NOT_SPACES = {"format", "config", "weights"}
"""The fields of agent.json beside those of the environment's signature."""


@dataclass(frozen=True, kw_only=True)
class EnvSignature:
    """The properties of an environment that an agent depends on; agent.json stores them beside the settings."""

    observation: ObservationSpec
    actions: int
    action_start: int
    env_by_id: bool
    action_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        counted = not self.action_sizes or (math.prod(self.action_sizes) == self.actions and not self.action_start)
        if not (possible(self.observation) and counted and min((self.actions, *self.action_sizes)) >= 1):
            raise ConfigError(f"the spaces are {self}, which no environment has.")

    def __str__(self) -> str:
        sizes = f" ({' x '.join(map(str, self.action_sizes))})" if self.action_sizes else ""
        return f"{self.actions} actions{sizes} starting at {self.action_start} and observations {self.observation}"

    @classmethod
    def of(cls, envs: EnvFactory) -> "EnvSignature":
        """Return the signature of a factory's environments."""
        return cls(
            observation=envs.observation_spec,
            actions=envs.num_actions,
            action_start=envs.action_start,
            env_by_id=envs.by_id,
            action_sizes=envs.action_sizes,
        )

    def native(self, actions: Int[np.ndarray, " E"]) -> Int[np.ndarray, "E ..."]:
        """Return actions as the environment takes them: from its own first one, or one number per axis."""
        if self.action_sizes:
            return np.stack(np.unravel_index(actions, self.action_sizes), axis=1)
        return actions + self.action_start


def possible(spec: ObservationSpec) -> bool:
    """Whether an observation space has this format."""
    axes = {"vector": (0, 1, 2, 3), "image": (2, 3), "discrete": range(33), "parts": (1,)}[spec.kind]
    dtypes = {"discrete": ("int64",), "parts": ("uint8",)}.get(spec.kind, ("uint8", "bool", "float32"))
    if len(spec.shape) not in axes or spec.dtype not in dtypes or min((spec.size, *spec.shape)) < 1:
        return False
    if spec.kind != "parts":
        return not spec.parts
    simple = all(part.spec.kind != "parts" and possible(part.spec) for part in spec.parts)
    return simple and spec.shape == (sum(part.bytes for part in spec.parts),)


def is_safe_to_make(env: EnvConfig) -> bool:
    """Whether an environment named in a file can be made without importing a module that the file chooses.

    An id of the form 'module:Env-v0' imports the module, which is safe only if the user has named it. So may a keyword
    argument with a colon, because some environments take the id of another one as an argument.
    """
    texts = [text for text in (env.id, *env.kwargs.values()) if isinstance(text, str)]
    return all(":" not in text or is_imported(text.partition(":")[0]) for text in texts)


def check_env(given: str | None, directory: Path, trained: str) -> None:
    """Raise if the environment that the user names for an agent is another one than that of its training."""
    if given is not None and given.rpartition(":")[2] != trained.rpartition(":")[2]:
        raise ConfigError(
            f"--env is {given}, but the agent in {directory} was trained on {trained}, whose returns it predicts."
        )


def unmade(directory: Path, env: EnvConfig) -> ConfigError:
    """Return the error of a command for an agent that was loaded without its environment; a missing package raises."""
    if is_safe_to_make(env):
        EnvFactory(env)  # raises an error that names the missing package
    return ConfigError(
        f"the environment {env.id} of the agent in {directory} must be named: pass --env ID or --import MODULE."
    )


def write_agent(directory: Path, config: Config, signature: EnvSignature, tensors: Mapping[str, Tensor]) -> None:
    """Write an agent into a directory, which is created if it does not exist."""
    directory.mkdir(parents=True, exist_ok=True)
    weights = write_tensors(directory / "weights.safetensors", tensors)
    about = {"format": FORMAT, "config": config.to_plain(), "weights": list(weights)} | to_plain(signature, KINDS)
    write_json(directory / "agent.json", about)


def read_about(directory: Path) -> tuple[Config, EnvSignature, Record]:
    """Read agent.json: the settings, the signature of the environment and the record of the weights file.

    Anything that `write_agent` cannot have written raises a ConfigError.
    """
    path = directory / "agent.json"
    if not os.path.exists(path):
        unfinished = any(os.path.exists(place / CONFIG) for place in (directory, directory.parent))
        there = "it has no checkpoint yet" if unfinished else "name a run directory or one that Agent.save wrote"
        raise ConfigError(f"there is no agent in {directory}: {there}.")
    about = read_json(path)
    try:
        if (number := about.get("format")) != FORMAT:
            # The type is checked too because True == 1.
            writer = OLDER.get(number) if type(number) is int else None
            written = f", which {writer} wrote, but must be {FORMAT}: load it with that version, or train it again."
            raise ConfigError(f"the format is {brief(number)}{written if writer else f', but must be {FORMAT}.'}")
        if not about.keys() >= NOT_SPACES:
            raise ConfigError(f"the fields are {', '.join(sorted(about))}, but must include config and weights.")
        signature = build(EnvSignature, {name: value for name, value in about.items() if name not in NOT_SPACES})
        preset, profile, plain = split_names(about["config"])
        if preset is None or profile is None:
            raise ConfigError("config must name a preset and a profile.")
        check_parts(preset, plain)
        if isinstance(env := plain.get("env"), dict):  # an agent without the setting was trained without masks
            plain["env"] = {"action_masks": "ignore"} | env
        return resolve_for_spec(preset, profile, plain, signature.observation), signature, to_record(about["weights"])
    except (
        ConfigError,
        ValueError,
        RuntimeError,
    ) as error:  # RuntimeError: torch raises it for sizes beyond the memory
        raise ConfigError(f"{path}: {' '.join(str(error).split())[:400]}") from None


def find_agent(directory: Path, *, best: bool) -> tuple[Path, list[str]]:
    """Return the directory of a run's last or best agent, and messages for the user.

    If the run has not finished, this is its newest undamaged checkpoint. A directory that `Agent.save` wrote is
    returned unchanged.
    """
    if not best and os.path.exists(directory / "agent.json"):
        return directory, []
    if best:
        if not os.path.isdir(directory / BEST_AGENT):
            raise ConfigError(
                f"there is no best agent in {directory}: a run writes {BEST_AGENT} at its first evaluation."
            )
        return directory / BEST_AGENT, []
    if os.path.isdir(directory / AGENT):
        return directory / AGENT, []
    checkpoint, damages = newest_agent(directory)
    if checkpoint is None:
        if damages:
            raise ConfigError(f"there is no agent in {directory}: {damages[0]}")
        return directory, []
    return checkpoint, [*damages, f"the run in {directory} has not finished; using its checkpoint {checkpoint.name}"]


@dataclass(frozen=True, kw_only=True)
class SavedAgent:
    """Everything that a saved agent consists of, and its environment."""

    config: Config
    envs: EnvFactory | None
    """None if the agent can only predict."""
    signature: EnvSignature
    state: dict[str, Tensor]


def open_agent(directory: Path, env: str | EnvSource | None, *, best: bool) -> tuple[SavedAgent, list[str]]:
    """Read the agent of a run or one that was saved, for `env` or its own environment, and messages for the user.

    Without `env`, the agent gets no environment if making that one would import a module that the user has not named.
    """
    directory, notes = find_agent(directory, best=best)
    config, signature, record = read_about(directory)
    # Checked before anything is allocated: the sizes in the settings and in the weights file must agree.
    weights = directory / "weights.safetensors"
    check_alike(weights, AgentNetworks.blank_state(config, signature.observation, signature.actions))
    check(weights, record)
    envs, trained = None, config.env.id
    if isinstance(env, str):
        same = is_atari(env) == is_atari(trained)
        protocol = config.env.protocol if same else default_protocol(env)
        config = replace(config, env=replace(config.env, id=env, protocol=protocol))
    elif env is not None:  # keyword arguments are for making an environment by its id
        config = replace(config, env=replace(config.env, kwargs={}, protocol="none"))
    if env is not None or (signature.env_by_id and is_safe_to_make(config.env)):
        with suppress(MissingExtra) if env is None else nullcontext():  # not needed to predict
            envs = _made(config, None if isinstance(env, str) else env)
    if envs is not None:
        here = replace(EnvSignature.of(envs), env_by_id=signature.env_by_id)
        if here != signature:
            found = differences(to_plain(signature, KINDS), to_plain(here, KINDS))
            raise ConfigError(
                f"env is {envs.name}, but the agent in {directory} was trained on {trained}: they differ in "
                f"{', '.join(found[:5])}{' and more' if len(found) > 5 else ''}."
            )
        signature = replace(here, env_by_id=envs.by_id)
    return SavedAgent(config=config, envs=envs, signature=signature, state=read_tensors(weights)), notes


def _made(config: Config, source: EnvSource | None) -> EnvFactory:
    """Make the environment of a saved agent; if that fails, name the modules that the agent was trained with."""
    try:
        return EnvFactory(config.env, source)
    except ConfigError as error:
        missing = [name for name in config.imports if not is_imported(name)]
        if isinstance(error, MissingExtra) or not missing:
            raise
        raise ConfigError(f"{error} The agent was trained with {needed(missing)}") from None
