"""The networks of an agent, its policies, and the device they run on."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from monotau.config.schema import Config
from monotau.distributions import Distribution
from monotau.envs.spec import ObservationSpec
from monotau.errors import ConfigError
from monotau.learning.learner import Learner
from monotau.learning.policy import Policy
from monotau.learning.return_unit import ReturnUnit
from monotau.networks import Role
from monotau.networks.compile import Compiler, settle_compile
from monotau.networks.factory import NetworkFactory, prefixed, unprefixed
from monotau.networks.inputs import InputScaling
from monotau.networks.layers import Layers, settle_precision
from monotau.networks.optimiser import NetworkOptimiser
from monotau.networks.torsos.images import Small
from monotau.networks.torsos.mlp import Mlp
from monotau.replay import Replay


def pick_device(name: str) -> torch.device:
    """Return the named device; `auto` is the GPU if there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is 'cuda', but torch finds no CUDA device on this machine; allowed: auto, cpu.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def compiles(config: Config, device: torch.device) -> bool:
    """Whether updates are compiled with these settings."""
    small = type(config.torso) in (Mlp, Small)
    return settle_compile(config.compile, updates=config.planned_updates, small=small, device=device)


class AgentNetworks:
    """The learner's networks, the explorer and the policies of an agent, without its replay and environments."""

    def __init__(self, config: Config, spec: ObservationSpec, actions: int, device: torch.device | None = None) -> None:
        device = device or pick_device(config.device)
        scaling = InputScaling(spec, config.env.frame_stack, enabled=config.scale_observations)
        factory = NetworkFactory(
            spec,
            config.env.frame_stack,
            actions,
            config.torso,
            config.head,
            Layers(settle_precision(config.precision, device), config.noisy, config.dueling),
            config.optimiser,
            config.seed,
            device,
            Compiler(wanted=compiles(config, device), graphs=device.type == "cuda"),
            scaling,
        )
        self.compiler = factory.compiler
        self.device, self.scaling, self.unit = factory.device, scaling, ReturnUnit(config.return_scale)
        self.learner = Learner(
            factory,
            double_q=config.double_q,
            explorer=config.explorer,
            averaged=config.update.average > 0,
            munchausen=config.munchausen,
        )
        self.explorer = self.learner.explorer
        self.exploration_policy = Policy(self.learner.online, actions, self.explorer)
        # A running average of the weights is a steadier policy, because it leaves out the noise of the last updates.
        self.evaluated = self.learner.average or self.learner.online
        self.evaluation_policy = Policy(self.evaluated, actions)

    @classmethod
    def blank_state(cls, config: Config, spec: ObservationSpec, actions: int) -> dict[str, Tensor]:
        """Return the names, types and shapes of `state` as meta tensors, which take no memory."""
        return cls.blank(config, spec, actions).state()

    @classmethod
    def blank(cls, config: Config, spec: ObservationSpec, actions: int) -> "AgentNetworks":
        """Return the networks on the meta device: shapes only, without memory for weights."""
        try:
            with torch.device("meta") as meta:
                return cls(config, spec, actions, meta)
        except (RuntimeError, TypeError) as error:  # torch, for sizes whose product overflows 64 bits
            raise ConfigError(
                f"no network can have the sizes in the settings: {' '.join(str(error).split())[:200]}"
            ) from None

    def returns(self, stacks: Shaped[np.ndarray, "B S *frame"]) -> Distribution:
        """Predict the return distributions `[B, A]` of all actions, in raw rewards."""
        batch = self._on_device(stacks)
        view = self.evaluated.predict(batch, self.evaluated.fractions(Role.ACT, len(batch), None))
        scale, shift = (torch.full(view.batch_shape, number, device=batch.device) for number in (self.unit.value, 0.0))
        return view.affine(scale, shift)

    def quantiles(self, stacks: Shaped[np.ndarray, "B S *frame"], taus: Float[Tensor, " M"]) -> Float[Tensor, "B A M"]:
        """Predict quantiles of the returns of all actions, in raw rewards."""
        return self.evaluated.quantiles(self._on_device(stacks), taus.to(self.device)) * self.unit.value

    @torch.no_grad()
    def bonus(self, stacks: Shaped[np.ndarray, "B S *frame"]) -> Float[Tensor, "B A"]:
        """Compute the exploration bonuses of all actions, in raw rewards and before they are weighted."""
        return self.explorer.bonus(self._on_device(stacks), None) * self.unit.value

    def _on_device(self, stacks: Shaped[np.ndarray, "B S *frame"]) -> Shaped[Tensor, "B S *frame"]:
        return torch.from_numpy(stacks).to(self.device)

    def state(self) -> dict[str, Tensor]:
        """Return everything that was learned, by name."""
        return (
            self.learner.state()
            | prefixed("explorer", self.explorer.state())
            | prefixed("observations", self.scaling.state())
            | prefixed("returns", self.unit.state())
        )

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""
        self.learner.load_state(tensors)
        self.explorer.load_state(unprefixed("explorer", tensors))
        self.scaling.load_state(unprefixed("observations", tensors))
        self.unit.load_state(unprefixed("returns", tensors))

    def measure_returns(self, replay: Replay, step: int) -> None:
        """Measure the unit of returns when due; if it changes, rescale the networks so that raw predictions stay."""
        factor = self.unit.measure(replay, step)
        if factor != 1:
            self.learner.rescale(factor)
            self.explorer.rescale(factor)

    def memory(self) -> int:
        """Return the bytes of all weights, gradients and optimiser states."""
        weights = sum(tensor.nbytes for tensor in self.state().values())
        return weights + sum(optimiser.memory() for optimiser in self.optimisers())

    def optimisers(self) -> Sequence[NetworkOptimiser]:
        """Return the optimiser of the learner's step, and those of the explorer."""
        return self.learner.optimiser, *self.explorer.optimisers()
