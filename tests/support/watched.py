"""Agents to be watched, and a server of the page; nothing here trains."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from monotau.agent import Agent
from monotau.envs.probes import TwoSpreads

TINY: dict[str, Any] = {"torso": {"width": 8}, "head": {"hidden": 8, "cosines": 8}}


def tiny_agent(env: Any = "CartPole-v1", preset: str = "ndqfn-dpe", **settings: Any) -> Agent:
    """Return a small agent that has learned nothing."""
    return Agent(env, preset, **(TINY | settings))


def knowing_agent() -> Agent:
    """Return an agent that knows the returns of TwoSpreads: +-0.1 for action 0 and +-2 for action 1.

    Half a percent more for action 0 lets the mean decide for it, too.
    """
    agent = Agent("monotau/TwoSpreads-v0", "qr-dqn", return_scale=1.0, torso={"width": 8}, head={"hidden": 8})
    state = agent.networks.state()
    for name, tensor in state.items():
        if name.endswith("last.advantages.weight"):
            tensor.zero_()
        if name.endswith("last.advantages.bias"):
            half = len(tensor) // 4
            spreads = [torch.tensor([-1.0] * half + [1.0] * half) * spread for spread in TwoSpreads.SPREADS]
            tensor.copy_(torch.cat([spreads[0] + 0.005, spreads[1]]))
    agent.networks.load_state(state)
    return agent


@contextmanager
def served(*directories: Path, flags: tuple[str, ...] = (), folder: Path) -> Iterator[tuple[str, subprocess.Popen]]:
    """Run `monotau watch` in a process of its own, and return its address and the process."""
    log = folder / "watch.log"
    words = [sys.executable, "-m", "monotau", "watch", *map(str, directories), "--no-open", *flags]
    with open(log, "w") as out:
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 60
        while not (found := re.search(r"watch at (\S+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield found[1], process
    finally:
        process.kill()
        process.wait()
