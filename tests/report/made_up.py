"""Runs that were never run: what a report reads of them, made up."""

from pathlib import Path
from typing import Any

from monotau.report.reading import ReportedRun

SETTINGS = {"update.sync_every_steps": 100, "replay.warmup_steps": 150}


def evaluation(step: int, **numbers: Any) -> dict[str, Any]:
    return {"step": step, "kind": "eval", "policy": "greedy", "return_mean": 0.0} | numbers


def training(step: int, **numbers: Any) -> dict[str, Any]:
    return {"step": step, "kind": "train"} | numbers


def fake_run(method: str, lines: Any, env: str = "Nowhere-v0", seed: int = 0, **more: Any) -> ReportedRun:
    settings = {"head.kind": "dqn", "env.id": env, "env.kwargs": {}} | SETTINGS | more.pop("settings", {})
    state = more.pop("state", "finished")
    directory = Path("nowhere") / f"{method}_{env}_{seed}"
    return ReportedRun(
        directory=directory, state=state, method=method, env=env, seed=seed, settings=settings, lines=lines, **more
    )


def ignore(told: str) -> None:
    """Be told what is being done, and leave it at that."""
