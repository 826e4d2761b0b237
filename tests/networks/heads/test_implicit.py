"""The hidden layer of g: its closed-form gradient against autograd on the plain formula."""

import pytest
import torch

from monotau.networks import layers
from monotau.networks.heads.implicit import mixed_layer

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
