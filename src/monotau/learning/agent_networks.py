"""The networks of an agent, how they choose, and where they live."""

from collections.abc import Mapping

import torch
from torch import Tensor

from monotau.config.schema import Config
from monotau.envs.spec import ObservationSpec
from monotau.errors import ConfigError
from monotau.learning.learner import Learner
from monotau.learning.policy import Policy
from monotau.learning.return_unit import ReturnUnit
from monotau.networks.compile import Compiler
from monotau.networks.factory import NetworkFactory, prefixed, unprefixed
from monotau.networks.inputs import InputScaling
from monotau.networks.layers import Layers, settle_precision
from monotau.networks.optimiser import NetworkOptimiser
from monotau.replay import Replay


def pick_device(name: str) -> torch.device:
    """Return the device of that name; `auto` is a GPU if there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is 'cuda', but torch sees no CUDA device here; allowed: auto, cpu.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


class AgentNetworks:
    """The networks of an agent and how they choose: all that is needed to act, none of what is needed to train."""

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
            Compiler(wanted=config.compile),
            scaling,
        )
        self.device, self.scaling, self.unit = factory.device, scaling, ReturnUnit(config.return_scale)
        self.learner = Learner(factory, double_q=config.double_q)
        self.explorer = config.explorer.build(factory, self.learner.online, self.learner.target)
        self.exploration_policy = Policy(self.learner.online, actions, self.explorer)
        # Where the target network is a running average of the online network, it is the better policy of the two: the
        # average leaves out how the last updates happened to move the weights.
        self.evaluated = self.learner.target if config.update.sync == "average" else self.learner.online
        self.evaluation_policy = Policy(self.evaluated, actions)

    @classmethod
    def blank_state(cls, config: Config, spec: ObservationSpec, actions: int) -> dict[str, Tensor]:
        """Return what the `state` of such a networks looks like: names, types and shapes, without any memory."""
        return cls.blank(config, spec, actions).state()

    @classmethod
    def blank(cls, config: Config, spec: ObservationSpec, actions: int) -> "AgentNetworks":
        """Return a networks of sizes alone, without any memory."""
        try:
            with torch.device("meta") as nowhere:
                return cls(config, spec, actions, nowhere)
        except (RuntimeError, TypeError) as error:  # torch, for sizes whose product no 64 bits hold
            raise ConfigError(
                f"the sizes in the settings are no network's: {' '.join(str(error).split())[:200]}"
            ) from None

    def state(self) -> dict[str, Tensor]:
        """Everything learned, by name."""
        return (
            self.learner.state()
            | prefixed("explorer", self.explorer.state())
            | prefixed("observations", self.scaling.state())
            | prefixed("returns", self.unit.state())
        )

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `state` returned."""
        self.learner.load_state(tensors)
        self.explorer.load_state(unprefixed("explorer", tensors))
        self.scaling.load_state(unprefixed("observations", tensors))
        self.unit.load_state(unprefixed("returns", tensors))

    def measure_returns(self, replay: Replay, step: int) -> None:
        """Measure the unit of returns if it is time to; where it changes, predictions in raw rewards stay."""
        factor = self.unit.measure(replay, step)
        if factor != 1:
            self.learner.rescale(factor)
            self.explorer.rescale(factor)

    def memory(self) -> int:
        """Return the bytes of all weights, their gradients and what optimisers remember."""
        weights = sum(tensor.nbytes for tensor in self.state().values())
        return weights + sum(optimiser.memory() for optimiser in self.optimisers().values())

    def optimisers(self) -> dict[str, NetworkOptimiser]:
        """Return all optimisers, by what they train."""
        return {"online": self.learner.optimiser} | self.explorer.optimisers()
