"""Measures whether the torso's features die: trains several presets on a fixed replay of random Atari play.

Prints a JSON line for each preset and number of updates: the mean of the torso's features, the share of them that are
zero in every state of a batch, and the deviation of the best action's value between states (`q_std`). All three show
features that vanish, as in the paper's network with small initial weights.
"""

import argparse
import json
from typing import Any

import torch

from monotau import Agent
from monotau.networks.devices import torch_threads
from monotau.seeding import numpy_stream, torch_stream

BATCH = 256


def measure(preset: str, env: str, seed: int, steps: int, updates: int, every: int, threads: int) -> None:
    """Fill a replay with random play, then train and print the metrics."""
    settings: dict[str, Any] = {
        "epsilon": {"start": 1.0, "end": 1.0},
        "replay": {"capacity_steps": steps, "warmup_steps": steps},
    }
    agent = Agent(env, preset, seed, profile="atari", iteration_steps=steps, **settings)
    agent.learn(steps)
    training, networks = agent._training, agent.networks
    assert training is not None  # noqa: S101
    drawing, learning = numpy_stream(seed, "features"), torch_stream(seed, "features")
    look = training.replay.sample(BATCH, numpy_stream(seed, "look")).to(networks.device)
    with torch_threads(threads):
        for update in range(updates + 1):
            if update % every == 0:
                print(
                    json.dumps({"preset": preset, "updates": update} | state_of(agent, look.observations)), flush=True
                )
            batch = training.replay.sample(agent.config.update.batch_size, drawing).to(networks.device)
            networks.learner.update(batch, learning)
            if (update + 1) % (agent.config.update.sync_every_steps // agent.config.update.every_steps) == 0:
                networks.learner.sync()


@torch.no_grad()
def state_of(agent: Agent, observations: torch.Tensor) -> dict[str, float]:
    """Return the metrics of features and values."""
    network = agent.networks.learner.online
    features = network.torso(observations)
    dead = (features == 0).all(dim=0).float().mean().item()
    means = [agent.distribution(row.numpy()).mean().max().item() for row in observations[:64]]
    return {
        "feature_mean": round(features.mean().item(), 6),
        "dead_features": round(dead, 4),
        "q_std": round(float(torch.tensor(means).std(correction=0)), 6),
    }


def main() -> None:
    """Measure the presets one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("presets", nargs="*", default=["ndqfn", "iqn", "ndqfn-paper"])
    parser.add_argument("--env", default="ALE/Pong-v5")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=4_000, help="steps of random play")
    parser.add_argument("--updates", type=int, default=2_000)
    parser.add_argument("--every", type=int, default=500, help="updates between measurements")
    parser.add_argument("--threads", type=int, default=0)
    given = parser.parse_args()
    for preset in given.presets:
        measure(preset, given.env, given.seed, given.steps, given.updates, given.every, given.threads)


if __name__ == "__main__":
    main()
