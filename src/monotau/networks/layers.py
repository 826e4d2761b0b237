"""Layers that several networks share."""

import math
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

Precision = Literal["fp32", "bf16"]


def large_products(precision: Precision, device: torch.device) -> torch.autocast:
    """Context in which convolutions and matrix products run in `precision`; weights stay in fp32 whatever it is."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


class CosineEmbedding(nn.Module):
    """IQN's embedding of fractions: ReLU(Linear(cos(pi * i * tau))) for i = 1..cosines."""

    def __init__(self, cosines: int, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(cosines, features)
        self.register_buffer("frequencies", math.pi * torch.arange(1, cosines + 1), persistent=False)
        self.frequencies: Tensor

    def forward(self, taus: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch D"]:
        """Embed each fraction."""
        embedded: Tensor = F.relu(self.linear(torch.cos(taus[..., None] * self.frequencies)))
        return embedded


def action_columns(
    layer: nn.Linear, hidden: Float[Tensor, "B *points H"], actions: Int[Tensor, " B"] | None
) -> Float[Tensor, "B *rest"]:
    """Apply the last layer: every action's output, or only the chosen one's, a single column of the product."""
    if actions is None:
        return F.linear(hidden, layer.weight, layer.bias)
    weight, bias = layer.weight[actions], layer.bias[actions]  # B H, B
    if hidden.ndim == 2:
        return (hidden * weight).sum(dim=-1) + bias
    return torch.baddbmm(bias[:, None, None], hidden, weight[:, :, None]).squeeze(-1)
