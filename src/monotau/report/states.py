"""What agents say of the same fixed states: quantile functions of all actions, and how often they fall."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from monotau.agent import Agent
from monotau.envs import EnvFactory
from monotau.learning.evaluate import falls_and_changes
from monotau.learning.rollout import Rollout
from monotau.networks import Network, Role
from monotau.networks.devices import torch_threads
from monotau.seeding import numpy_stream, stream_seed, torch_stream

STATES = 32
EVERY_STEPS = 5
"""Random steps between two of the states."""
POINTS = 1001
"""Fractions of a curve, as evaluations count crossing at."""
MOST_CURVES = 2_000
"""Curves that are held for a method; with very many actions there are fewer states."""
SETS = 4
"""Independent sets of fractions that are asked of a head whose answer depends on the set."""


@dataclass(frozen=True, kw_only=True)
class Sets:
    """Quantiles that were asked for in several sets of fractions, one set after the other."""

    taus: Float[Tensor, "R K"]
    """Increasing in each set."""
    values: Float[Tensor, "n A R K"]

    def together(self) -> tuple[Float[Tensor, " RK"], Float[Tensor, "n A RK"]]:
        """Return all fractions in their order, and the quantiles at them."""
        order = self.taus.flatten().sort()
        return order.values, self.values.flatten(2)[..., order.indices]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What an agent says of each state."""

    curves: Float[Tensor, "n A M"]
    """At evenly spaced fractions from 0 to 1, asked for all together."""
    sets: Sets | None = None
    """Where the answer depends on the set in which a fraction is asked for."""

    @property
    def crossing(self) -> float:
        """Share of falls among changes of the curves."""
        return _share(self.curves)

    @property
    def crossing_between_sets(self) -> float:
        """The same of neighbours in all sets together."""
        return 0.0 if self.sets is None else _share(self.sets.together()[1])


def _share(curves: Tensor) -> float:
    falls, changes = falls_and_changes(curves)
    return falls / max(changes, 1)


def fixed_states(agent: Agent) -> Shaped[np.ndarray, "n S *frame"]:
    """Return states that random play from a fixed seed visits: the same for all agents of an environment.

    Time limits and environments side by side, which are settings of a run, are left away.
    """
    config = replace(agent.config.env, num_envs=1, max_episode_steps=0)
    count = max(1, min(STATES, MOST_CURVES // agent.actions))
    rng = numpy_stream(0, "states of a report")
    rollout = Rollout(EnvFactory(config), 1, config.frame_stack, stream_seed(0, "environment of a report"))
    kept: dict[bytes, np.ndarray] = {}
    try:
        for step in range(count * EVERY_STEPS):
            if step % EVERY_STEPS == 0:
                state = rollout.observations[0].copy()
                kept.setdefault(state[-1].tobytes(), state)  # by its last frame: stacks may differ between methods
            rollout.step(rng.integers(agent.actions, size=1))
    finally:
        rollout.close()
    return np.stack([*kept.values()])


def ask(agent: Agent) -> Answers:
    """Ask an agent about the fixed states of its environment."""
    network, device = agent.networks.evaluated, agent.networks.device
    taus = torch.linspace(0, 1, POINTS, device=device)
    states = torch.from_numpy(fixed_states(agent)).to(device)
    with torch_threads(agent.config.threads):
        # One by one: a sampling head makes POINTS passes for each.
        curves = torch.cat([network.quantiles(state[None], taus) for state in states])
        company = depends_on_company(network, states[:1], taus, curves[:1])
        sets = _ask_sets(network, states, agent.unit) if company else None
        return Answers(curves=curves.cpu() * agent.unit, sets=sets)


def depends_on_company(
    network: Network, state: Shaped[Tensor, "1 S *frame"], taus: Float[Tensor, " M"], curves: Float[Tensor, "1 A M"]
) -> bool:
    """Whether quantiles change by more than rounding when they are asked for in a smaller set."""
    alone = network.quantiles(state, taus[::50])
    span = (curves.max() - curves.min()).item()
    return not torch.allclose(alone, curves[..., ::50], rtol=1e-3, atol=1e-3 * span + 1e-6)


def _ask_sets(network: Network, states: Shaped[Tensor, "n S *frame"], unit: float) -> Sets:
    """Ask for several sets of random fractions, each as large as those by which actions are chosen."""
    taus = network.fractions(Role.ACT, SETS, torch_stream(0, "fractions of a report")).sort(dim=-1).values
    values = torch.stack([network.quantiles(states, fractions) for fractions in taus], dim=-2)
    return Sets(taus=taus.cpu(), values=values.cpu() * unit)
