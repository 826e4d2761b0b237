"""Untrusted agents: loading one executes nothing, allocates little, and fails with a single line."""

import json
import shutil
import struct
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest

from monotau.agent import Agent
from monotau.config.presets import PRESETS
from monotau.config.resolve import resolve
from monotau.errors import ConfigError
from monotau.learning.agent_networks import AgentNetworks
from monotau.runs.agent_files import is_safe_to_make, read_about
from monotau.runs.tensors import NAMES
from tests.support.hostile_files import HUGE, ODDITIES, TENSORS, TEXTS, replaced, sparse


@pytest.fixture
def agent(loader, tmp_path) -> Path:
    """A copy of a valid agent."""
    return Path(shutil.copytree(loader.agent, tmp_path / "agent"))


def edited(path: Path, where: str, value: Any) -> None:
    """Change one entry of a JSON file."""
    whole = entry = json.loads(path.read_text())
    *outer, last = where.split("/")
    for name in outer:
        entry = entry[name]
    entry[last] = value
    path.write_text(json.dumps(whole))


def test_loading_a_valid_agent_only_reads_files(loader):
    assert loader.ask("load", loader.agent)["value"] == 2
    assert loader.ask("load", loader.run / "best_agent")["value"] == 2


def test_the_loader_process_records_everything_that_could_execute_data(loader):
    seen = {event.split()[0] for event in loader.ask("control", loader.agent)["events"]}
    wanted = {"pickle.find_class", "compile", "exec", "marshal.loads", "socket.__new__", "subprocess.Popen", "import"}
    assert wanted <= seen


@pytest.mark.parametrize("kind", [*TENSORS, *ODDITIES, *HUGE])
def test_hostile_weights_are_refused(kind, loader, agent):
    path = agent / "weights.safetensors"
    replaced(path, TENSORS[kind]() if kind in TENSORS else (ODDITIES | HUGE)[kind])
    assert "weights.safetensors" in loader.refusal("load", agent)


@pytest.mark.parametrize("kind", [*TEXTS, *ODDITIES])
def test_hostile_settings_are_refused(kind, loader, agent):
    path = agent / "agent.json"
    replaced(path, TEXTS[kind]() if kind in TEXTS else ODDITIES[kind])
    message = loader.refusal("load", agent)
    assert "agent.json" in message or "there is no agent in" in message


ABSURD = [
    ("config/head/hidden", 10**7),
    ("config/head/hidden", 10**9),
    ("config/head/hidden", 2**62),
    ("config/head/cosines", 10**9),
    ("config/head/knots", 10**9),
    ("config/head/support", [0.1] * 100_000),
    ("config/head", {"kind": "qr", "quantiles": 10**9}),
    ("config/head", {"kind": "c51", "atoms": 10**9}),
    ("config/head", {"kind": "fqf", "quantiles": 10**9}),
    ("config/head", {"kind": "implicit-sorted", "noise": 10**9}),
    ("config/explorer", {"kind": "deep-dpe", "views": 10**9}),
    ("config/torso/layers", 100),
    ("config/torso/layers", 10**6),
    ("config/torso/width", 10**9),
    ("config/torso", {"kind": "nature"}),
    ("config/env/frame_stack", 10**9),
    ("config/env/frame_stack", 2**62),
    ("config/env/num_envs", 10**9),
    ("config/env/id", "x" * 900_000),
    ("config/env/id", "CartPole-v1/" * 20_000),
    ("config/env", {"id": "monotau/DeepSea-v0", "kwargs": {"size": 100_000}}),
    ("config/env", {"id": "monotau/Grid-v0", "kwargs": {"size": 100_000}}),
    ("config/env/kwargs", {"x" * 100_000: 1}),
    ("config/" + "x" * 100_000, 1),
    ("config/head/kind", "x" * 100_000),
    ("config/gamma", float("nan")),
    ("actions", 10**9),
    ("actions", 2**62),
    ("observation/shape", [10**6, 10**6]),
    ("observation/shape", [2**62, 2**62]),
    ("observation", {"kind": "discrete", "shape": [], "dtype": "int64", "size": 10**12}),
    ("observation", {"kind": "image", "shape": [10**6, 10**6, 3], "dtype": "uint8", "channels_last": True}),
]


@pytest.mark.parametrize(("where", "value"), ABSURD, ids=lambda value: str(value)[:50])
def test_absurd_sizes_are_refused_before_anything_is_allocated(where, value, loader, agent):
    path = agent / "agent.json"
    if where == "observation":
        value = {"channels_last": False, "scale": 1.0, "size": 1, "start": 0} | value
    edited(path, where, value)
    loader.refusal("load", agent)


HARMLESS = [
    ("config/replay/capacity_steps", 10**15),
    ("config/head/online_fractions", 10**9),
    ("config/update/batch_size", 10**15),
    ("config/n_step", 10**15),
    ("config/env/id", "os:Nothing-v0"),
    ("config/env/id", "antigravity:Nothing-v0"),
    ("config/env", {"id": "GymV26Environment-v0", "kwargs": {"env_id": "antigravity:Nothing-v0"}}),
]


@pytest.mark.parametrize(("where", "value"), HARMLESS, ids=str)
def test_loading_ignores_settings_that_it_does_not_need(where, value, loader, agent):
    edited(agent / "agent.json", where, value)
    assert loader.ask("load", agent)["value"] == 2


def test_an_environment_is_made_for_a_file_only_if_nothing_in_it_names_a_module(loader):
    env = read_about(loader.agent)[0].env
    assert is_safe_to_make(env)
    assert is_safe_to_make(replace(env, kwargs={"size": 4, "stochastic": True, "cost": 0.5, "map_name": "8x8"}))
    assert not is_safe_to_make(replace(env, kwargs={"size": 4, "env_id": "module:Env-v0"}))
    assert not is_safe_to_make(replace(env, id="module:Env-v0"))


def test_weights_larger_than_the_memory_are_refused_even_if_the_settings_agree(loader, agent):
    edited(agent / "agent.json", "config/head/hidden", 10**9)
    config, signature, _ = read_about(agent)
    entries: dict[str, Any] = {}
    end = 0
    for name, tensor in AgentNetworks.blank_state(config, signature.observation, signature.actions).items():
        dtype = str(tensor.dtype).removeprefix("torch.")
        start, end = end, end + tensor.itemsize * prod(tensor.shape)
        entries[name] = {"dtype": NAMES[dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(entries).encode()
    sparse(agent / "weights.safetensors", struct.pack("<Q", len(text)) + text, 8 + len(text) + end)
    message = loader.refusal("load", agent)
    assert f"weights.safetensors holds {end} bytes of tensors, but this machine has " in message


@pytest.mark.parametrize("layers", [{}, {"noisy": True, "dueling": True}], ids=["plain", "noisy and dueling"])
@pytest.mark.parametrize("preset", PRESETS)
def test_the_blank_state_has_the_names_types_and_shapes_of_real_networks(preset, layers):
    resolved = resolve(preset, layers)
    about = resolved.config, resolved.envs.observation_spec, resolved.envs.num_actions
    blank, real = AgentNetworks.blank_state(*about), AgentNetworks(*about).state()
    assert {name: (tensor.dtype, tensor.shape) for name, tensor in blank.items()} == {
        name: (tensor.dtype, tensor.shape) for name, tensor in real.items()
    }


def test_the_directory_of_an_agent_may_be_a_link(loader, tmp_path):
    (tmp_path / "link").symlink_to(loader.agent)
    assert loader.ask("load", tmp_path / "link")["value"] == 2


def test_sizes_whose_product_overflows_are_refused(loader, agent):
    edited(agent / "agent.json", "config/head/hidden", 2**62)
    assert "no network can have the sizes in the settings: " in loader.refusal("load", agent)
    with pytest.raises(ConfigError, match="no network can have the sizes in the settings: "):
        Agent.load(agent)
