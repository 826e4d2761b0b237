"""An update compiles into one graph without a break and gives the same results; the real compiler is slow."""

import warnings

import pytest
import torch

from monotau.config.schema import MunchausenConfig
from monotau.learning.learner import Learner
from monotau.networks import HEADS
from monotau.networks.layers import Layers
from tests.support.networks import SMALL_HEADS, random_batch, small_factory
from tests.support.small_runs import briefly_learned

SOFT = MunchausenConfig(alpha=0.9)
TARGETS = {"double Q": (True, MunchausenConfig()), "single Q": (False, MunchausenConfig()), "Munchausen": (False, SOFT)}
AVERAGED = ("ndqfn", "iqn", "ndqfn-fqf", "spline", "c51", "hl-gauss", "dqn")
"""Heads that have between them every kind of distribution, which Munchausen targets average."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "targets"),
    [(name, targets) for name in HEADS for targets in TARGETS if targets != "Munchausen" or name in AVERAGED],
)
@pytest.mark.filterwarnings("ignore")  # the compiler warns about itself
def test_the_update_is_one_graph_with_the_same_result(name, targets):
    torch.compiler.reset()
    factory = small_factory(SMALL_HEADS[name], layers=Layers(noisy=True, dueling=True))
    double_q, munchausen = TARGETS[targets]
    learner, batch = Learner(factory, double_q=double_q, munchausen=munchausen), random_batch()
    generator = torch.Generator().manual_seed(0)
    learner.online.resample_noise(generator)
    draws = learner.draw(len(batch.actions), generator, with_current=True)

    def update(observations, actions, rewards, discounts, next_observations, weights):
        parts = (observations, actions, rewards, discounts, next_observations, weights, batch.index)
        losses, side, current, errors = learner.losses(
            type(batch)(*parts), draws, learner.target.cached_constants(), with_current=True, with_errors=True
        )
        total = (losses * weights).mean()
        return losses, total if side is None else total + side, current.distribution.mean(), errors

    tensors = [value for value in vars(batch).values() if isinstance(value, torch.Tensor)]
    results = []
    for function in (update, torch.compile(update, fullgraph=True)):
        learner.online.zero_grad()
        losses, total, current, errors = function(*tensors)
        total.backward()
        gradients = [p.grad.clone() for p in learner.online.parameters()]
        results.append([losses.detach(), current, errors, *gradients])
    for eager, compiled in zip(*results, strict=True):
        torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-5)


def compiled_by(backend, monkeypatch) -> None:
    compile_ = torch.compile
    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", lambda function, mode: compile_(function, backend=backend, fullgraph=True))


@pytest.mark.parametrize(
    ("preset", "env"),
    [
        ("fqf-dpe", "CartPole-v1"),
        ("rainbow", "CartPole-v1"),
        ("prioritized", "CartPole-v1"),
        ("iqn-dpe", "monotau/Gate-v0"),
        pytest.param("munchausen-iqn", "monotau/Gate-v0", marks=pytest.mark.slow),
        pytest.param("spl-dqn", "CartPole-v1", marks=pytest.mark.slow),
        pytest.param("ndqfn-rnd", "monotau/Gate-v0", marks=pytest.mark.slow),
        pytest.param("bootstrapped-dqn", "monotau/Gate-v0", marks=pytest.mark.slow),
    ],
)
def test_learner_and_predictor_are_one_graph_that_is_made_once(preset, env, monkeypatch):
    """The backend runs graphs unchanged, so that only their capture is tested; the gate has action masks."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled_by(backend, monkeypatch)
    assert_alike_without_a_fallback(preset, env)
    assert len(graphs) == 1


@pytest.mark.slow
def test_a_compiled_run_learns_the_same():
    torch.compiler.reset()
    assert_alike_without_a_fallback("ndqfn-dpe")


def assert_alike_without_a_fallback(preset: str, env: str = "CartPole-v1") -> None:
    eager = briefly_learned(preset, env).networks.state()
    with warnings.catch_warnings(
        record=True
    ) as caught:  # the compiler warns about itself; none of the warnings is ours
        warnings.simplefilter("always")
        agent = briefly_learned(preset, env, compile=True)
    assert not [warning for warning in caught if "without it" in str(warning.message)]
    for name, tensor in agent.networks.state().items():
        torch.testing.assert_close(tensor, eager[name], rtol=1e-4, atol=1e-6, msg=name)


def test_a_failing_backend_of_the_real_compiler_is_abandoned(monkeypatch):
    def backend(graph, inputs):
        raise RuntimeError("no backend")

    eager = briefly_learned("dqn").networks.state()
    compiled_by(backend, monkeypatch)
    with pytest.warns(RuntimeWarning, match="the run continues without it: BackendCompilerFailed: .*no backend"):
        agent = briefly_learned("dqn", compile=True)
    assert all(torch.equal(tensor, eager[name]) for name, tensor in agent.networks.state().items())
