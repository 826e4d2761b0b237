"""Munchausen targets learn the values of Munchausen value iteration, with every kind of distribution."""

import math

import pytest

from monotau import Agent

GAMMA, ALPHA, TEMPERATURE, CLIP = 0.9, 0.9, 0.1, -1.0


def soft_gate() -> dict[tuple[int, int], float]:
    """Return the fixed point of Munchausen value iteration in the Gate, which has two states and an action mask."""
    values = {(0, 0): 0.0, (0, 1): 0.0, (1, 0): 0.0}

    def log_policy(state: int, action: int) -> float:
        allowed = [values[key] for key in values if key[0] == state]
        return (
            values[state, action]
            - max(allowed)
            - TEMPERATURE * math.log(sum(math.exp((value - max(allowed)) / TEMPERATURE) for value in allowed))
        )

    for _ in range(1000):
        beyond = values[1, 0] - log_policy(1, 0)
        bare = {(0, 0): GAMMA * beyond, (0, 1): 1.0, (1, 0): -1.0}
        values = {key: bare[key] + ALPHA * max(log_policy(*key), CLIP) for key in bare}
    return values


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["dqn", "munchausen-iqn", "c51", "spl-dqn", "ndqfn"])
def test_values_are_the_fixed_point_of_munchausen_value_iteration(preset):
    """The gap between the actions of the first state, 1.9, grows by alpha times the clipped log-policy."""
    agent = Agent(
        "monotau/Gate-v0",
        preset,
        seed=1,
        gamma=GAMMA,
        return_scale=1.0,
        n_step=1,
        double_q=False,
        munchausen={"alpha": ALPHA, "temperature": TEMPERATURE, "clip": CLIP},
        head={"hidden": 32},
        torso={"width": 32, "layers": 1},
        replay={"capacity_steps": 4000, "warmup_steps": 200},
        update={"batch_size": 32, "every_steps": 2, "sync": "copy", "sync_every_steps": 100},
        optimiser={"learning_rate": 2e-3, "epsilon": 1e-6},
        epsilon={"end": 0.5, "decay_steps": 0},
        iteration_steps=1000,
    ).learn(1500)
    expected = soft_gate()
    assert expected[0, 1] - expected[0, 0] > 2.7
    means = [agent.distribution(state).mean() for state in range(2)]
    for (state, action), value in expected.items():
        assert means[state][action].item() == pytest.approx(value, abs=0.15), (state, action)
    assert agent.predict(0)[0] == 1
