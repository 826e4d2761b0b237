"""Parts that heads over embedded fractions share: a network asked at any fraction, and non-negative increments."""

import math
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from monotau.networks.heads.base import Constants
from monotau.networks.layers import ActionLayer, CosineEmbedding, Layers, large_products

Increment = Literal["relu", "softplus", "elu1"]
InputForm = Literal["concat", "triple"]


class ImplicitQuantiles(nn.Module):
    """IQN's network, Linear(ReLU(Linear(psi(x) * phi(tau)))), asked at any fractions."""

    def __init__(self, features: int, hidden: int, cosines: int, actions: int, layers: Layers) -> None:
        super().__init__()
        self.precision = layers.precision
        self.embedding = CosineEmbedding(cosines, features)
        self.hidden = layers.hidden(features, hidden)
        self.last = ActionLayer(layers, hidden, actions)

    def forward(
        self, features: Float[Tensor, "B D"], taus: Float[Tensor, "B n"], actions: Int[Tensor, " B"] | None
    ) -> Float[Tensor, "B *A n"]:
        """Quantile estimates of every action, or of the chosen ones."""
        with large_products(self.precision, features.device):
            phi = self.embedding(taus)  # B n D
            hidden = F.relu(self.hidden(features[:, None, :] * phi.to(features.dtype)))
        return self.last.along(hidden.float(), actions)


class Baseline(nn.Module):
    """NDQFN's f: the lowest quantile of each action, any real number.

    Departure: the paper's f has "a sigmoid activation" yet is unconstrained, so the sigmoid is the hidden one.
    """

    def __init__(self, features: int, hidden: int, actions: int, layers: Layers) -> None:
        super().__init__()
        self.precision = layers.precision
        self.hidden = layers.hidden(features, hidden)
        self.last = ActionLayer(layers, hidden, actions)

    def forward(self, features: Float[Tensor, "B D"], actions: Int[Tensor, " B"] | None) -> Float[Tensor, "B *A 1"]:
        """One value for each action, or of the chosen ones."""
        with large_products(self.precision, features.device):
            hidden = torch.sigmoid(self.hidden(features))
        return self.last.table(hidden.float(), actions)


class Increments(nn.Module):
    """NDQFN's g: non-negative steps of the quantile function from each fraction to the next.

    W [psi*phi_i ; phi_i - phi_(i-1)] + b is split in W1 (psi*phi_i) and W2 (phi_i - phi_(i-1)) + b: the second does not
    depend on the state, so where the fractions do not either, it is computed once for all states. What makes steps
    non-negative comes last, after dueling's sum, so that nothing can make them negative.
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        cosines: int,
        actions: int,
        layers: Layers,
        *,
        steps: int,
        increment: Increment = "relu",
        input_form: InputForm = "concat",
        literal_scale: bool = False,
    ) -> None:
        super().__init__()
        self.precision, self.increment, self.input_form = layers.precision, increment, input_form
        self.scale = 1 / steps if literal_scale else 1.0
        self.embedding = CosineEmbedding(cosines, features)
        units = 2 * hidden if layers.dueling else hidden
        inputs = 2 * features if input_form == "concat" else features
        self.mixed = layers.linear(features, units, bias=False, fan_in=inputs)
        self.shift = layers.linear(features, units, fan_in=inputs) if input_form == "concat" else None
        bound = 1 / math.sqrt(inputs)
        self.bias = nn.Parameter(torch.empty(units).uniform_(-bound, bound)) if input_form == "triple" else None
        self.last = ActionLayer(layers, hidden, actions)
        if not literal_scale:
            self._shrink_first_steps(steps)

    def _shrink_first_steps(self, steps: int) -> None:
        """Start with steps of about 1/N, a spread of about one, whatever their number and activation.

        Departure: the paper's factor 1/N contradicts its own definition of an increment; it is dropped, and its effect
        at the start kept. The bias starts where the activation is 1/N. With a ReLU that is more than a matter of scale:
        steps of an action are of one sign at the start, and an action whose steps are all negative is dead before it
        learns, its distribution a point for good.
        """
        offsets = {"relu": 1 / steps, "softplus": math.log(math.expm1(1 / steps)), "elu1": -math.log(steps)}
        self.last.start(1 / steps, offsets[self.increment])

    def constants(self, taus: Float[Tensor, "*batch K"]) -> Constants:
        """Return the factors of psi and the addends of the hidden layer, for the steps between neighbouring taus."""
        phi = self.embedding(taus)  # *batch K D
        after, before = phi[..., 1:, :], phi[..., :-1, :]
        if self.shift is None:
            assert self.bias is not None  # noqa: S101  # one of the two is there; for the type checker
            return after * before, self.bias
        with large_products(self.precision, phi.device):
            addends = self.shift(after - before)
        return after, addends

    def forward(
        self, features: Float[Tensor, "B D"], constants: Constants, actions: Int[Tensor, " B"] | None
    ) -> Float[Tensor, "B *A N"]:
        """Steps of every action's quantile function, or of the chosen ones'."""
        factors, addends = constants
        with large_products(self.precision, features.device):
            mixed = features[:, None, :] * factors.to(features.dtype)  # B N D
            # In place: a B*N*H tensor is written once, and neither the product nor the sum is needed for the gradient.
            hidden = self.mixed(mixed).add_(addends).relu_()
        outputs = self.last.along(hidden.float(), actions)
        if self.increment == "relu":
            steps = F.relu(outputs)
        elif self.increment == "softplus":
            steps = F.softplus(outputs)
        else:
            steps = F.elu(outputs) + 1
        return steps if self.scale == 1 else steps * self.scale


def cumulate(values: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch K"]:
    """Cumulative sums that never fall where `values[1:]` are non-negative, rounding included.

    On a CPU the sum runs in order and cannot fall; on other devices a parallel scan may round differently from one
    sum to the next, so its running maximum is taken.
    """
    sums = values.cumsum(dim=-1)
    return sums if sums.device.type == "cpu" else sums.cummax(dim=-1).values
