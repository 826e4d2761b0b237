"""Exported graphs give what the agent predicts, for every preset and every kind of observation."""

import json
import os

import numpy as np
import onnxruntime
import pytest
import torch
from gymnasium import spaces

from monotau import Agent, Risk
from monotau.config.presets import PRESETS
from monotau.errors import ConfigError, MissingExtra, StorageFault
from monotau.export import ABOUT, count_below
from tests.support.envs import Frames
from tests.support.small_runs import briefly_learned

SIZES = ((1, 1), (5, 2), (2, 9))
"""Numbers of observations and of fractions, unequal and other than those of the example the graph is traced with."""


def observations(agent, count, seed=0):
    """Return random observations as `predict` takes them, whole stacks if frames are stacked."""
    rng, spec, stack = np.random.default_rng(seed), agent.spec, agent.config.env.frame_stack
    shape = (count, *([stack] if stack > 1 else []), *spec.shape)
    if spec.kind == "discrete":
        return rng.integers(spec.start, spec.start + spec.size, size=shape)
    if spec.dtype == "float32":
        return rng.standard_normal(shape).astype(np.float32)
    return rng.integers(256 if spec.dtype == "uint8" else 2, size=shape).astype(spec.dtype)


def run_onnx(path):
    session = onnxruntime.InferenceSession(path)
    return lambda seen, taus: dict(
        zip(("means", "quantiles", "risk"), session.run(None, {"observations": seen, "taus": taus}), strict=True)
    )


def run_torch(path):
    program = torch.export.load(path).module()
    return lambda seen, taus: {
        name: output.numpy() for name, output in program(torch.from_numpy(seen), torch.from_numpy(taus)).items()
    }


def check(agent, run, risk):
    """Compare a graph with the agent, for batches of several sizes."""
    for count, fractions in SIZES:
        seen = observations(agent, count, seed=count)
        taus = np.random.default_rng(fractions).random(fractions, dtype=np.float32)
        returns = agent.distribution(seen)
        wanted = {"means": returns.mean(), "quantiles": agent.quantiles(seen, taus), "risk": risk.of(returns)}
        got, scale = run(seen, taus), float(returns.magnitude().max())
        for name, values in wanted.items():
            np.testing.assert_allclose(got[name], values.numpy(), rtol=0, atol=1e-5 * scale, err_msg=name)
    assert np.ptp(got["means"]) > 0


def marked(fast):
    """Return all presets; those that are not among the fast ones are slow."""
    return [pytest.param(name, marks=[] if name in fast else [pytest.mark.slow]) for name in PRESETS]


@pytest.mark.parametrize("preset", marked({"ndqfn-dpe", "fqf"}))
def test_every_preset_predicts_the_same_in_onnx(preset, tmp_path):
    agent = briefly_learned(preset, return_scale=7.0)
    assert agent.networks.scaling.batches > 0
    agent.export_onnx(tmp_path / "agent.onnx", alpha=0.3)
    check(agent, run_onnx(tmp_path / "agent.onnx"), Risk("cvar", 0.3))


@pytest.mark.parametrize("preset", marked({"ndqfn-dpe", "rainbow"}))
def test_every_preset_predicts_the_same_as_a_program_of_torch(preset, tmp_path):
    agent = briefly_learned(preset, return_scale=7.0)
    agent.export_torch(tmp_path / "agent.pt2", alpha=0.3)
    check(agent, run_torch(tmp_path / "agent.pt2"), Risk("cvar", 0.3))


SPACES = {
    "discrete": (spaces.Discrete(5, start=2), 1),
    "stacked vectors": (spaces.Box(-1, 1, (2,), np.float32), 3),
    "colour images": (spaces.Box(0, 255, (6, 7, 2), np.uint8), 1),
    "stacked grey images": (spaces.Box(0, 255, (40, 40), np.uint8), 4),
    "masks": (spaces.Box(0, 1, (6, 6, 3), np.bool_), 1),
    "numbers": (spaces.Box(-1, 1, (), np.float32), 1),
}


@pytest.mark.parametrize("name", SPACES)
def test_a_graph_takes_raw_observations_of_every_kind(name, tmp_path):
    space, stack = SPACES[name]
    agent = Agent(lambda: Frames(space), "dqn", env_settings={"frame_stack": stack}, head={"hidden": 8})
    agent.export_onnx(tmp_path / "agent.onnx", risk="mean")
    check(agent, run_onnx(tmp_path / "agent.onnx"), Risk())


@pytest.mark.parametrize(
    "risk", ["wang", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("upper-cvar", "power"))]
)
def test_other_risk_measures_are_exported(risk, tmp_path):
    agent = briefly_learned("ndqfn")
    agent.export_torch(tmp_path / "agent.pt2", risk=risk)
    check(agent, run_torch(tmp_path / "agent.pt2"), Risk(risk))
    if risk == "wang":
        with pytest.raises(ConfigError, match=r"risk is 'wang', but ONNX has no operator .* use the format torch"):
            agent.export_onnx(tmp_path / "agent.onnx", risk=risk)
    else:
        agent.export_onnx(tmp_path / "agent.onnx", risk=risk)
        check(agent, run_onnx(tmp_path / "agent.onnx"), Risk(risk))


def test_observations_with_parts_are_refused(tmp_path):
    agent = Agent(lambda: Frames(spaces.Dict(a=spaces.Discrete(3), b=spaces.Box(-1, 1, (2,)))), "dqn")
    for export in (agent.export_onnx, agent.export_torch):
        with pytest.raises(ConfigError, match="the observations are a Dict or Tuple, but an exported graph takes one"):
            export(tmp_path / "agent")
    assert not any(tmp_path.iterdir())


def test_a_graph_is_in_fp32_and_the_agent_stays_as_it_is(tmp_path):
    agent = briefly_learned("ndqfn", precision="bf16")
    seen = observations(agent, 4)
    before = agent.distribution(seen).mean()
    agent.export_torch(tmp_path / "agent.pt2")
    assert torch.equal(agent.distribution(seen).mean(), before)
    means = run_torch(tmp_path / "agent.pt2")(seen, np.float32([0.5]))["means"]
    assert not np.array_equal(means, before.numpy())
    np.testing.assert_allclose(means, before.numpy(), rtol=0.05, atol=0.05)


def test_files_name_their_axes_and_describe_the_agent(tmp_path):
    agent = Agent(lambda: Frames(first_action=5), "dqn", head={"hidden": 8})
    agent.export_onnx(tmp_path / "agent.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "agent.onnx")
    assert {each.name: each.shape for each in (*session.get_inputs(), *session.get_outputs())} == {
        "observations": ["batch", 2],
        "taus": ["fractions"],
        "means": ["batch", 3],
        "quantiles": ["batch", 3, "fractions"],
        "risk": ["batch", 3],
    }
    about = {name: json.loads(text) for name, text in session.get_modelmeta().custom_metadata_map.items()}
    assert about["action_start"] == 5
    assert (about["preset"], about["risk"], about["alpha"], about["frame_stack"]) == ("dqn", "cvar", 0.1, 1)
    agent.export_torch(tmp_path / "agent.pt2")
    extra = {ABOUT: ""}
    torch.export.load(tmp_path / "agent.pt2", extra_files=extra)
    assert json.loads(extra[ABOUT]) == about


@pytest.mark.parametrize("missing", ["onnx", "onnxscript"])
def test_without_the_extra_the_error_names_it(missing, monkeypatch, tmp_path):
    monkeypatch.setattr("monotau.export.find_spec", lambda name: None if name == missing else object())
    with pytest.raises(MissingExtra, match=rf"^{missing} is not installed, .*: pip install 'monotau\[export\]'\.$"):
        Agent("CartPole-v1", "dqn").export_onnx(tmp_path / "agent.onnx")
    assert os.listdir(tmp_path) == []


def test_a_file_that_cannot_be_written_is_an_error_in_one_line(tmp_path):
    (tmp_path / ".agent.pt2.tmp").mkdir()  # in place of the temporary file
    with pytest.raises(StorageFault, match=r"the agent cannot be exported to \S*/agent\.pt2: Is a directory\.$"):
        Agent("CartPole-v1", "dqn").export_torch(tmp_path / "agent.pt2")


def test_a_directory_in_place_of_a_file_is_refused_before_the_graph_is_traced(tmp_path, monkeypatch):
    monkeypatch.setattr("monotau.export.trace", lambda *_: pytest.fail("traced"))
    with pytest.raises(ConfigError, match=rf"the agent cannot be exported to {tmp_path}: it is a directory\.$"):
        Agent("CartPole-v1", "dqn").export_torch(tmp_path)
    with pytest.raises(ConfigError, match=r"exported to .*agent\.pt2: the directory does not exist\."):
        Agent("CartPole-v1", "dqn").export_torch(tmp_path / "nowhere" / "agent.pt2")


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_counting_edges_equals_searching_them(shape):
    generator = torch.Generator().manual_seed(0)
    edges = torch.rand(*shape, 7, generator=generator).sort(dim=-1).values
    values = torch.cat([torch.rand(2, 3, 4, generator=generator), edges.expand(2, 3, 7)[..., 2:4]], dim=-1)
    assert torch.equal(count_below(edges, values), torch.searchsorted(edges, values))
