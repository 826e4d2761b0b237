"""PE-DQN: explore where a quantile and a categorical estimate of the return distribution disagree, now and later.

Zanger, Böhmer, Spaan 2024, arXiv 2306.07124; their code is github.com/anyboby/diverse-projection-ensembles.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from monotau.distributions import Distribution
from monotau.errors import check_bounds, check_least, check_not_negative, check_share
from monotau.explorers.base import Explorer, ExplorerConfig, drain_means
from monotau.explorers.novelty import HIDDEN, FutureValues, Scale, follow, restore, without_options
from monotau.losses import cross_entropy, huber, project
from monotau.networks import Estimate, Network
from monotau.networks.factory import NetworkFactory, prefixed
from monotau.networks.heads.c51 import C51
from monotau.networks.heads.qr import Qr
from monotau.networks.masks import allowed_scores, of_allowed
from monotau.networks.optimiser import NetworkOptimiser
from monotau.replay import Batch


@dataclass(frozen=True, kw_only=True)
class PeDqn(ExplorerConfig):
    """Act greedily on the mean value of two members plus c * (w + U): w is their W1 distance, U that of later states.

    One member estimates quantiles of the return, the other the probabilities of fixed returns; both have fixed random
    priors and learn from the mixture of the two. U(x,a) <- discount * (w + U)(x',a'), a' being the action that would be
    chosen there. Evaluation follows the agent's head, which learns from the same replay. PE-DQN: Zanger et al. 2024,
    arXiv 2306.07124.
    """

    c: float = 5.0
    """Weight of the bonus, which is in the unit of returns (5, constant, in the paper's Table 4)."""
    prior_scale: float = 20.0
    """Weight of the priors, which are added to the quantiles and to the logits (20 in the paper's Table 4)."""
    outputs: int = 101
    """Number of quantiles and of fixed returns (101 in the paper's Table 4)."""
    low: float = -10.0
    """Lowest fixed return, in the unit of returns; as in the head c51."""
    high: float = 10.0
    """Highest fixed return."""
    target_rate: float = 0.1
    """Step by which the target networks of the members and of U move at each update; the paper copies them every four
    updates."""

    def __post_init__(self) -> None:
        check_not_negative("explorer.", self, "c", "prior_scale")
        check_least("explorer.", self, outputs=2)
        check_share("explorer.", self, "target_rate")
        check_bounds("explorer.", self.low, self.high, "categorical member")

    def build(self, factory: NetworkFactory, online: Network, target: Network) -> "PeDqnExplorer":
        """Make the explorer."""
        return PeDqnExplorer(self, factory)


class Views(NamedTuple):
    """What the two members predict."""

    quantiles: Float[Tensor, "*batch K"]
    logs: Float[Tensor, "*batch K"]
    """Logarithms of the probabilities of the fixed returns."""


class PeDqnExplorer(Explorer):
    """Owns both members, their target networks and priors, and U with its target network.

    Departures: U is a value, not another ensemble, which the paper does not need either; inputs are scaled to a root
    mean square of 1.
    """

    def __init__(self, config: PeDqn, factory: NetworkFactory) -> None:
        self.config, self.actions = config, factory.actions
        self.input_scale, self.measured = Scale(), False
        base = without_options(factory)
        learned = replace(base, layers=replace(base.layers, last_gain=factory.layers.last_gain))
        heads = {
            "quantile": Qr(quantiles=config.outputs, hidden=HIDDEN),
            "categorical": C51(atoms=config.outputs, low=config.low, high=config.high, hidden=HIDDEN),
        }
        made = {
            (role, kind): self.input_scale.before(replace(of, head=head).make(f"{name} {kind}"))
            for role, of, name in (
                ("member", learned, "member"),
                ("target", learned, "member"),
                ("prior", base, "prior"),
            )
            for kind, head in heads.items()
        }
        self.networks = {f"{role}_{kind}": network for (role, kind), network in made.items()}
        self.atoms = torch.linspace(config.low, config.high, config.outputs, device=factory.device)
        self.future = FutureValues(base, rate=config.target_rate, input_scale=self.input_scale)
        self.recent_bonuses: list[Tensor] = []
        self.recent_losses: list[Tensor] = []

    def views(self, role: str, observations: Shaped[Tensor, "B S *frame"]) -> Views:
        """Return the predictions of the members, or of their targets, with the priors added."""
        nothing = torch.empty(len(observations), 0, device=observations.device)
        quantile, categorical = (self.networks[f"{role}_{kind}"](observations, nothing, ()) for kind in KINDS)
        with torch.no_grad():
            fixed = [self.networks[f"prior_{kind}"](observations, nothing, ()) for kind in KINDS]
        scale = self.config.prior_scale
        # Logarithms of probabilities are logits: they differ from others by a constant.
        logs = (categorical.log_probs() + scale * fixed[1].log_probs()).log_softmax(dim=-1)
        return Views(quantile.curve() + scale * fixed[0].curve(), logs)

    def values(self, views: Views) -> Float[Tensor, "B A"]:
        """Return the mean of the members' expected returns."""
        values: Tensor = (views.quantiles.mean(dim=-1) + (views.logs.exp() * self.atoms).sum(dim=-1)) / 2
        return values

    def disagreement(self, views: Views) -> Float[Tensor, "B A"]:
        """Return the W1 distance of the members, once the quantiles are projected onto the fixed returns.

        The authors' code projects them too. Without it, what the projection loses would count as disagreement for ever.
        """
        quantiles = views.quantiles.flatten(0, 1)
        probs = project(quantiles, torch.full_like(quantiles, 1 / quantiles.shape[-1]), self.atoms)
        difference = probs.unflatten(0, views.quantiles.shape[:2]) - views.logs.exp()
        distance: Tensor = (difference.cumsum(dim=-1)[..., :-1].abs() * self.atoms.diff()).sum(dim=-1)
        return distance

    @torch.no_grad()
    def bonus(
        self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator | None
    ) -> Float[Tensor, "B A"]:
        """Return w + U."""
        return self.disagreement(self.views("member", observations)) + self.future.values(observations)

    @torch.no_grad()
    def scores(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        prediction: Distribution,
        generator: torch.Generator | None,
        masks: Bool[Tensor, "B A"] | None = None,
    ) -> Float[Tensor, "B A"]:
        """Return the mean of the members' expected returns plus c times the bonus."""
        views = self.views("member", observations)
        bonus = self.disagreement(views) + self.future.values(observations)
        self.recent_bonuses.append(of_allowed(bonus, masks).mean())
        return self.values(views) + self.config.c * bonus

    def trained(self) -> dict[str, Network]:
        """Return the members."""
        return {f"member_{kind}": self.networks[f"member_{kind}"] for kind in KINDS}

    def prepare(self, batch: Batch, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Measure the scale of inputs on the first batch."""
        if not self.measured:
            self.input_scale.measure(self.networks["member_quantile"].torso.inputs(batch.observations))
            self.measured = True
        return ()

    def loss(self, batch: Batch, target: Estimate | None, prepared: tuple[Tensor, ...]) -> Float[Tensor, ""]:
        """Sum of the quantile Huber loss and the cross-entropy towards the mixture of the members' targets.

        The next action has the highest mean of the members' expected returns (arXiv 2306.07124, Algorithm 1; double Q
        as in the authors' code).
        """
        rows = torch.arange(len(batch.actions), device=batch.actions.device)
        with torch.no_grad():
            choice = self.values(self.views("member", batch.next_observations))
            best = allowed_scores(choice, batch.next_masks).argmax(dim=1)
            later = Views(*(part[rows, best] for part in self.views("target", batch.next_observations)))
            returns, probs = self._mixture(later, batch)
        mine = Views(*(part[rows, batch.actions] for part in self.views("member", batch.observations)))
        of_quantiles = weighted_quantile_huber(mine.quantiles, returns, probs)
        loss: Tensor = (of_quantiles + cross_entropy(mine.logs, project(returns, probs, self.atoms))).mean()
        return loss

    def _mixture(self, later: Views, batch: Batch) -> tuple[Float[Tensor, "B KK"], Float[Tensor, "B KK"]]:
        """Return the returns and probabilities of the equal mixture of both members' Bellman targets."""
        atoms = torch.cat([later.quantiles, self.atoms.expand_as(later.logs)], dim=-1)
        probs = torch.cat([torch.full_like(later.quantiles, 1 / self.config.outputs), later.logs.exp()], dim=-1) / 2
        return batch.rewards[:, None] + batch.discounts[:, None] * atoms, probs

    def record(self, loss: Float[Tensor, ""]) -> None:
        """Keep the loss for `metrics`."""
        self.recent_losses.append(loss)

    @torch.no_grad()
    def _ahead(self, batch: Batch) -> Float[Tensor, " B"]:
        """Return the bootstrapped target of U, with the members' newest weights."""
        views = self.views("member", batch.next_observations)
        local = self.disagreement(views)
        scores = self.values(views) + self.config.c * (local + self.future.values(batch.next_observations))
        chosen = allowed_scores(scores, batch.next_masks).argmax(dim=1, keepdim=True)
        ahead = local + self.future.target_values(batch.next_observations)
        return batch.discounts * ahead.gather(1, chosen)[:, 0]

    def learn(self, batch: Batch, generator: torch.Generator) -> None:
        """Take one step of U, and move the members' target networks."""
        self.future.learn(batch.observations, batch.actions, self._ahead(batch))
        for kind in KINDS:
            follow(self.networks[f"target_{kind}"], self.networks[f"member_{kind}"], self.config.target_rate)

    def rescale(self, factor: float) -> None:
        """Scale the quantiles, their priors and U; the fixed returns are defined in the unit of returns."""
        for network in (*self.networks.values(), self.future.network, self.future.target):
            network.rescale(factor)

    def metrics(self) -> dict[str, float]:
        """Return the mean bonus over the actions scored since the last call, and the members' mean loss."""
        return drain_means(bonus_mean=self.recent_bonuses, ensemble_loss=self.recent_losses)

    def optimisers(self) -> Sequence[NetworkOptimiser]:
        """Return the optimiser of U."""
        return (self.future.optimiser,)

    def state(self) -> dict[str, Tensor]:
        """Return the weights of all networks and the scale of inputs; 0 if it was not measured."""
        tensors = {"input_scale": self.input_scale.factor * self.measured} | self.future.state()
        for name, network in self.networks.items():
            tensors |= prefixed(name, network.state_dict())
        return tensors

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the weights and the scale."""
        self.measured = bool(tensors["input_scale"] > 0)
        if self.measured:
            self.input_scale.factor.copy_(tensors["input_scale"])
        self.future.load_state(tensors)
        restore(self.networks, tensors)


KINDS = ("quantile", "categorical")


def weighted_quantile_huber(
    values: Float[Tensor, "B N"], targets: Float[Tensor, "B M"], probs: Float[Tensor, "B M"], kappa: float = 1.0
) -> Float[Tensor, " B"]:
    """Quantile Huber loss at the midpoints of N equal intervals, towards returns with these probabilities.

    Sum over quantiles, expectation over returns (QR-DQN, arXiv 1710.10044, Eq. 10).
    """
    count = values.shape[-1]
    taus = (torch.arange(count, device=values.device, dtype=values.dtype) + 0.5) / count
    errors = targets[:, None, :] - values[:, :, None]  # B N M
    weights = (taus[:, None] - (errors < 0).to(values.dtype)).abs() * probs[:, None, :]
    return (weights * huber(errors, kappa) / kappa).sum(dim=(1, 2))
