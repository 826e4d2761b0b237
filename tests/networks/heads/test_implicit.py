"""The hidden layer of g: its closed-form gradient against autograd on the plain formula."""

from functools import partial

import pytest
import torch

from monotau.networks import layers
from monotau.networks.heads import implicit
from monotau.networks.heads.implicit import ImplicitQuantiles, Increments, StepConfig, live_features, mixed_layer
from monotau.networks.layers import Layers, Linear

B, N, D, H = 5, 4, 7, 3


def plain(features, factors, weight, addends):
    """Compute the layer unit by unit."""
    factors, addends = factors.expand(B, N, D), addends.expand(B, N, H)
    rows = [
        [(features[b] * factors[b, n] * weight[h]).sum() + addends[b, n, h] for h in range(H)]
        for b in range(B)
        for n in range(N)
    ]
    return torch.stack([torch.stack(row) for row in rows]).view(B, N, H).clamp_min(0)


@pytest.mark.parametrize("library", ["mkl", "onednn"])
@pytest.mark.parametrize("factors_shape", [(N, D), (B, N, D)], ids=["shared factors", "factors of states"])
@pytest.mark.parametrize("addends_shape", [(N, H), (B, N, H), (H,)], ids=["shared", "of states", "bias"])
def test_the_layer_and_its_gradients_equal_the_plain_formula(factors_shape, addends_shape, library, monkeypatch):
    monkeypatch.setattr(layers, "LARGE_PRODUCT", 0)
    monkeypatch.setattr(layers, "onednn_is_faster", lambda: library == "onednn")
    if library == "onednn" and not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("torch was built without oneDNN")
    torch.manual_seed(0)
    shapes = ((B, D), factors_shape, (H, D), addends_shape)
    parts = [torch.randn(shape, requires_grad=True) for shape in shapes]
    hidden, naive, flowing = mixed_layer(*parts), plain(*parts), torch.randn(B, N, H)
    torch.testing.assert_close(hidden, naive)
    assert (hidden == 0).any()
    expected = torch.autograd.grad(naive, parts, flowing)
    torch.testing.assert_close(torch.autograd.grad(hidden, parts, flowing), expected)
    with torch.no_grad():
        assert torch.equal(mixed_layer(*parts), hidden)


def quantiles_of(features, options):
    network = ImplicitQuantiles(features, H, 5, 2, options)
    taus = torch.linspace(0.1, 0.9, B * N).view(B, N)
    return network, lambda features: network(features, taus, None)


def steps_of(features, options, input_form="concat"):
    network = Increments(StepConfig(hidden=H, cosines=5), features, 2, options, input_form)
    taus = torch.linspace(0.1, 0.9, N + 1)
    return network, lambda features: network(features, network.between(taus), None)


@pytest.mark.parametrize("make", [quantiles_of, steps_of, partial(steps_of, input_form="triple")])
@pytest.mark.parametrize("noisy", [False, True])
def test_features_that_are_zero_in_the_whole_batch_are_left_out_without_changing_anything(make, noisy, monkeypatch):
    torch.manual_seed(0)
    network, output_of = make(D, Layers(noisy=noisy))
    for layer in network.modules() if noisy else ():
        if isinstance(layer, Linear):
            layer.resample_noise(torch.Generator().manual_seed(1))
    before = torch.randn(B, D, requires_grad=True)
    shift = torch.tensor([0.0, -9.0, 0.0, -9.0, -9.0, 0.0, 0.0])  # features 1, 3 and 4 are zero in every state
    results = []
    for least in (D + 1, D):
        monkeypatch.setattr(implicit, "MANY_FEATURES", least)
        features = (before + shift).relu()
        live = live_features(features)
        assert (live is None) if least > D else (live.tolist() == [0, 2, 5, 6])
        output = output_of(features)
        flowing = torch.linspace(-1, 1, output.numel()).view_as(output)
        results.append([output, *torch.autograd.grad(output, [before, *network.parameters()], flowing)])
    for whole, without in zip(*results, strict=True):
        torch.testing.assert_close(without, whole)


def test_features_are_left_out_only_if_enough_of_them_are_zero(monkeypatch):
    monkeypatch.setattr(implicit, "MANY_FEATURES", 10)
    features = torch.ones(3, 20)
    assert live_features(features) is None
    features[:, 4] = 0
    assert live_features(features) is None  # a copy of the weights would cost more than it saves
    features[:, 9] = 0
    assert len(live_features(features)) == 18
    features[1, 9] = torch.nan
    assert live_features(features) is None
