"""`monotau card`: a model card of a run, in Markdown with the front matter that the Hugging Face Hub reads."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
import yaml
from rich.console import Console

from monotau.config.listing import ABOUT
from monotau.errors import ConfigError, StorageFault
from monotau.report.formatting import format_duration, format_number
from monotau.results.read import RunRecord, read_run
from monotau.runs.files import check_file, write_bytes
from monotau.runs.layout import LEARNING_CURVE
from monotau.runs.metrics import Line, best_evaluation

LOADING = """\
```python
from monotau import Agent

agent = Agent.load("path/to/this/directory")  # best=True: the agent as of its best evaluation
action, _ = agent.predict(observation)  # or risk="cvar", alpha=0.1
returns = agent.distribution(observation)  # of every action: mean(), quantile(), cvar()
```

The files are JSON and safetensors: loading executes nothing. `monotau evaluate path/to/this/directory` plays episodes.
"""


@dataclass(frozen=True, kw_only=True)
class CardCommand:
    """Print a model card of a run, with the front matter that the Hugging Face Hub reads."""

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Run directory with at least one evaluation."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """File to write instead, such as DIR/README.md; the learning curve is linked relative to it."""


def write_card(given: CardCommand, console: Console) -> None:
    """Print the card of a run or write it to a file."""
    run = read_run(given.directory)
    if run.state == "damaged":
        raise ConfigError(f"{given.directory} is not a run that can be described: {run.reason}")
    text = card(run, given.directory if given.out is None else given.out.parent)
    if given.out is None:
        console.print(text, end="", markup=False, highlight=False, soft_wrap=True)
        return
    failure = f"the card cannot be written to {given.out}"
    check_file(failure, given.out)
    try:
        write_bytes(given.out, text.encode())
    except OSError as error:
        raise StorageFault(f"{failure}: {error.strerror}.") from None  # the error names a temporary file
    console.print(str(given.out), markup=False, highlight=False, soft_wrap=True)


def card(run: RunRecord, place: Path) -> str:
    """Return the card of a run, for a file in the directory `place`."""
    score = run.score()  # raises if there is no evaluation
    last, best = run.evaluations()[-1], best_evaluation(run.evaluations())
    about = ABOUT["presets"].get(run.method, "")
    steps, seconds = run.settings["steps"], run.seconds
    part = "unfinished" if run.state != "finished" else "stopped early" if run.result.get("stopped") else ""
    progress = f"{run.step:,d} of {steps:,d} steps ({part})" if part else f"{steps:,d} steps"
    took = f" in {format_duration(seconds)}" if seconds is not None else ""
    sections = [
        f"---\n{yaml.safe_dump(front_matter(run, score, last), sort_keys=False, allow_unicode=True)}---",
        f"# {plain(run.method)} on {plain(run.env)}",
        f"An agent trained with [monotau](https://github.com/monotau/monotau){f': {about}' if about else ''}. "
        f"It was trained for {progress} with seed {run.seed}{took}.",
        "## Evaluation",
        "\n".join(evaluations(run, last, best)),
    ]
    if (run.directory / LEARNING_CURVE).is_file():
        picture = os.path.relpath(run.directory / LEARNING_CURVE, place)
        sections.append(f"![Returns over training](<{Path(picture).as_posix()}>)")
    sections += ["## Use", LOADING.rstrip(), "## Settings", "\n".join(settings(run)), "## Versions"]
    packages = run.starts[-1].get("packages") if run.starts else None
    versions = packages.items() if isinstance(packages, dict) else ()
    sections.append(", ".join(f"{plain(name)} {plain(version)}" for name, version in versions) or "Not recorded.")
    return "\n\n".join(sections) + "\n"


def front_matter(run: RunRecord, score: float, last: Line) -> dict[str, Any]:
    """Return the metadata of the Hub, with the last evaluation as the result."""
    task = "reinforcement-learning"
    spread = last.get("return_std")
    value = f"{score:.2f} +/- {spread:.2f}" if isinstance(spread, int | float) else f"{score:.2f}"
    result = {
        "task": {"type": task, "name": task},
        "dataset": {"name": run.env, "type": run.env},
        "metrics": [{"type": "mean_reward", "name": "mean_reward", "value": value, "verified": False}],
    }
    return {
        "library_name": "monotau",
        "pipeline_tag": task,
        "tags": [
            run.env,
            run.method,
            "deep-reinforcement-learning",
            "distributional-reinforcement-learning",
            "monotau",
        ],
        "model-index": [{"name": run.method, "results": [result]}],
    }


def evaluations(run: RunRecord, last: Line, best: Line) -> Iterator[str]:
    """Return the lines of the table of evaluations."""
    yield from ("| policy | steps | episodes | mean return | std | min | max |", "|---|---|---|---|---|---|---|")
    for name, line in (("last agent", last), ("best agent", best)):
        numbers = (line.get(f"return_{what}") for what in ("mean", "std", "min", "max"))
        shown = (format_number(number) if isinstance(number, int | float) else "-" for number in numbers)
        yield f"| {name} | {line['step']:,d} | {plain(line.get('episodes', '-'))} | {' | '.join(shown)} |"
    if (random := run.random_return()) is not None:
        yield f"| random actions | - | - | {format_number(random)} | - | - | - |"
    yield "\nThe best agent is chosen by these same episodes, so its return is biased upwards."


def settings(run: RunRecord) -> Iterator[str]:
    """Return the lines of the table of settings."""
    yield from ("| setting | value |", "|---|---|")
    for name, value in run.settings.items():
        yield f"| `{plain(name)}` | `{plain(json.dumps(value))}` |"


def plain(text: object) -> str:
    """Return text from a file so that Markdown cannot take it for more than text in a line of a table."""
    shown = "".join(letter if letter.isprintable() and letter not in "`|<>[]" else " " for letter in str(text))
    return " ".join(shown.split())[:200]
