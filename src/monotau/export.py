"""Exports what an agent has learned as one graph, in the format of torch.export or ONNX, for use without monotau."""

import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from monotau.config.schema import Config
from monotau.distributions import Risk
from monotau.envs.spec import ObservationSpec
from monotau.errors import ConfigError, MissingExtra, StorageFault
from monotau.learning.agent_networks import AgentNetworks
from monotau.networks import Role
from monotau.runs.agent_files import EnvSignature
from monotau.runs.files import check_file, write_bytes

INPUTS = {"observations": "batch", "taus": "fractions"}
"""The inputs, and the names of their first axes, which may have any length."""
OUTPUTS = ("means", "quantiles", "risk")
ABOUT = "monotau.json"
"""Name under which a file of torch.export holds the description of the agent."""


class ReturnGraph(nn.Module):
    """Maps raw observations to means, quantiles and a risk measure of the return of every action, in raw rewards.

    Whatever does not depend on the observation is computed once, when the graph is made: the constants of the head, and
    the fractions of sampling heads, which are the evenly spaced ones of deterministic predictions.
    """

    def __init__(self, networks: AgentNetworks, spec: ObservationSpec, stack: int, risk: Risk) -> None:
        super().__init__()
        self.network, self.unit = networks.evaluated, networks.unit.value
        self.spec, self.stack, self.risk = spec, stack, risk
        self.register_buffer("fractions", self.network.fractions(Role.ACT, 1, None).clone())
        self.fractions: Tensor
        self.constants = nn.ParameterList(constant.clone() for constant in self.network.cached_constants())

    def forward(
        self, observations: Shaped[Tensor, "B *frames"], taus: Float[Tensor, " M"]
    ) -> dict[str, Float[Tensor, "B A ..."]]:
        """Return the outputs by name."""
        states = observations - self.spec.start if self.spec.kind == "discrete" else observations
        features = self.network.torso(states if self.stack > 1 else states.unsqueeze(1))
        fractions, constants = self.fractions.expand(features.shape[0], -1), tuple(self.constants)
        returns = self.network.head(features, fractions, constants)
        quantiles = self.network.head.quantiles(features, taus, fractions, constants)
        return {
            "means": returns.mean() * self.unit,
            "quantiles": quantiles * self.unit,
            "risk": self.risk.of(returns) * self.unit,
        }


def export_agent(
    path: Path,
    form: Literal["onnx", "torch"],
    config: Config,
    signature: EnvSignature,
    state: Mapping[str, Tensor],
    risk: Risk,
) -> None:
    """Write the graph of an agent with these settings and weights, as an ONNX file or a program of torch.export."""
    if signature.observation.parts:
        raise ConfigError(
            "the observations are a Dict or Tuple, but an exported graph takes one array; use Agent.load and predict."
        )
    if form == "onnx":
        if risk.kind == "wang":
            raise ConfigError(
                "risk is 'wang', but ONNX has no operator for the inverse normal distribution it needs: use the "
                "format torch, or one of mean, cvar, upper-cvar and power."
            )
        require_onnx()
    failure = f"the agent cannot be exported to {path}"
    check_file(failure, path)  # before the graph is traced, which takes seconds
    program = trace(config, signature, state, risk)
    about = describe(config, signature, risk)
    try:
        (write_onnx if form == "onnx" else write_torch)(path, program, about)
    except OSError as error:
        raise StorageFault(f"{failure}: {error.strerror}.") from None  # the error names a temporary file


def trace(config: Config, signature: EnvSignature, state: Mapping[str, Tensor], risk: Risk) -> ExportedProgram:
    """Return the graph of an agent with these settings and weights; both of its inputs may have any length.

    It computes on the CPU in fp32, whatever the settings of the agent are.
    """
    plain = replace(config, device="cpu", precision="fp32", compile="off")
    spec, stack = signature.observation, config.env.frame_stack
    networks = AgentNetworks(plain, spec, signature.actions)
    networks.load_state(state)
    # Lengths of 0 and 1 would become constants of the graph, and two equal lengths one variable.
    frames = (3, *((stack,) if stack > 1 else ()), *spec.shape)
    examples = torch.zeros(frames, dtype=getattr(torch, spec.dtype)), torch.linspace(0.1, 0.9, 4)
    if spec.kind == "discrete":
        examples[0].add_(spec.start)
    shapes = {name: {0: Dim.DYNAMIC} for name in INPUTS}
    graph = ReturnGraph(networks, spec, stack, risk).requires_grad_(False)
    with torch.no_grad(), _quietly():
        return torch.export.export(graph, examples, dynamic_shapes=shapes)


def write_torch(path: Path, program: ExportedProgram, about: Mapping[str, object]) -> None:
    """Write a graph as a file for `torch.export.load`, with the description as an extra file."""
    file = io.BytesIO()
    program.example_inputs = None  # they would be stored as a pickle
    with _quietly():
        torch.export.save(program, file, extra_files={ABOUT: json.dumps(about)})
    write_bytes(path, file.getvalue())


def write_onnx(path: Path, program: ExportedProgram, about: Mapping[str, object]) -> None:
    """Write a graph as an ONNX file, weights included; the description goes into its metadata."""
    with _quietly():
        simple = program.run_decompositions({torch.ops.aten.searchsorted.Tensor: count_below})
        axes = {name: {0: axis} for name, axis in INPUTS.items()}
        model = torch.onnx.export(simple, dynamo=True, dynamic_shapes=axes, output_names=OUTPUTS, verbose=False)
    assert model is not None  # noqa: S101  # only the older exporter returns None
    model.model.metadata_props.update({name: json.dumps(value) for name, value in about.items()})
    write_bytes(path, model.model_proto.SerializeToString())


def describe(config: Config, signature: EnvSignature, risk: Risk) -> dict[str, object]:
    """Return what a user of the file has to know about the agent."""
    return {
        "monotau": version("monotau"),
        "preset": config.preset,
        "env": config.env.id,
        "action_start": signature.action_start,
        "action_sizes": list(signature.action_sizes),
        "frame_stack": config.env.frame_stack,
    } | risk.line()


def require_onnx() -> None:
    """Raise MissingExtra if the packages that write ONNX files are not installed."""
    if missing := [name for name in ("onnx", "onnxscript") if find_spec(name) is None]:
        raise MissingExtra(
            f"{missing[0]} is not installed, but exporting to ONNX needs it: pip install 'monotau[export]'."
        )


def count_below(edges: Float[Tensor, "*shared S1"], values: Float[Tensor, "*batch M"]) -> Int[Tensor, "*batch M"]:
    """Return what `torch.searchsorted` does, for which ONNX has no operator: the number of edges below each value."""
    return (edges[..., None, :] < values[..., None]).sum(dim=-1)


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence notes of the exporters about their own code and about packages that are not needed."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
