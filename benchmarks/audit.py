"""Trains agents of several methods and audits their return distributions: are quantiles that cannot cross truer?

A run that is finished is not trained again, and audited states are not audited again. The table has one row for each
method and environment: means over seeds, with 95 % intervals over episodes.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from monotau.audit.command import AuditCommand, audit
from monotau.config.presets import PRESETS
from monotau.config.resolve import resolve
from monotau.runs.runner import train_into

METHODS = ("qr-dqn", "iqn-star", "c51", "nc-qr-dqn", "ndqfn", "ndqfn-paper")
STEPS = {"MinAtar/Breakout-v1": 200_000, "MinAtar/Asterix-v1": 200_000, "CartPole-v1": 50_000}


def main(argv: Sequence[str] | None = None) -> None:
    """Train and audit, and print the table of methods."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results") / "audit", help="directory of runs and audit")
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=PRESETS, help="presets")
    parser.add_argument("--envs", nargs="+", default=list(STEPS), help="environments")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="seeds")
    parser.add_argument("--steps", type=int, help="steps per run; by default 200,000 on MinAtar and 50,000 elsewhere")
    parser.add_argument("--states", type=int, default=64, help="audited states of each agent")
    parser.add_argument("--rollouts", type=int, default=64, help="rollouts of each action of a state")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes of the audit")
    given = parser.parse_args(argv)
    console, runs = Console(), []
    for env in given.envs:
        steps = given.steps or STEPS.get(env, 50_000)
        for method in given.methods:
            for seed in given.seeds:
                runs.append(given.out / "runs" / f"{method}_{env.replace('/', '-')}_seed{seed}_{steps}")
                train_into(runs[-1], resolve(method, {"env": {"id": env}, "seed": seed, "steps": steps}), console)
    page = given.out / "page"
    options = {"states": given.states, "rollouts": given.rollouts, "jobs": given.jobs}
    audit(AuditCommand(directories=tuple(runs), out=page, **options), console)
    print((page / "table.md").read_text())


if __name__ == "__main__":
    main()
