"""Fake runs: run directories as training writes them, and run records in memory, both without training."""

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from monotau.config.resolve import resolve
from monotau.results.read import RunRecord

PROVENANCE = {
    "step": 0,
    "time": "2026-01-02T03:04:05+00:00",
    "packages": {"monotau": "0.2.0", "torch": "2.13.0"},
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "python": "3.11.7",
    "system": "Linux 6.1 x86_64",
    "processor": "A Processor",
    "cores": 2,
    "memory_gb": 8.0,
    "device": "cpu",
}

NOT_A_SCORE = 1e6
"""Training return of fake runs, which nothing may take for an evaluation."""


def plain_settings(
    preset: str = "ndqfn", env: str = "CartPole-v1", seed: int = 0, steps: int = 20_000, **others: Any
) -> dict[str, Any]:
    """Return complete settings as in config.json; Atari games need no emulator for this."""
    plain = json.loads(_resolved(preset, json.dumps(others)))
    protocol = "noop" if env.startswith("ALE/") else "none"
    return plain | {"seed": seed, "steps": steps, "env": plain["env"] | {"id": env, "protocol": protocol}}


@cache
def _resolved(preset: str, others: str) -> str:
    return json.dumps(resolve(preset, json.loads(others)).config.to_plain())


def evaluation(step: int, return_mean: Any = 0.0, policy: str = "greedy", **numbers: Any) -> dict[str, Any]:
    """Return a line of kind eval."""
    number = return_mean if isinstance(return_mean, float) else 0.0
    return {
        "step": step, "kind": "eval", "return_mean": return_mean, "return_std": 1.5, "return_min": number - 2,
        "return_max": number + 2, "length_mean": 100.0, "episodes": 10, "policy": policy, "crossing": 0.0,
        "seconds": 0.1,
    } | numbers  # fmt: skip


def training(step: int, **numbers: Any) -> dict[str, Any]:
    """Return a line of kind train with these numbers only."""
    return {"step": step, "kind": "train"} | numbers


def write_run(
    directory: Path,
    returns: list[Any],
    *,
    config: dict[str, Any] | None = None,
    random: float | None = 20.0,
    finished: bool = True,
    every: int | None = None,
    starts: list[dict[str, Any]] | None = None,
) -> Path:
    """Write a run with these evaluation returns, spread over its steps, and a line of training before each."""
    config = config or plain_settings()
    every = every or config["steps"] // max(len(returns), 1)
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config))
    lines = [] if random is None else [evaluation(0, random, "random")]
    for number, value in enumerate(returns, start=1):
        lines.append(
            training(
                number * every, iteration=number - 1, updates=10 * number, epsilon=0.1, episodes=3,
                return_mean=NOT_A_SCORE, loss=1 / number, bonus_mean=None, crossing=0.0, dead_increments=0.01,
                updates_per_second=50.0, steps_per_second=200.0,
            )
        )  # fmt: skip
        lines.append(evaluation(number * every, value))
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (directory / "provenance.json").write_text(json.dumps({"starts": [PROVENANCE] if starts is None else starts}))
    if finished:
        (directory / "result.json").write_text(json.dumps({"steps": config["steps"], "seconds": 3600.0}))
    return directory


def write_atari_run(
    directory: Path,
    returns: list[Any],
    *,
    preset: str = "iqn",
    env_id: str = "ALE/Pong-v5",
    protocol: Any = "sticky",
    seed: int = 0,
    finished: bool = True,
) -> Path:
    """Write a run on an Atari game with an evaluation every 1,000 steps; a protocol of None is left out."""
    config = plain_settings(preset, env_id, seed, 1000 * max(len(returns), 1))
    config["evaluation"]["epsilon"] = 0.001
    config["profile"] = "atari"
    config["env"] |= {"protocol": protocol}
    if protocol is None:
        del config["env"]["protocol"]
    return write_run(directory, returns, config=config, random=NOT_A_SCORE, finished=finished)


def rising_returns(level: float, random: float, evaluations: int, seed: int) -> list[float]:
    """Return evaluations that rise from random play to a level, with noise of the seed."""
    rng = np.random.default_rng([seed, evaluations, int(abs(level))])
    rise = [1 - math.exp(-4 * (number + 1) / evaluations) for number in range(evaluations)]
    reached = level + 0.12 * (level - random) * rng.standard_normal()
    noise = 0.05 * abs(level - random) * rng.standard_normal(evaluations)
    return [random + share * (reached - random) + float(shake) for share, shake in zip(rise, noise, strict=True)]


def write_runs(
    root: Path,
    levels: dict[str, dict[str, float]],
    *,
    random: dict[str, float] | float = 20.0,
    seeds: int = 3,
    steps: int = 20_000,
    evaluations: int = 20,
) -> Path:
    """Write runs of presets that reach these levels in environments."""
    for method, envs in levels.items():
        for env, level in envs.items():
            base = random[env] if isinstance(random, dict) else random
            for seed in range(seeds):
                write_run(
                    root / f"{method}_{env.replace('/', '-')}_seed{seed}",
                    rising_returns(level, base, evaluations, seed),
                    config=plain_settings(method, env, seed, steps),
                    random=base,
                )
    return root


def fake_run(method: str, lines: Any, env: str = "Nowhere-v0", seed: int = 0, **more: Any) -> RunRecord:
    """Return a run record with these metrics; `settings` adds to its few settings."""
    settings = {"head.kind": "dqn", "env.id": env, "env.kwargs": {}, "steps": 1000}
    settings |= {"update.sync_every_steps": 100, "replay.warmup_steps": 150} | more.pop("settings", {})
    state = more.pop("state", "finished")
    directory = Path("nowhere") / f"{method}_{env}_{seed}"
    return RunRecord(
        directory=directory, state=state, method=method, env=env, seed=seed, settings=settings, lines=lines, **more
    )


def ignore(message: str) -> None:
    """Ignore a progress message."""
