"""An agent's directory: its settings and what it was made for in agent.json, its numbers in weights.safetensors."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from torch import Tensor

from monotau.config.parse import override, to_plain
from monotau.config.presets import settle, take_names
from monotau.config.schema import KINDS, Config
from monotau.envs import EnvConfig, EnvFactory, ObservationSpec
from monotau.errors import ConfigError, brief
from monotau.runs.files import Record, read_json, to_record, write_json
from monotau.runs.tensors import write_tensors

FORMAT = 2
"""Version of what is written."""
OLDER = {1: "monotau 0.1"}
"""What wrote formats that are not read any more."""


@dataclass(frozen=True, kw_only=True)
class MadeFor:
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
    def of(cls, envs: EnvFactory) -> "MadeFor":
        """Look at environments."""
        actions, start = envs.num_actions, envs.action_start
        return cls(observation=envs.observation_spec, actions=actions, action_start=start, env_by_id=envs.by_id)


_ANY_SPEC = ObservationSpec("vector", (1,), "float32", channels_last=False, scale=1.0, size=1)
_ANYTHING = MadeFor(observation=_ANY_SPEC, actions=1, action_start=0, env_by_id=False)


def is_harmless(env: EnvConfig) -> bool:
    """Whether an environment may be made because a file says so: a stranger must not choose what is run.

    An id of the form 'module:Env-v0' imports the module, and so may text with a colon among the arguments, which some
    environments take for the id of another.
    """
    return not any(":" in text for text in (env.id, *env.kwargs.values()) if isinstance(text, str))


def write_agent(directory: Path, config: Config, made_for: MadeFor, tensors: Mapping[str, Tensor]) -> None:
    """Write an agent into a directory, which is made if need be."""
    directory.mkdir(parents=True, exist_ok=True)
    weights = write_tensors(directory / "weights.safetensors", tensors)
    about = {"format": FORMAT, "config": config.to_plain(), "weights": list(weights)} | to_plain(made_for, KINDS)
    write_json(directory / "agent.json", about)


def read_about(directory: Path) -> tuple[Config, MadeFor, Record]:
    """Read the settings, what the agent was made for and what its weights are.

    What `write_agent` could not have written is refused.
    """
    path = directory / "agent.json"
    if not os.path.exists(path):
        unfinished = any(os.path.exists(place / "config.json") for place in (directory, directory.parent))
        there = "the run there has not finished" if unfinished else "name a run directory or one that Agent.save wrote"
        raise ConfigError(f"there is no agent in {directory}: {there}.")
    about = read_json(path)
    names = {"format", "config", "weights", *(field.name for field in fields(MadeFor))}
    try:
        if (number := about.get("format")) != FORMAT:
            # By type too: True is a key of that table.
            writer = OLDER.get(number) if type(number) is int else None
            written = f", which {writer} wrote, but must be {FORMAT}: load it by that version, or train anew."
            raise ConfigError(f"the format is {brief(number)}{written if writer else f', but must be {FORMAT}.'}")
        if about.keys() != names:
            raise ConfigError(f"the fields are {', '.join(sorted(about))}, but must be {', '.join(sorted(names))}.")
        preset, profile, plain = take_names(about["config"])
        if preset is None or profile is None:
            raise ConfigError("config must name a preset and a profile.")
        made_for = override(_ANYTHING, {name: about[name] for name in names - {"format", "config", "weights"}}, KINDS)
        ObservationSpec.from_dict(about["observation"])  # refuses fields left out, which `override` would fill
        return settle(preset, profile, plain, made_for.observation), made_for, to_record(about["weights"])
    except (
        ConfigError,
        ValueError,
        RuntimeError,
    ) as error:  # RuntimeError: torch, for sizes beyond memory
        raise ConfigError(f"{path}: {' '.join(str(error).split())[:400]}") from None
