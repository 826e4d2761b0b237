"""What is written down when learning leaves the finite numbers: enough to see where it happened."""

from typing import Any

from torch import Tensor

from monotau.learning.train import Training

LAST_LINES = 5


def diagnosis(training: Training, message: str) -> dict[str, Any]:
    """Describe a run that diverged: how far it came, the batch it learned from, and all weights and gradients."""
    batch = vars(training.batch) if training.batch else {}
    return {
        "error": message,
        "step": training.step,
        "iteration": training.iteration,
        "updates": training.updates,
        "batch": {name: _range(value) for name, value in batch.items() if isinstance(value, Tensor)},
        "weights": {
            f"{owner}.{name}": _range(weight) | ({"gradient": _range(weight.grad)} if weight.grad is not None else {})
            for owner, optimiser in training.networks.optimisers().items()
            for name, weight in optimiser.network.named_parameters()
        },
        "last_lines": training.log.lines[-LAST_LINES:],
    }


def _range(tensor: Tensor) -> dict[str, Any]:
    """Least and largest number of a tensor, and how many are not finite."""
    values = tensor.detach().double()
    finite = values[values.isfinite()]
    numbers: dict[str, Any] = {"not_finite": values.numel() - finite.numel()}
    if finite.numel():
        numbers |= {"least": finite.min().item(), "largest": finite.max().item()}
    return numbers
