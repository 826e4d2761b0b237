"""Act on a risk measure of the learned returns instead of their mean.

    python examples/risk.py --steps 3000

Both actions of monotau/TwoSpreads-v0 have a mean return of 0: action 0 returns +0.1 or -0.1, action 1 returns +2 or -2.
An agent that acts on the mean has no reason to prefer either; one that avoids risk takes action 0, one that seeks it
takes action 1. The measure is chosen when acting: the agent is trained once.
"""

import argparse

from monotau import Agent

MEASURES: list[tuple[str, float | None, float | None]] = [  # name, alpha, eta
    ("mean", None, None),
    ("cvar", 0.1, None),
    ("upper-cvar", 0.1, None),
    ("wang", None, -0.75),
    ("wang", None, 0.75),
]


def main() -> None:
    """Train once, then act on several measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3_000)
    given = parser.parse_args()
    agent = Agent("monotau/TwoSpreads-v0", preset="ndqfn", seed=0, steps=given.steps)
    agent.learn(given.steps)
    state = 0
    returns = agent.distribution(state)
    print(f"mean of both actions:      {[round(x, 2) for x in returns.mean().tolist()]}")
    print(f"CVaR(0.1) of both actions: {[round(x, 2) for x in returns.cvar(0.1).tolist()]}")
    for name, alpha, eta in MEASURES:
        action, _ = agent.predict(state, risk=name, alpha=alpha, eta=eta)
        print(f"{name:>10s}, alpha {alpha}, eta {eta}: action {action}")


if __name__ == "__main__":
    main()
