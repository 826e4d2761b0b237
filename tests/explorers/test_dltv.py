"""DLTV: its bonus, its decay, and the heads that it refuses."""

import math

import pytest
import torch

from monotau.config.schema import Config
from monotau.errors import ConfigError
from monotau.explorers.dltv import Dltv
from monotau.explorers.dpe import Dpe
from monotau.learning.learner import Learner
from monotau.networks import Role
from monotau.networks.heads.qr import Qr
from monotau.networks.torsos.mlp import Mlp
from tests.support.networks import SMALL_HEADS, random_batch, small_factory

HEADS = pytest.mark.parametrize("name", [name for name in SMALL_HEADS if name not in ("hl-gauss", "dqn")])


def make(name: str = "ndqfn", **settings):
    factory = small_factory(SMALL_HEADS[name])
    learner = Learner(factory, double_q=True)
    return learner, Dltv(**settings).build(factory, learner.online, learner.target)


@HEADS
def test_the_bonus_is_the_root_of_the_variance_above_the_median(name):
    learner, explorer = make(name)
    observations = random_batch().observations
    view = learner.online.predict(observations, learner.online.fractions(Role.ACT, 9, None))
    taus = 0.5 + 0.5 * (torch.arange(4000) + 0.5) / 4000
    offsets = view.quantile(taus) - view.quantile(torch.tensor([0.5]))
    expected = (offsets.square().mean(dim=-1) / 2).sqrt()  # the integral over half of (0, 1)
    torch.testing.assert_close(explorer.bonus(observations, None), expected, rtol=1e-2, atol=1e-2)
    assert (explorer.bonus(observations, None) > 0).any()


def test_the_weight_is_c_times_the_root_of_log_t_over_t_and_t_counts_decisions():
    learner, explorer = make(c=7.0)
    observations = random_batch().observations
    view = learner.online.predict(observations, torch.empty(9, 0))
    bonus = explorer.bonus(observations, None)
    assert torch.equal(explorer.scores(observations, view, None), view.mean())  # log 1 = 0
    for t in (10, 19, 28):
        weight = 7.0 * math.sqrt(math.log(t) / t)
        torch.testing.assert_close(explorer.scores(observations, view, None), view.mean() + weight * bonus)
    assert explorer.metrics() == {"bonus_mean": pytest.approx(explorer_mean(bonus, (1, 10, 19, 28), 7.0), rel=1e-4)}
    assert explorer.metrics() == {}


def explorer_mean(bonus: torch.Tensor, times, c: float) -> float:
    return sum(c * math.sqrt(math.log(t) / t) * bonus.mean().item() for t in times) / len(times)


def test_the_mean_bonus_is_that_of_the_allowed_actions():
    learner, explorer = make(c=7.0)
    batch = random_batch(masked=True)
    view = learner.online.predict(batch.observations, torch.empty(9, 0))
    explorer.decisions.add(4)
    bonus = explorer.weight * explorer.bonus(batch.observations, None)
    explorer.scores(batch.observations, view, None, batch.masks)
    assert explorer.metrics()["bonus_mean"] == pytest.approx(bonus[batch.masks].mean().item(), rel=1e-5)


def test_the_default_weight_is_fifty():
    assert Dltv().c == 50.0


def test_the_count_of_decisions_carries_over():
    learner, explorer = make()
    observations = random_batch().observations
    explorer.scores(observations, learner.online.predict(observations, torch.empty(9, 0)), None)
    _, other = make()
    other.load_state(explorer.state())
    assert other.weight == explorer.weight
    assert other.decisions.total == 9


def test_dltv_has_no_weights_and_needs_no_target():
    _, explorer = make()
    assert not explorer.wants_target
    before = {name: tensor.clone() for name, tensor in explorer.state().items()}
    assert explorer.loss(random_batch(), None, ()) is None
    assert before
    assert all(torch.equal(tensor, before[name]) for name, tensor in explorer.state().items())


@pytest.mark.parametrize("c", [-1.0, float("inf")])
def test_an_invalid_weight_is_refused(c):
    with pytest.raises(ConfigError, match=f"explorer.c is {c}, but must be finite and not negative"):
        Dltv(c=c)


def test_a_head_without_spread_is_refused_and_every_other_is_not():
    with pytest.raises(ConfigError, match=r"explorer 'dltv' needs the spread of returns, but this head .dqn. learns"):
        Config(preset="dqn", profile="classic", torso=Mlp(), head=SMALL_HEADS["dqn"], explorer=Dltv())
    with pytest.raises(ConfigError, match=r"this head .qr. learns a single value"):
        Dltv().check(Qr(quantiles=1))
    for name, head in SMALL_HEADS.items():
        if name not in ("hl-gauss", "dqn"):
            Dltv().check(head)
        Dpe().check(head)
