"""Munchausen's soft policy, entropy and bonus, against sums written out, and by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monotau.losses import entropy_bonus, munchausen_bonus, soft_policy

rows = st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=5)


@settings(deadline=None)
@given(values=rows, temperature=st.floats(0.05, 20))
def test_the_policy_is_a_softmax_and_its_logarithms_are_scaled(values, temperature):
    policy, logs = soft_policy(torch.tensor([values], dtype=torch.float64), temperature)
    powers = [math.exp((value - max(values)) / temperature) for value in values]
    expected = [power / sum(powers) for power in powers]
    assert policy[0].tolist() == pytest.approx(expected, rel=1e-9, abs=1e-300)
    for found, value in zip(logs[0].tolist(), values, strict=True):
        exact = value - max(values) - temperature * math.log(sum(powers))
        assert found == pytest.approx(exact, rel=1e-9, abs=1e-9)
    entropy = -sum(p * math.log(p) for p in expected if p)
    assert entropy_bonus(policy, logs).item() == pytest.approx(temperature * entropy, rel=1e-6, abs=1e-9)
    # The soft value, the average plus the entropy, is temperature * log(sum(exp(value / temperature))).
    soft = (policy[0] * torch.tensor(values, dtype=torch.float64)).sum() + entropy_bonus(policy, logs)[0]
    assert soft.item() == pytest.approx(max(values) + temperature * math.log(sum(powers)), rel=1e-9, abs=1e-9)


def test_values_far_from_zero_keep_their_differences_at_a_small_temperature():
    near, far = (soft_policy(torch.tensor([[base, base + 0.0625]]), 0.03)[0] for base in (0.0, 4096.0))
    assert torch.equal(near, far)


def test_excluded_actions_have_no_probability_and_add_nothing():
    values = torch.tensor([[1.0, -torch.inf, 1.0], [-torch.inf, 5.0, -torch.inf]])
    policy, logs = soft_policy(values, 0.5)
    torch.testing.assert_close(policy, torch.tensor([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]))
    torch.testing.assert_close(entropy_bonus(policy, logs), torch.tensor([0.5 * math.log(2), 0.0]))


def test_the_bonus_is_alpha_times_the_clipped_logarithm():
    logs = torch.tensor([0.0, -0.25, -1.0, -7.0])
    assert munchausen_bonus(logs, 0.5, clip=-1.0).tolist() == [0.0, -0.125, -0.5, -0.5]
