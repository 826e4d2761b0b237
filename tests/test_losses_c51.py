"""C51's projection and cross-entropy against a naive twin that moves mass atom by atom, and against pfrl."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monotau.losses import cross_entropy, project, quantile_huber


def naive_projection(atoms, probs, support):
    """Split the mass of each atom between the two nearest support points, by distance."""
    mass = [0.0] * len(support)
    for atom, prob in zip(atoms, probs, strict=True):
        atom = min(max(atom, support[0]), support[-1])
        for i in range(len(support) - 1):
            low, high = support[i], support[i + 1]
            if low <= atom <= high:
                share = (atom - low) / (high - low)
                mass[i] += prob * (1 - share)
                mass[i + 1] += prob * share
                break
    return mass


rows = st.lists(st.tuples(st.floats(-40, 40, width=32), st.floats(0.015625, 1, width=32)), min_size=1, max_size=6)


@given(rows, st.integers(2, 7), st.floats(-20, 5), st.floats(0.5, 20))
@settings(deadline=None)
def test_the_projection_equals_moving_mass_atom_by_atom(pairs, count, low, width):
    atoms = torch.tensor([[atom for atom, _ in pairs]])
    probs = torch.tensor([[prob for _, prob in pairs]])
    probs = probs / probs.sum()
    support = torch.linspace(low, low + width, count)
    projected = project(atoms, probs, support)
    expected = naive_projection(atoms[0].tolist(), probs[0].tolist(), support.tolist())
    torch.testing.assert_close(projected[0], torch.tensor(expected), rtol=1e-3, atol=1e-4)
    assert projected.sum().item() == pytest.approx(1, abs=1e-4)
    inside = atoms.clamp(support[0], support[-1])
    torch.testing.assert_close(
        (projected * support).sum(), (probs * inside).sum(), rtol=1e-3, atol=1e-3
    )  # the mean is kept


def test_a_support_with_uneven_gaps_is_shared_by_distance():
    support = torch.tensor([0.0, 1.0, 4.0])
    projected = project(torch.tensor([[2.0, 0.25]]), torch.tensor([[0.6, 0.4]]), support)
    torch.testing.assert_close(projected, torch.tensor([[0.3, 0.1 + 0.4, 0.2]]))


def test_atoms_on_the_support_stay_and_those_beyond_go_to_the_ends():
    support = torch.tensor([-1.0, 0.0, 1.0])
    projected = project(torch.tensor([[-7.0, 0.0, 99.0]]), torch.tensor([[0.2, 0.5, 0.3]]), support)
    torch.testing.assert_close(projected, torch.tensor([[0.2, 0.5, 0.3]]))


def test_cross_entropy_is_the_sum_of_its_terms_and_gives_the_target_no_gradient():
    logits = torch.tensor([[0.3, -1.0, 2.0], [0.0, 5.0, 1.0]], requires_grad=True)
    target = torch.tensor([[0.2, 0.5, 0.3], [1.0, 0.0, 0.0]], requires_grad=True)
    losses = cross_entropy(logits.log_softmax(dim=-1), target)
    for row in range(2):
        logs = [math.log(p) for p in logits[row].softmax(dim=-1).tolist()]
        expected = -sum(t * log for t, log in zip(target[row].tolist(), logs, strict=True))
        assert losses[row].item() == pytest.approx(expected, rel=1e-5)
    losses.sum().backward()
    torch.testing.assert_close(logits.grad, logits.detach().softmax(dim=-1) - target.detach())
    assert target.grad is None


# What pfrl 0.4.0 computes for these inputs: _apply_categorical_projection in agents/categorical_dqn.py and
# compute_eltwise_huber_quantile_loss in agents/iqn.py, run with torch 2.13.0. The library is not a dependency: it
# needs gym, which is no longer maintained.
PFRL_ATOMS = [[-2.6, -0.31, 0.0, 0.4, 1.7], [-9.0, 0.9, 1.25, 1.6, 30.0], [0.5, 0.5, 0.5, 0.5, 0.5]]
PFRL_PROBS = [[0.1, 0.2, 0.3, 0.25, 0.15], [0.05, 0.15, 0.4, 0.3, 0.1], [0.2, 0.2, 0.2, 0.2, 0.2]]
PFRL_PROJECTION = [
    [0.10000000149011612, 0.06199998781085014, 0.5879999995231628, 0.14500001072883606, 0.10500001162290573],
    [0.05000000074505806, 0.0, 0.014999986626207829, 0.5550000667572021, 0.3799999952316284],
    [0.0, 0.0, 0.5, 0.5, 0.0],
]
PFRL_VALUES = [[-1.2, 0.3, 2.0], [0.0, 0.1, -0.4]]
PFRL_TAUS = [[0.1, 0.45, 0.95], [0.7, 0.2, 0.5]]
PFRL_TARGETS = [[-3.0, 0.5, 0.7, 1.9, 8.0], [0.05, -0.02, 0.3, 1.2, -0.9]]
PFRL_LOSSES = [
    [
        [1.1699999570846558, 0.12000000476837158, 0.14000001549720764, 0.25999999046325684, 0.8700000047683716],
        [1.5399999618530273, 0.008999998681247234, 0.03599999472498894, 0.4949999451637268, 3.239999771118164],
        [0.2250000536441803, 0.050000011920928955, 0.040000006556510925, 0.0002500001573935151, 5.224999904632568],
    ],
    [
        [0.0008750000270083547, 6.000000212225132e-05, 0.03150000050663948, 0.49000003933906555, 0.12149999290704727],
        [0.0010000000474974513, 0.005760000552982092, 0.0040000006556510925, 0.12000000476837158, 0.4000000059604645],
        [0.05062500387430191, 0.03610000014305115, 0.12250001728534698, 0.550000011920929, 0.0624999925494194],
    ],
]


def test_the_projection_agrees_with_another_library():
    projected = project(torch.tensor(PFRL_ATOMS), torch.tensor(PFRL_PROBS), torch.linspace(-2, 2, 5))
    torch.testing.assert_close(projected, torch.tensor(PFRL_PROJECTION), rtol=1e-5, atol=1e-6)


def test_the_quantile_loss_agrees_with_another_library():
    losses = quantile_huber(*(torch.tensor(rows) for rows in (PFRL_VALUES, PFRL_TAUS, PFRL_TARGETS)))
    expected = torch.tensor(PFRL_LOSSES).mean(dim=2).sum(dim=1)
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-6)
