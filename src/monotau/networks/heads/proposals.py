"""FQF's fraction proposal network and its loss (arXiv 1911.02140), shared by the heads that learn their fractions."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from monotau.errors import ConfigError, check_positive

LEAST_SHARE = 1e-3
"""Share of (0, 1) that is divided evenly, so that no interval is empty and fractions increase strictly."""


@dataclass(frozen=True, kw_only=True)
class ProposalConfig:
    """Settings of learned fractions."""

    fraction_learning_rate: float = 2.5e-9
    """Step size of the centred RMSProp that trains the fractions; the default is FQF's on Atari."""
    entropy_weight: float = 0.0
    """Weight of the entropy of the fractions; above 0 it keeps them from collapsing."""

    def __post_init__(self) -> None:
        check_positive("head.", self, "fraction_learning_rate")
        if not 0 <= self.entropy_weight < float("inf"):
            raise ConfigError(f"head.entropy_weight is {self.entropy_weight}, but must be finite and not negative.")

    def fraction_optimiser(self, proposals: "Proposals") -> torch.optim.Optimizer:
        """Make RMSProp for the fractions, centred as in the code of FQF's authors."""
        rate = self.fraction_learning_rate
        return torch.optim.RMSprop(proposals.parameters(), lr=rate, alpha=0.95, eps=1e-5, centered=True)

    def fraction_loss(self, edges: Float[Tensor, "B N1"], slopes: Float[Tensor, "B N"]) -> Float[Tensor, ""]:
        """Return a loss whose gradient with respect to the inner edges is `slopes`, minus the weighted entropy."""
        losses = (slopes * edges[:, 1:-1]).sum(dim=-1)
        return (losses - self.entropy_weight * fraction_entropy(edges)).mean()


class Proposals(nn.Module):
    """softmax(Linear(psi)) divides (0, 1) into intervals; psi gets no gradient from it."""

    def __init__(self, features: int, intervals: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, intervals)
        # Intervals start nearly equal for features of any size.
        nn.init.xavier_uniform_(self.linear.weight, gain=0.01)
        nn.init.zeros_(self.linear.bias)

    def edges(self, features: Float[Tensor, "B D"]) -> Float[Tensor, "B N1"]:
        """Edges of the intervals, from 0 to 1, strictly increasing."""
        shares = self.linear(features.detach().float()).softmax(dim=-1)
        widths = (1 - LEAST_SHARE) * shares + LEAST_SHARE / shares.shape[-1]
        inner = widths.cumsum(dim=-1)[:, :-1]
        return F.pad(F.pad(inner, (1, 0)), (0, 1), value=1.0)


def fraction_entropy(edges: Float[Tensor, "*batch N1"]) -> Float[Tensor, "*batch"]:
    """Entropy of the widths between edges, at most log N."""
    widths = edges.diff(dim=-1)
    return -(widths * widths.clamp_min(torch.finfo(widths.dtype).tiny).log()).sum(dim=-1)
