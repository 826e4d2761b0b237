"""Trains one preset with one seed on rewards times 0.01, 1 and 100, and counts what stays the same.

Where learning does not depend on the unit of rewards, training takes the same actions and evaluations give the same
returns, once divided by the factor. Actions are counted from the first update on; those that epsilon makes random agree
whatever was learned, so `first_other_action`, the step at which two runs part, says more than how many agree. Rounding
differs between the factors, so that even then long runs part at some step; their mean returns should still be alike.
One JSON line for each environment and factor.
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
    """CartPole with its rewards multiplied."""
    return gym.wrappers.TransformReward(
        gym.make("CartPole-v1", disable_env_checker=True), lambda reward: factor * float(reward)
    )


WORLDS: dict[str, Callable[[float], gym.Env]] = {
    "CartPole-v1": cartpole,
    "monotau/Inventory-v0": lambda factor: Inventory(reward_scale=factor),
}


@dataclass
class Trace:
    """What a run did and earned."""

    actions: list[int] = field(default_factory=list)
    """Of training, in order."""
    returns: list[float] = field(default_factory=list)
    """Of all evaluation episodes, divided by the factor."""
    warmup: int = 0
    """Actions before the first update, on which rewards have no influence."""


class Recorder(gym.Wrapper):
    """Writes down the actions taken, while `writing` says so."""

    def __init__(self, env: gym.Env, trace: Trace, writing: Callable[[], bool]) -> None:
        super().__init__(env)
        self.trace, self.writing = trace, writing

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step."""
        if self.writing():
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
    """Count what is the same in two runs of equally many steps, and find where their actions part."""
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
    parser.add_argument("--preset", default=DEFAULT_PRESET, choices=PRESETS, help="what to train")
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
