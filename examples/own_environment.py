"""Train on an environment of your own: a thermostat that trades comfort against energy.

    python examples/own_environment.py --steps 10000

Any Gymnasium environment with a Discrete action space will do. Pass the class, or any callable that makes a new
environment, to Agent.
"""

import argparse
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from monotau import Agent


class Thermostat(gym.Env[np.ndarray, np.int64]):
    """Keep a room at 20 degrees for a day, in steps of ten minutes; heating costs energy, the weather is random."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)  # inside, outside, share of the day
        self.action_space = spaces.Discrete(3)  # heater off, low, high

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Start a new day."""
        super().reset(seed=seed)
        self.inside, self.outside, self.time = 15.0, float(self.np_random.uniform(-5, 10)), 0
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Let ten minutes pass."""
        self.outside += float(self.np_random.normal(0, 0.5))
        self.inside += 0.05 * (self.outside - self.inside) + float(action)
        self.time += 1
        reward = float(-abs(self.inside - 20) - 0.2 * action)
        # The day ends by the clock, not because of anything the agent did: that is truncation, not termination.
        return self._observation(), reward, False, self.time >= 144, {}

    def _observation(self) -> np.ndarray:
        return np.array([self.inside, self.outside, self.time / 144], np.float32)


def main() -> None:
    """Train, evaluate and look at one state."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--episodes", type=int, default=10)
    given = parser.parse_args()
    agent = Agent(Thermostat, preset="ndqfn", seed=0, steps=given.steps, verbose=True)
    before = agent.evaluate(given.episodes).line()["return_mean"]
    agent.learn(given.steps)
    after = agent.evaluate(given.episodes).line()["return_mean"]
    print(f"return of a day: {before:.0f} before learning, {after:.0f} after {given.steps:,d} steps")
    cold_morning = np.array([15.0, -5.0, 0.0], np.float32)
    for action, mean in zip(("off", "low", "high"), agent.distribution(cold_morning).mean().tolist(), strict=True):
        print(f"  expected discounted return of heater {action:>4s} on a cold morning: {mean:7.1f}")


if __name__ == "__main__":
    main()
