"""Trains one preset with one seed on rewards times 0.01, 1 and 100, and counts equal actions and returns.

If learning does not depend on the scale of rewards, training takes the same actions, and evaluations have the same
returns after division by the factor. Actions count from the first update on. Epsilon's random actions always agree, so
`first_other_action`, the step at which two runs diverge, says more than the number of equal actions. Rounding differs
between the factors, so long runs diverge at some step; their mean returns should still be close. Prints a JSON line for
each environment and factor.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from monotau import Agent
from monotau.config.presets import DEFAULT_PRESET, PRESETS
from monotau.envs import Inventory

FACTORS = (0.01, 1.0, 100.0)
TOLERANCE = 1e-4
"""Relative difference of returns that counts as rounding."""


def cartpole(factor: float) -> gym.Env:
    """Return CartPole with scaled rewards."""
    return gym.wrappers.TransformReward(
        gym.make("CartPole-v1", disable_env_checker=True), lambda reward: factor * float(reward)
    )


WORLDS: dict[str, Callable[[float], gym.Env]] = {
    "CartPole-v1": cartpole,
    "monotau/Inventory-v0": lambda factor: Inventory(reward_scale=factor),
}


@dataclass
class Trace:
    """Actions and returns of a run."""

    actions: list[int] = field(default_factory=list)
    """Actions of training, in order."""
    returns: list[float] = field(default_factory=list)
    """Returns of all evaluation episodes, divided by the factor."""
    warmup: int = 0
    """Number of actions before the first update, which do not depend on rewards."""


class Recorder(gym.Wrapper):
    """Records the actions taken while `recording` returns True."""

    def __init__(self, env: gym.Env, trace: Trace, recording: Callable[[], bool]) -> None:
        super().__init__(env)
        self.trace, self.recording = trace, recording

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step."""
        if self.recording():
            self.trace.actions.append(int(action))
        return self.env.step(action)


def run(make: Callable[[float], gym.Env], factor: float, preset: str, seed: int, steps: int, **settings: Any) -> Trace:
    """Train on rewards times a factor, with an evaluation after each iteration."""
    trace, training = Trace(), [False]
    agent = Agent(lambda: Recorder(make(factor), trace, lambda: training[0]), preset, seed, steps=steps, **settings)
    trace.warmup = agent.config.replay.warmup_steps
    while agent.steps < steps:
        training[0] = True
        agent.learn(min(agent.config.iteration_steps, steps - agent.steps))
        training[0] = False
        trace.returns += [value / factor for value in agent.evaluate(agent.config.evaluation.episodes).returns]
    return trace


def compare(one: Trace, other: Trace) -> dict[str, float | int | None]:
    """Count equal actions and returns of two runs of the same length, and find where their actions diverge."""
    same = np.array(one.actions[one.warmup :]) == np.array(other.actions[one.warmup :])
    alike = np.isclose(one.returns, other.returns, rtol=TOLERANCE)
    return {
        "actions": len(same),
        "actions_agree": int(same.sum()),
        "first_other_action": None if same.all() else one.warmup + int(np.argmin(same)),
        "returns": len(alike),
        "returns_agree": int(alike.sum()),
        "return_mean": round(float(np.mean(other.returns)), 3),
        "return_mean_unscaled": round(float(np.mean(one.returns)), 3),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run every environment with every factor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default=DEFAULT_PRESET, choices=PRESETS, help="preset to train")
    parser.add_argument("--envs", nargs="+", default=list(WORLDS), choices=WORLDS, help="environments")
    parser.add_argument("--seed", type=int, default=0, help="seed of all runs")
    parser.add_argument("--steps", type=int, default=10_000, help="steps of a run")
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    for env in given.envs:
        traces = {factor: run(WORLDS[env], factor, given.preset, given.seed, given.steps) for factor in FACTORS}
        for factor in FACTORS:
            if factor != 1.0:
                about = {"preset": given.preset, "env": env, "seed": given.seed, "factor": factor}
                print(json.dumps(about | compare(traces[1.0], traces[factor])))


if __name__ == "__main__":
    main()
