"""Network optimisers: which weights each of them moves, how far, and what they remember."""

import math
from dataclasses import replace

import pytest
import torch

from monotau.errors import ConfigError, Divergence
from monotau.networks.optimiser import OptimiserConfig
from tests.support.networks import SMALL_HEADS, small_factory


def test_rmsprop_is_the_centred_one_of_the_nature_dqn():
    """Two steps by hand: v and m are moving averages with 0.95, the step is g / (sqrt(v - m^2) + epsilon)."""
    config = OptimiserConfig(method="rmsprop", learning_rate=0.1, epsilon=0.01)
    network = replace(small_factory(SMALL_HEADS["dqn"]), optimiser=config).make("online")
    optimiser = replace(small_factory(SMALL_HEADS["dqn"]), optimiser=config).make_optimiser({"online": network})
    bias = network.head.last.advantages.bias
    value, square, mean = bias.detach()[0].item(), 0.0, 0.0
    for slope in (1.0, 3.0):
        optimiser.step((bias[0] * slope).sum())
        square, mean = 0.95 * square + 0.05 * slope**2, 0.95 * mean + 0.05 * slope
        value -= 0.1 * slope / ((square - mean**2) ** 0.5 + 0.01)
        assert bias.detach()[0].item() == pytest.approx(value, rel=1e-4)


def test_every_weight_belongs_to_one_optimiser():
    for name, head in SMALL_HEADS.items():
        network = small_factory(head).make("online")
        optimiser = small_factory(head).make_optimiser({"online": network})
        groups = [
            g["params"] for optimiser in (optimiser.main, *optimiser.head_optimisers) for g in optimiser.param_groups
        ]
        owned = [id(parameter) for group in groups for parameter in group]
        assert sorted(owned) == sorted(id(parameter) for parameter in network.parameters())
        assert bool(optimiser.head_optimisers) == (name in ("fqf", "ndqfn-fqf"))
        assert isinstance(optimiser.main, torch.optim.Adam)


def test_the_rate_falls_linearly_and_stays_constant_after_the_end():
    config = OptimiserConfig(learning_rate=0.5, anneal=0.25)
    rates = [config.rate(share) for share in (0.0, 0.5, 1.0, 1.5, 100.0)]
    assert rates == [0.5, 0.3125, 0.125, 0.125, 0.125]
    assert OptimiserConfig(learning_rate=0.5, anneal=0.0).rate(1.0) == 0.0
    assert {OptimiserConfig(learning_rate=0.1).rate(share) for share in (0.0, 0.3, 1.0, 7.0)} == {0.1}


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_an_anneal_outside_0_to_1_is_refused_in_one_line(bad):
    with pytest.raises(ConfigError, match=rf"^optimiser\.anneal is {bad}, but must be a number from 0 to 1: .*$"):
        OptimiserConfig(anneal=bad)


def test_progress_changes_the_rate_of_the_main_optimiser_only():
    """By hand: the first centred step is 0.1 * rate-share * g / (sqrt(0.05 g^2 - 0.0025 g^2) + epsilon)."""
    config = OptimiserConfig(method="rmsprop", learning_rate=0.1, epsilon=0.01, anneal=0.5)
    factory = replace(small_factory(SMALL_HEADS["fqf"]), optimiser=config)
    optimiser = factory.make_optimiser({"online": factory.make("online")})
    bias = optimiser.networks["online"].head.network.last.advantages.bias
    before, apart = (
        bias.detach()[0].item(),
        [group["lr"] for o in optimiser.head_optimisers for group in o.param_groups],
    )
    optimiser.set_progress(0.5)
    optimiser.step(2.0 * bias[0])
    step = before - bias.detach()[0].item()
    assert step == pytest.approx(0.075 * 2.0 / (math.sqrt(0.05 * 4 - 0.0025 * 4) + 0.01), rel=1e-4)
    assert [group["lr"] for o in optimiser.head_optimisers for group in o.param_groups] == apart
    assert all(type(group["lr"]) is float for group in optimiser.main.param_groups)


def trained(head, method):
    """Return an optimiser that has taken three steps on a quadratic loss, and its factory."""
    factory = replace(small_factory(head), optimiser=OptimiserConfig(method=method, learning_rate=0.01))
    optimiser = factory.make_optimiser({"online": factory.make("online")})
    for _ in range(3):
        step(optimiser)
    return factory, optimiser


def step(optimiser):
    optimiser.step(sum(((parameter - 1) ** 2).sum() for parameter in optimiser.networks["online"].parameters()))


@pytest.mark.parametrize("method", ["adam", "rmsprop"])
@pytest.mark.parametrize("head", SMALL_HEADS.values(), ids=SMALL_HEADS)
def test_an_optimiser_continues_exactly_from_the_state_of_another_one(head, method):
    factory, old = trained(head, method)
    new = factory.make_optimiser({"online": factory.make("online")})
    new.networks["online"].load_state_dict(old.networks["online"].state_dict())
    new.load_state({name: tensor.clone() for name, tensor in old.state().items()})
    for optimiser in (old, new):
        step(optimiser)
    for one, other in zip(old.networks["online"].parameters(), new.networks["online"].parameters(), strict=True):
        assert torch.equal(one, other)
    assert old.state().keys() == new.state().keys()
    assert all(torch.equal(tensor, new.state()[name]) for name, tensor in old.state().items())


@pytest.mark.parametrize("method", ["adam", "rmsprop"])
@pytest.mark.parametrize("head", ["dqn", "fqf"])
def test_the_predicted_memory_is_that_of_gradients_and_states(head, method):
    factory, optimiser = trained(SMALL_HEADS[head], method)
    gradients = sum(parameter.grad.nbytes for parameter in optimiser.networks["online"].parameters())
    remembered = sum(tensor.nbytes for tensor in optimiser.state().values())
    fresh = factory.make_optimiser({"online": factory.make("online")})
    assert fresh.memory() == optimiser.memory() == gradients + remembered


def test_an_optimiser_without_steps_has_an_empty_state_and_can_load_it():
    factory = small_factory(SMALL_HEADS["fqf"])
    optimiser = factory.make_optimiser({"online": factory.make("online")})
    assert optimiser.state() == {}
    optimiser.load_state({})
    step(optimiser)
    assert optimiser.state() != {}


def test_a_state_that_does_not_fit_these_weights_is_refused():
    _, optimiser = trained(SMALL_HEADS["dqn"], "adam")
    state = optimiser.state()
    with pytest.raises(RuntimeError, match=r"no optimiser has the state online\.0\.0\.evil, online\.7\.0\.step"):
        optimiser.load_state(state | {"online.0.0.evil": torch.zeros(1), "online.7.0.step": torch.zeros(())})
    with pytest.raises(RuntimeError, match=r"the state of weight online\.0\.0 has a different shape"):
        optimiser.load_state(state | {"online.0.0.exp_avg": torch.zeros(1)})
    with pytest.raises(KeyError, match="exp_avg_sq"):
        optimiser.load_state({name: tensor for name, tensor in state.items() if name != "online.0.0.exp_avg_sq"})


@pytest.mark.parametrize(
    ("slope", "message"),
    [
        (math.nan, "the loss is nan and the largest gradient nan"),
        (math.inf, "the loss is -?inf and the largest gradient inf"),
    ],
)
def test_a_step_with_a_loss_that_is_not_finite_changes_no_weight(slope, message):
    _, optimiser = trained(SMALL_HEADS["dqn"], "adam")
    before = [parameter.detach().clone() for parameter in optimiser.networks["online"].parameters()]
    bias = optimiser.networks["online"].head.last.advantages.bias
    with pytest.raises(Divergence, match=message):
        optimiser.step(bias[0] * slope)
    assert all(map(torch.equal, before, optimiser.networks["online"].parameters()))


def test_an_infinite_gradient_stops_the_step_even_if_the_loss_is_finite():
    _, optimiser = trained(SMALL_HEADS["dqn"], "adam")
    bias = optimiser.networks["online"].head.last.advantages.bias
    with pytest.raises(Divergence, match=r"the loss is 0 and the largest gradient (inf|nan)"):
        optimiser.step((bias - bias.detach()).abs().sqrt().sum())  # the slope of the square root at 0 is infinite


def test_a_gradient_whose_square_overflows_leaves_every_weight_finite():
    _, optimiser = trained(SMALL_HEADS["dqn"], "adam")
    bias = optimiser.networks["online"].head.last.advantages.bias
    before = bias.detach().clone()
    optimiser.step((bias * 1e30).sum())
    assert (bias.grad == 1e30).all()
    assert all(parameter.isfinite().all() for parameter in optimiser.networks["online"].parameters())
    torch.testing.assert_close(bias.detach(), before)  # Adam divides by an infinite root, so the step is zero


@pytest.mark.parametrize("seed", range(5))
def test_every_action_of_the_non_crossing_head_starts_with_a_spread(seed):
    network = replace(small_factory(SMALL_HEADS["nc-qr"]), seed=seed).make("online")
    states = torch.randn(20, 1, 5, generator=torch.Generator().manual_seed(seed))
    values = network.predict(states, torch.empty(20, 0)).curve()
    assert (values[..., -1] - values[..., 0] > 0.1).all()
