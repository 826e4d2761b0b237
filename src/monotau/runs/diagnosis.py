"""The diagnosis of a run that diverged: where a loss, gradient or weight became NaN or infinite."""

from typing import Any

from torch import Tensor

from monotau.learning.train import Training

LAST_LINES = 5


def diagnosis(training: Training, message: str) -> dict[str, Any]:
    """Describe a run that diverged: its step, its last batch, and the ranges of all weights and gradients."""
    batch = vars(training.batch) if training.batch else {}
    return {
        "error": message,
        "step": training.step,
        "iteration": training.iteration,
        "updates": training.updates,
        "batch": {name: _range(value) for name, value in batch.items() if isinstance(value, Tensor)},
        "weights": {
            f"{owner}.{name}": _range(weight) | ({"gradient": _range(weight.grad)} if weight.grad is not None else {})
            for optimiser in training.networks.optimisers()
            for owner, network in optimiser.networks.items()
            for name, weight in network.named_parameters()
        },
        "last_lines": training.log.lines[-LAST_LINES:],
    }


def _range(tensor: Tensor) -> dict[str, Any]:
    """Return the least and largest value of a tensor, and how many are NaN or infinite."""
    values = tensor.detach().double()
    finite = values[values.isfinite()]
    numbers: dict[str, Any] = {"not_finite": values.numel() - finite.numel()}
    if finite.numel():
        numbers |= {"least": finite.min().item(), "largest": finite.max().item()}
    return numbers
