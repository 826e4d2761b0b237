"""Networks small enough to check by hand, and batches to train them on."""

from dataclasses import dataclass, fields, replace
from weakref import WeakKeyDictionary

import numpy as np
import torch

from monotau.envs.spec import ObservationSpec
from monotau.explorers import Explorer, ExplorerConfig
from monotau.explorers.epsilon_greedy import GreedyExplorer
from monotau.networks import HEADS, Estimate, HeadConfig, Network, TorsoConfig
from monotau.networks.factory import NetworkFactory
from monotau.networks.heads.iqn import Iqn
from monotau.networks.heads.ndqfn import Ndqfn
from monotau.networks.layers import Layers
from monotau.networks.optimiser import NetworkOptimiser, OptimiserConfig
from monotau.networks.torsos.mlp import Mlp
from monotau.replay import Batch

VECTOR = ObservationSpec(kind="vector", shape=(5,), dtype="float32", channels_last=False, scale=1.0, size=5)


def image(*shape: int, dtype: str = "uint8", channels_last: bool = False, scale: float = 1 / 255) -> ObservationSpec:
    """Return the specification of an image observation."""
    return ObservationSpec(
        kind="image",
        shape=shape,
        dtype=dtype,
        channels_last=channels_last,
        scale=scale,
        size=torch.Size(shape).numel(),
    )


ATARI = image(84, 84)
PLAIN = Layers()
SMALL_NDQFN = Ndqfn(knots=6, hidden=7, cosines=4, online_fractions=3, target_fractions=5)
SMALL_IQN = Iqn(online_fractions=3, target_fractions=5, action_fractions=4, hidden=7, cosines=4)


def small_head(name: str) -> HeadConfig:
    """Return the named head with small sizes, no two of which are equal where that matters."""
    sizes = {
        "knots": 6,
        "hidden": 7,
        "cosines": 4,
        "online_fractions": 3,
        "target_fractions": 5,
        "action_fractions": 4,
        "quantiles": 6,
        "atoms": 6,
        "bins": 6,
        "noise": 2,
    }
    kind = HEADS[name]
    return kind(**{field.name: sizes[field.name] for field in fields(kind) if field.name in sizes})


SMALL_HEADS = {name: small_head(name) for name in HEADS}


def small_factory(
    head: HeadConfig = SMALL_NDQFN,
    torso: TorsoConfig | None = None,
    spec: ObservationSpec = VECTOR,
    actions: int = 3,
    stack: int = 1,
    learning_rate: float = 1e-3,
    layers: Layers = PLAIN,
) -> NetworkFactory:
    """Return a factory of tiny networks; their sizes differ from one another, so that mixed-up axes fail."""
    return NetworkFactory(
        spec,
        stack,
        actions,
        torso or Mlp(width=8, layers=1),
        head,
        layers,
        OptimiserConfig(learning_rate=learning_rate, epsilon=1e-4),
        seed=0,
        device=torch.device("cpu"),
    )


def random_masks(rng: np.random.Generator, taken: np.ndarray, actions: int) -> torch.Tensor:
    """Return masks that allow about half of the actions, among them the ones that were taken."""
    masks = rng.random((len(taken), actions)) < 0.5
    masks[np.arange(len(taken)), taken] = True
    return torch.from_numpy(masks)


def random_batch(size: int = 9, actions: int = 3, seed: int = 0, masked: bool = False) -> Batch:
    """Return random transitions between vector states; some are terminal."""
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    taken = rng.integers(actions, size=size)
    batch = Batch(
        observations=torch.randn(size, 1, 5, generator=generator),
        actions=torch.from_numpy(taken),
        rewards=torch.randn(size, generator=generator),
        discounts=torch.from_numpy(rng.choice([0.0, 0.97], size=size).astype(np.float32)),
        next_observations=torch.randn(size, 1, 5, generator=generator),
        weights=torch.rand(size, generator=generator) + 0.5,
        index=np.arange(size),
    )
    if not masked:
        return batch
    later = rng.integers(actions, size=size)
    return replace(
        batch,
        masks=random_masks(rng, taken, actions),
        next_masks=random_masks(rng, later, actions),
    )


class WatchingExplorer(GreedyExplorer):
    """Asks for the target's distributions of the sampled pairs, and keeps them."""

    wants_target = True

    def __init__(self) -> None:
        self.seen: list[Estimate | None] = []

    def loss(self, batch: Batch, target: Estimate | None, prepared: tuple[torch.Tensor, ...]) -> None:
        self.seen.append(target)


@dataclass(frozen=True)
class Watching(ExplorerConfig):
    """Settings of an explorer that only watches."""

    def build(self, factory: NetworkFactory, online: Network, target: Network) -> WatchingExplorer:
        return WatchingExplorer()


_optimisers: WeakKeyDictionary[Explorer, NetworkOptimiser] = WeakKeyDictionary()


def taught(config: ExplorerConfig, factory: NetworkFactory, online: Network, target: Network) -> Explorer:
    """Return an explorer that `teach` can train without a learner."""
    explorer = config.build(factory, online, target)
    _optimisers[explorer] = factory.make_optimiser(explorer.trained())
    return explorer


def teach(explorer: Explorer, batch: Batch, target: Estimate | None, generator: torch.Generator) -> None:
    """Train an explorer on a batch as a learner does."""
    loss = explorer.loss(batch, target, explorer.prepare(batch, generator))
    assert loss is not None
    explorer.record(loss.detach())
    _optimisers[explorer].step(loss)
    explorer.learn(batch, generator)


def stop_training(explorer: Explorer) -> None:
    """Set the step size of the networks that an explorer trains with the learner's to zero."""
    _optimisers[explorer].main.param_groups[0]["lr"] = 0.0
