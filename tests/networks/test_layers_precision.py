"""bf16 precision, which only large matrix products use."""

import pytest
import torch

from monotau.networks import Role, layers
from monotau.networks.factory import NetworkFactory
from monotau.networks.layers import Layers
from monotau.networks.optimiser import OptimiserConfig
from monotau.networks.torsos.mlp import Mlp
from tests.support.networks import SMALL_IQN, SMALL_NDQFN, VECTOR


def make(head, precision):
    return NetworkFactory(
        VECTOR, 1, 3, Mlp(width=8), head, Layers(precision), OptimiserConfig(), seed=0, device=torch.device("cpu")
    ).make("net")


@pytest.mark.parametrize("head", [SMALL_NDQFN, SMALL_IQN])
def test_bf16_keeps_fp32_weights_and_results_and_stays_near_them(head):
    exact, rough = make(head, "fp32"), make(head, "bf16")
    observations = torch.randn(4, 1, 5, generator=torch.Generator().manual_seed(0))
    fractions = exact.head.fractions(Role.ACT, 4, None)
    near = rough(observations, fractions, rough.head.constants())
    far = exact(observations, fractions, exact.head.constants())
    assert {p.dtype for p in rough.parameters()} == {torch.float32}
    assert near.curve().dtype == torch.float32
    torch.testing.assert_close(near.curve(), far.curve(), rtol=0.05, atol=0.05)
    assert not torch.equal(near.curve(), far.curve())  # bf16 was used indeed
    near.mean().sum().backward()
    assert {p.grad.dtype for p in rough.parameters() if p.grad is not None} == {torch.float32}


def test_bf16_quantile_functions_do_not_cross_either():
    network = make(SMALL_NDQFN, "bf16")
    observations = torch.randn(50, 1, 5, generator=torch.Generator().manual_seed(0))
    curves = network.quantiles(observations, torch.linspace(0, 1, 2001))
    assert (curves.diff(dim=-1) >= 0).all()


@pytest.mark.parametrize(
    ("wanted", "has", "settled"),
    [("auto", True, "bf16"), ("auto", False, "fp32"), ("fp32", True, "fp32"), ("bf16", False, "bf16")],
)
def test_auto_is_bf16_where_the_processor_multiplies_it(wanted, has, settled, monkeypatch):
    monkeypatch.setattr(layers, "multiplies_bf16", lambda device: has)
    assert layers.settle_precision(wanted, torch.device("cpu")) == settled


@pytest.mark.parametrize(
    ("flags", "has"),
    [("fpu avx512f avx512_bf16", True), ("fpu amx_bf16", True), ("fpu avx512f not_avx512_bf16", False)],
)
def test_whether_the_processor_multiplies_bf16_is_read_from_its_flags(flags, has, monkeypatch):
    monkeypatch.setattr(layers.Path, "read_text", lambda path, encoding: f"model : x\nflags : {flags}\n")
    assert layers.multiplies_bf16("cpu") is has
    assert layers.multiplies_bf16("meta") is False


def test_an_unknown_processor_is_assumed_not_to_multiply_bf16(monkeypatch):
    def absent(path, encoding):
        raise FileNotFoundError(path)

    monkeypatch.setattr(layers.Path, "read_text", absent)
    assert layers.multiplies_bf16("cpu") is False
