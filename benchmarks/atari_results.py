"""Archives Atari runs, finished or not: their settings, evaluations with elapsed time, and learning curve.

python -m benchmarks.atari_results runs/ndqfn-fast_ALE-Pong-v5-noop_seed0 writes into results/atari/NAME_OF_THE_RUN.
"""

import argparse
import csv
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from monotau.report.run_figures import draw_learning_curve
from monotau.runs.files import read_json
from monotau.runs.layout import METRICS
from monotau.runs.metrics import Line, read_lines

HOME = Path(__file__).parent.parent / "results" / "atari"


def evaluations(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """Return a row for each evaluation; hours count training and evaluation, but not start-up."""
    rows, seconds, step = [], 0.0, 0
    for line in lines:
        if line["kind"] == "train":
            seconds += (line["step"] - step) / line["steps_per_second"]
            step = line["step"]
            continue
        seconds += line["seconds"]
        names = ("policy", "return_mean", "return_std", "return_min", "return_max", "episodes")
        rows.append({"step": line["step"], "hours": round(seconds / 3600, 4)} | {name: line[name] for name in names})
    return rows


def main() -> None:
    """Write the files of each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    for run in parser.parse_args().runs:
        config, lines = read_json(run / "config.json"), read_lines(run / METRICS)
        env = config["env"]
        name = f"{config['preset']}_{env['id'].replace('/', '-')}-{env['protocol']}_seed{config['seed']}"
        home = HOME / name
        home.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(run / "config.json", home / "config.json")
        rows = evaluations(lines)
        with open(home / "evaluations.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        title = f"{config['preset']} on {env['id']} {env['protocol']}, seed {config['seed']}"
        draw_learning_curve(lines, title, home / "learning_curve.png")
        best = max(rows, key=lambda row: (row["policy"] == "greedy", row["return_mean"]))
        print(f"{home}: {len(rows)} evaluations to step {rows[-1]['step']}, best {best['return_mean']:.2f}")


if __name__ == "__main__":
    main()
