"""What watching costs: the time from a step to the screen, and the speed of a training run with and without a viewer.

    python -m benchmarks.watching --agent runs/ndqfn-dpe_CartPole-v1_seed0

The first part opens the page in a browser (chromium and chromedriver on PATH) and measures, for every moment that is
drawn at 20 steps per second, the time from its rendering to the beginning of the frame after the one that shows it, and
the share of a core that the server takes meanwhile, which does not depend on what else the machine does. The second
part trains the default agent on CartPole in short runs, alternately alone and while a viewer with an open page
watches the run; it compares their updates per second. Prints one JSON line.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WARM_SECONDS = 3.0


@contextmanager
def watching(directory: Path, *flags: str) -> Iterator[tuple[Any, int]]:
    """Watch a run in a browser, and return the driver of the browser and the process of the server."""
    from selenium import webdriver

    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "hide-scrollbars", "window-size=1280,1000"):
        options.add_argument(f"--{flag}")
    words = [sys.executable, "-m", "monotau", "watch", str(directory), "--no-open", *flags]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603
        try:
            assert server.stdout is not None  # noqa: S101
            address = next(found[1] for line in server.stdout if (found := re.search(r"watch at (\S+)", line)))
            driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
            try:
                driver.get(address)
                yield driver, server.pid
            finally:
                driver.quit()
        finally:
            server.terminate()


def latencies(agent: Path, seconds: float) -> tuple[list[float], float]:
    """Return the milliseconds from step to screen of the moments drawn in some seconds, and the server's CPU time."""
    with watching(agent, "--speed", "20") as (driver, server):
        time.sleep(WARM_SECONDS)
        driver.execute_script("latencies.length = 0")
        before = cpu_seconds(server)
        time.sleep(seconds)
        measured: list[float] = driver.execute_script("return latencies")
        return measured, cpu_seconds(server) - before


def cpu_seconds(process: int) -> float:
    """Return the CPU time that a process has taken so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rates_of_training(folder: Path, steps: int, *, watched: bool) -> tuple[list[float], int]:
    """Train for some steps; return the updates per second of each log line, and how many lines came before the viewer.

    Starting a viewer and a browser takes seconds of CPU time, which are not what watching costs.
    """
    words = [sys.executable, "-m", "monotau", "train", "--out", str(folder), "--steps", str(steps)]
    words += ["--iteration-steps", "2000", "--log-every-steps", "500", "--evaluation.episodes", "1"]
    before = 0
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as training:  # noqa: S603
        if watched:
            while not list(folder.glob("checkpoints/*/agent.json")):
                time.sleep(0.1)
            with watching(folder):
                time.sleep(WARM_SECONDS)
                before = len(rates_in(folder)) + 1  # the line that is being measured began before
                training.wait()
    return rates_in(folder), before


def rates_in(folder: Path) -> list[float]:
    """Return the updates per second of a run's log lines."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["updates_per_second"] for line in lines if line["kind"] == "train" and line.get("updates_per_second")]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", type=Path, required=True, help="a run on CartPole")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--steps", type=int, default=12_000)
    parser.add_argument("--rounds", type=int, default=3, help="pairs of training runs; 0 measures the latency only")
    given = parser.parse_args()
    measured, cpu = latencies(given.agent, given.seconds)
    shown = sorted(measured)
    result: dict[str, Any] = {
        "frames_per_second": round(len(shown) / given.seconds, 1),
        "cores_of_the_server": round(cpu / given.seconds, 2),
        "latency_ms": {"median": round(statistics.median(shown)), "95 %": round(shown[int(0.95 * len(shown))])},
    }
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.rounds):
            alone, _ = rates_of_training(Path(folder) / f"{number}-alone", given.steps, watched=False)
            watched, before = rates_of_training(Path(folder) / f"{number}-watched", given.steps, watched=True)
            if before >= min(len(alone), len(watched)):
                raise SystemExit("the training ended before the page was there; use more --steps")
            pairs.append((statistics.median(alone[before:]), statistics.median(watched[before:])))
    if pairs:
        result["updates_per_second"] = [[round(rate, 1) for rate in pair] for pair in pairs]
        result["cost_of_a_viewer"] = round(1 - statistics.median(watched / alone for alone, watched in pairs), 3)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
