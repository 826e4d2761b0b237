"""Makes the moving pictures of the README with `monotau video`: CartPole solved, and MinAtar's Breakout.

Trains both agents first, unless --cartpole and --breakout name runs: a minute for CartPole, some minutes for Breakout.
The agent on CartPole must reach 500 in its last evaluation.
"""

import argparse
import json
import tempfile
from pathlib import Path

from monotau.cli import main as monotau

HERE = Path(__file__).parent
TRAINING = {
    "cartpole": ["--env", "CartPole-v1"],
    "breakout": ["--env", "MinAtar/Breakout-v1", "--steps", "40000", "--iteration-steps", "5000"],
}
FILMING = {
    "cartpole": ["--most-steps", "240", "--every-steps", "2"],
    "breakout": ["--best", "--most-steps", "160", "--seed", "7", "--speed", "10"],
}


def main() -> None:
    """Train or take the runs, and film them."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in TRAINING:
        parser.add_argument(f"--{name}", type=Path, help="a finished run")
    given = vars(parser.parse_args())
    with tempfile.TemporaryDirectory() as folder:
        for name, settings in TRAINING.items():
            run = given[name] or Path(folder) / name
            if not given[name]:
                monotau(["train", *settings, "--out", str(run)])
            last = json.loads((run / "result.json").read_text())["final"]["return_mean"]
            if name == "cartpole" and last < 500:
                raise SystemExit(f"the agent in {run} ended at {last}, but must reach 500; train another seed")
            path = HERE / f"{name}.gif"
            monotau(["video", str(run), "--out", str(path), "--width", "760", *FILMING[name]])
            print(f"{path}: {path.stat().st_size / 1e6:.2f} MB, return {last}")


if __name__ == "__main__":
    main()
