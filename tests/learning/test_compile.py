"""Slow: the losses of an update compile into one graph, without a break, and are the same."""

import pytest
import torch

from monotau.learner import Learner
from monotau.networks import HEADS
from monotau.networks.layers import Layers
from tests.worlds import SMALL_HEADS, random_batch, small_factory


@pytest.mark.slow
@pytest.mark.parametrize("double_q", [True, False])
@pytest.mark.parametrize("name", HEADS)
@pytest.mark.filterwarnings("ignore")  # of the compiler about itself
def test_the_update_is_one_graph_with_the_same_result(name, double_q):
    torch.compiler.reset()
    factory = small_factory(SMALL_HEADS[name], layers=Layers(noisy=True, dueling=True))
    learner, batch = Learner(factory, double_q=double_q), random_batch()
    generator = torch.Generator().manual_seed(0)
    learner.online.renew(generator)
    draws = learner.draw(len(batch.actions), generator, with_current=True)

    def update(observations, actions, rewards, discounts, next_observations, weights):
        parts = (observations, actions, rewards, discounts, next_observations, weights, batch.index)
        losses, side, current = learner.losses(type(batch)(*parts), draws, learner.target.kept(), with_current=True)
        total = (losses * weights).mean()
        return losses, total if side is None else total + side, current.distribution.mean()

    tensors = [value for value in vars(batch).values() if isinstance(value, torch.Tensor)]
    results = []
    for function in (update, torch.compile(update, fullgraph=True)):
        learner.online.zero_grad()
        losses, total, current = function(*tensors)
        total.backward()
        gradients = [p.grad.clone() for p in learner.online.parameters()]
        results.append([losses.detach(), current, *gradients])
    for eager, compiled in zip(*results, strict=True):
        torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-5)
