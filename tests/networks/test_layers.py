"""Layers with noise and dueling against results worked out by hand."""

import math

import pytest
import torch

from monotau.networks import Role, layers
from monotau.networks.layers import ActionLayer, Layers, Linear, product
from tests.support.networks import SMALL_NDQFN, random_batch, small_factory


def test_a_layer_starts_without_noise_and_equals_a_plain_product():
    layer = Linear(3, 2, noisy=True)
    inputs = torch.tensor([[1.0, -2.0, 0.5]])
    torch.testing.assert_close(layer(inputs), inputs @ layer.weight.T + layer.bias)


@torch.no_grad()
def test_noise_is_factorised_and_scaled_by_what_is_learned():
    layer = Linear(3, 2, noisy=True)
    layer.resample_noise(torch.Generator().manual_seed(4))
    drawn = torch.Generator().manual_seed(4)
    ins, outs = (torch.randn(size, generator=drawn) for size in (3, 2))

    def shaped(x):
        return math.copysign(math.sqrt(abs(x)), x)

    inputs = torch.tensor([0.7, -0.1, 2.0])
    for row in range(2):
        total = float(layer.bias[row] + layer.bias_noise[row] * shaped(outs[row]))
        for column in range(3):
            noise = float(layer.weight_noise[row, column]) * shaped(outs[row]) * shaped(ins[column])
            total += (float(layer.weight[row, column]) + noise) * float(inputs[column])
        assert float(layer(inputs[None])[0, row]) == pytest.approx(total, abs=1e-5)
    assert layer.weight_noise.unique().tolist() == pytest.approx([0.5 / math.sqrt(3)])


def test_removed_noise_leaves_the_mean_weights():
    layer = Linear(4, 3, noisy=True)
    inputs = torch.rand(5, 4)
    before = layer(inputs)
    layer.resample_noise(torch.Generator().manual_seed(0))
    assert not torch.allclose(layer(inputs), before)
    layer.resample_noise(None)
    torch.testing.assert_close(layer(inputs), before)


@pytest.mark.parametrize("outputs", [1, 3])
def test_dueling_is_the_value_plus_advantages_less_their_mean(outputs):
    layer = ActionLayer(Layers(dueling=True), 5, 4, outputs)
    hidden = torch.rand(6, 10)
    value = layer.value(hidden[:, :5])  # B K
    advantages = layer.advantages(hidden[:, 5:]).unflatten(-1, (4, outputs))  # B A K
    expected = value[:, None] + advantages - advantages.mean(dim=1, keepdim=True)
    torch.testing.assert_close(layer.table(hidden, None), expected)
    actions = torch.tensor([3, 0, 1, 3, 2, 2])
    torch.testing.assert_close(layer.table(hidden, actions), expected[torch.arange(6), actions])


@pytest.mark.parametrize("dueling", [True, False])
def test_chosen_actions_are_products_with_their_own_weights_and_so_are_the_gradients(dueling):
    layer = ActionLayer(Layers(dueling=dueling), 5, 4)
    hidden = torch.rand(6, 3, 10 if dueling else 5, requires_grad=True)
    actions, flowing = torch.tensor([3, 0, 1, 3, 2, 2]), torch.rand(6, 3)

    def naive():
        shared, own = hidden.split(5, dim=-1) if dueling else (None, hidden)
        weight, bias = layer.advantages.weight, layer.advantages.bias
        rows = []
        for row, action in enumerate(actions.tolist()):
            outputs = own[row] @ weight[action] + bias[action]
            if dueling:
                mean = own[row] @ weight.mean(dim=0) + bias.mean()
                outputs = outputs - mean + shared[row] @ layer.value.weight[0] + layer.value.bias
            rows.append(outputs)
        return torch.stack(rows)

    learned = [hidden, *layer.parameters()]
    expected = torch.autograd.grad(naive(), learned, flowing)
    at_each = torch.stack([layer.table(hidden[:, point], actions).squeeze(-1) for point in range(3)], dim=-1)
    for outputs in (layer.along(hidden, actions), at_each):
        torch.testing.assert_close(outputs, naive())
        torch.testing.assert_close(torch.autograd.grad(outputs, learned, flowing), expected)


def test_dueling_at_points_is_dueling_at_each_point():
    layer = ActionLayer(Layers(dueling=True), 5, 4)
    hidden = torch.rand(6, 3, 10)
    each = torch.stack([layer.table(hidden[:, point], None).squeeze(-1) for point in range(3)], dim=-1)  # B A n
    torch.testing.assert_close(layer.along(hidden, None), each)
    actions = torch.tensor([3, 0, 1, 3, 2, 2])
    torch.testing.assert_close(layer.along(hidden, actions), each[torch.arange(6), actions])


@pytest.mark.parametrize("dueling", [True, False])
def test_outputs_are_multiplied_and_shifted(dueling):
    torch.manual_seed(0)
    layer = ActionLayer(Layers(dueling=dueling), 5, 4)
    hidden = torch.rand(6, 10 if dueling else 5)
    before = layer.table(hidden, None).detach()
    layer.multiply(0.25)
    layer.shift(3.0)
    torch.testing.assert_close(layer.table(hidden, None), 0.25 * before + 3.0)


def test_a_network_renews_all_its_noise_and_drops_its_cache():
    network = small_factory(SMALL_NDQFN, layers=Layers(noisy=True)).make("online")
    observations = random_batch().observations
    fractions = network.fractions(Role.ACT, len(observations), None)

    def curve():
        return network.predict(observations, fractions).curve()

    quiet = curve()
    network.resample_noise(torch.Generator().manual_seed(0))
    noisy = curve()
    assert not torch.allclose(quiet, noisy)
    for layer in network.head.modules():
        if isinstance(layer, Linear):
            assert layer.noise_in.abs().sum() > 0
            assert layer.noise_out.abs().sum() > 0
    network.resample_noise(torch.Generator().manual_seed(1))
    assert not torch.allclose(noisy, curve())
    network.resample_noise(None)
    assert torch.equal(quiet, curve())


@pytest.mark.parametrize("dueling", [False, True])
def test_one_output_of_each_action_is_shifted_alone(dueling):
    torch.manual_seed(0)
    layers = Layers("fp32", noisy=False, dueling=dueling)
    layer = ActionLayer(layers, 4, actions=3, outputs=2)
    hidden = torch.randn(5, 8 if dueling else 4)
    before = layer.table(hidden, None)
    layer.shift(2.5, output=-1)
    torch.testing.assert_close(layer.table(hidden, None), before + torch.tensor([0.0, 2.5]))


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
@pytest.mark.parametrize("shape", [(7, 5), (3, 4, 5)])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("frozen", [True, False])
def test_the_library_for_large_products_agrees_with_sums_by_hand(shape, with_bias, frozen, monkeypatch):
    monkeypatch.setattr(layers, "LARGE_PRODUCT", 0)
    monkeypatch.setattr(layers, "onednn_is_faster", lambda: True)
    used, linear = [], layers.onednn_linear
    monkeypatch.setattr(layers, "onednn_linear", lambda *given: used.append(given) or linear(*given))
    torch.manual_seed(0)
    inputs, weight = torch.randn(shape, requires_grad=not frozen), torch.randn(6, 5, requires_grad=True)
    bias = torch.randn(6, requires_grad=True) if with_bias else None
    learned = [tensor for tensor in (inputs, weight, bias) if tensor is not None and tensor.requires_grad]
    naive = (inputs[..., None, :] * weight).sum(dim=-1) + (bias if with_bias else 0.0)
    outputs, flowing = product(inputs, weight, bias), torch.randn(*shape[:-1], 6)
    assert len(used) == 1
    torch.testing.assert_close(outputs, naive)
    expected = torch.autograd.grad(naive, learned, flowing)
    # The result of a product may be modified in place.
    torch.testing.assert_close(torch.autograd.grad(outputs.add_(1.0).mul_(1.0), learned, flowing), expected)


def test_the_library_for_large_products_is_not_used_where_it_does_not_help(monkeypatch):
    monkeypatch.setattr(layers, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(layers, "onednn_linear", lambda *_: pytest.fail("it was used"))
    weight = torch.randn(6, 5)
    product(torch.randn(7, 5), weight)  # too small
    monkeypatch.setattr(layers, "LARGE_PRODUCT", 0)
    product(torch.randn(7, 5).double(), weight.double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        product(torch.randn(7, 5), weight)
    monkeypatch.setattr(layers, "onednn_is_faster", lambda: False)
    product(torch.randn(7, 5), weight)
