"""The losses, each formula a small function on shaped tensors."""

from jaxtyping import Float
from torch import Tensor


def huber(errors: Float[Tensor, "*shape"], kappa: float) -> Float[Tensor, "*shape"]:
    """Huber's function: quadratic up to `kappa`, linear beyond."""
    size = errors.abs()
    near = size.clamp_max(kappa)
    return near * (size - 0.5 * near)


def quantile_huber(
    values: Float[Tensor, "B N"], taus: Float[Tensor, "B N"], targets: Float[Tensor, "B M"], kappa: float = 1.0
) -> Float[Tensor, " B"]:
    """Quantile Huber loss per transition: sum over online fractions, mean over targets (NDQFN Eq. 7-8)."""
    errors = targets.detach()[:, None, :] - values[:, :, None]  # B N M
    weights = (taus.detach()[:, :, None] - (errors < 0).to(taus.dtype)).abs()
    return (weights * huber(errors, kappa) / kappa).mean(dim=2).sum(dim=1)
