"""The losses, each formula a small function on shaped tensors."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def huber(errors: Float[Tensor, "*shape"], kappa: float) -> Float[Tensor, "*shape"]:
    """Huber's function (1964, doi 10.1214/aoms/1177703732): quadratic up to `kappa`, linear beyond."""
    size = errors.abs()
    near = size.clamp_max(kappa)
    return near * (size - 0.5 * near)


def quantile_huber(
    values: Float[Tensor, "B N"], taus: Float[Tensor, "B N"], targets: Float[Tensor, "B M"], kappa: float = 1.0
) -> Float[Tensor, " B"]:
    """Quantile Huber loss per transition: sum over online fractions, mean over targets.

    QR-DQN (Dabney et al. 2017, arXiv 1710.10044, Eq. 10); NDQFN (arXiv 2105.06696, Eq. 7-8).

    Args:
        values: Predicted quantiles `[B, N]`.
        taus: Their fractions `[B, N]`.
        targets: Samples or quantiles of the target `[B, M]`; they get no gradient.
        kappa: Error at which the loss turns from quadratic to linear.

    Returns:
        Losses `[B]`.

    Examples:
        >>> import torch
        >>> from monotau import quantile_huber
        >>> quantile_huber(torch.tensor([[0.0]]), torch.tensor([[0.25]]), torch.tensor([[2.0]])).tolist()
        [0.375]
    """
    losses: Tensor = _QuantileHuber.apply(values, taus, targets, kappa)
    return losses


class _QuantileHuber(torch.autograd.Function):
    """The loss and its gradient in a single pass over the B * N * M errors, in a third of autograd's time."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, taus: Tensor, targets: Tensor, kappa: float) -> Tensor:
        """With u an error and c = clip(u, -kappa, kappa), Huber's function is c (u - c / 2) and its slope is c."""
        errors = targets[:, None, :] - values[:, :, None]  # B N M
        slopes = errors.clamp(-kappa, kappa)
        # Negative slopes have weight 1 - tau, the others tau: min(c, 0) + tau |c|, without branches.
        weighted = slopes.clamp_max(0).addcmul_(taus[:, :, None], slopes.abs())
        scale = 1 / (kappa * targets.shape[1])
        ctx.save_for_backward(weighted.sum(dim=2).mul_(-scale))
        return weighted.mul_(errors.sub_(slopes, alpha=0.5)).sum(dim=(1, 2)).mul_(scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return a gradient for the values only."""
        (slopes,) = ctx.saved_tensors
        return gradients[0][:, None] * slopes, None, None, None


def project(
    atoms: Float[Tensor, "B K"], probs: Float[Tensor, "B K"], support: Float[Tensor, " M"]
) -> Float[Tensor, "B M"]:
    """Project probabilities from any atoms onto the support (C51, Bellemare et al. 2017, arXiv 1707.06887, Eq. 7).

    The mass of an atom is split between its two neighbours in the support: the share of a support point falls linearly
    from 1 at the point to 0 at its neighbours. Atoms beyond the ends are clipped to them.
    """
    inside = atoms.clamp(support[0], support[-1])
    ends = support.new_ones(1)  # any width: no atom lies beyond the ends
    gaps = support.diff()
    below, above = torch.cat([ends, gaps]), torch.cat([gaps, ends])
    distance = inside[:, None, :] - support[None, :, None]  # B M K
    width = torch.where(distance < 0, below[:, None], above[:, None])
    shares = (1 - distance.abs() / width).clamp_min(0)
    return (shares * probs[:, None, :]).sum(dim=-1)


def cross_entropy(log_probs: Float[Tensor, "B K"], target: Float[Tensor, "B K"]) -> Float[Tensor, " B"]:
    """Cross-entropy of predicted and target probabilities on the same atoms (C51, arXiv 1707.06887, Algorithm 1)."""
    return -(target.detach() * log_probs).sum(dim=-1)


def gaussian_histogram(
    values: Float[Tensor, " B"], edges: Float[Tensor, " M1"], deviation: float
) -> Float[Tensor, "B M"]:
    """Smooth numbers into histograms, by a normal distribution truncated to the bins (HL-Gauss, arXiv 2403.03950, 3.1).

    The mass of a bin is that of N(value, deviation^2) between its edges, divided by the mass between the first and the
    last edge. Departure: values beyond these are clipped to them, where the paper's masses become 0 / 0.
    """
    inside = values.detach().clamp(edges[0], edges[-1])
    below = torch.special.ndtr((edges - inside[:, None]) / deviation)  # B M1
    histogram: Tensor = below.diff(dim=1) / (below[:, -1:] - below[:, :1])
    return histogram


def soft_policy(values: Float[Tensor, "B A"], temperature: float) -> tuple[Float[Tensor, "B A"], Float[Tensor, "B A"]]:
    """Return the softmax policy of action values, and the temperature times its logarithms (M-DQN, arXiv 2007.14430).

    A value of -inf excludes an action. The largest value is subtracted first: divided by a small temperature, values
    would be rounded by more than they differ.
    """
    logs = ((values - values.amax(dim=1, keepdim=True)) / temperature).log_softmax(dim=1)
    return logs.exp(), temperature * logs


def entropy_bonus(policy: Float[Tensor, "B A"], scaled_logs: Float[Tensor, "B A"]) -> Float[Tensor, " B"]:
    """Temperature times the entropy of a policy (M-DQN, arXiv 2007.14430, Eq. 1); impossible actions add nothing."""
    return -(policy * scaled_logs.masked_fill(policy == 0, 0)).sum(dim=1)


def munchausen_bonus(scaled_logs: Float[Tensor, " B"], alpha: float, clip: float) -> Float[Tensor, " B"]:
    """Munchausen's addition to the reward (arXiv 2007.14430, Eq. 2 and Section 4): alpha times the clipped log-policy.

    Args:
        scaled_logs: Temperature times the log-probability of each action that was taken.
        alpha: Weight.
        clip: Lower bound of the scaled log-probability, l_0.
    """
    bonus: Tensor = alpha * scaled_logs.clamp(clip, 0)
    return bonus
