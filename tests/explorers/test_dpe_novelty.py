"""DPE's bonus measures novelty: it is larger for pairs of state and action that were never replayed."""

import math
from itertools import product

import pytest
import torch
from benchmarks.novelty import measure, reached

from monotau.envs import Grid
from monotau.networks import layers

SMALL = {"torso": {"width": 64}, "head": {"hidden": 64}, "optimiser": {"learning_rate": 1e-3}}
BRIEF = {"size": 5, "updates": 150, "sync_every_updates": 50}
SEEDS = pytest.mark.parametrize("seed", [0, 1])


def test_the_benchmark_s_transitions_are_those_of_the_grid():
    env, ends = Grid(size=4), reached(4)
    for state, action in product(range(16), range(4)):
        env.reset()
        env._row, env._column = divmod(state, 4)
        assert env.step(action)[4]["state"] == ends[state, action]


@SEEDS
def test_pairs_that_were_never_replayed_have_a_bonus_four_times_as_large(seed):
    assert measure("ndqfn-dpe", seed, SMALL, **BRIEF).ratio >= 4


def test_the_bonus_shows_no_novelty_if_the_initial_weights_make_all_states_alike(monkeypatch):
    """With torch's default initial weights a predictor generalises to all states."""

    @torch.no_grad()
    def small(weight, fan_in, gain=1.0):
        weight.uniform_(-1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    monkeypatch.setattr(layers, "initialise", small)
    # A norm or observations of unit size would hide the size of the weights.
    plain = SMALL | {"torso": {"width": 64, "norm": False}, "scale_observations": False}
    assert measure("ndqfn-dpe", 0, plain, **BRIEF).ratio < 1.5


@pytest.mark.slow
@SEEDS
def test_pairs_never_replayed_have_a_larger_bonus_on_a_larger_grid_too(seed):
    assert measure("ndqfn-dpe", seed, SMALL, updates=1_000).ratio >= 4
