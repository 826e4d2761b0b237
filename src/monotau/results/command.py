"""The command `monotau scores`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.markup import escape

from monotau.envs.games import GAME_SETS
from monotau.errors import ConfigError
from monotau.results.published import Constants, games_of, published
from monotau.results.runs import Run, find_runs, read_run
from monotau.results.summary import published_row, run_rows
from monotau.results.tables import Selection, to_csv, to_json, to_table

FORMATS: Mapping[str, Callable[[Selection], str]] = {"table": to_table, "csv": to_csv, "json": to_json}


@dataclass(frozen=True, kw_only=True)
class ScoresCommand:
    """Show human-normalised Atari scores as published, and those of runs beside them.

    Runs are put together by preset and protocol, over games and seeds; protocols are never mixed.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS")] = ()
    """Run directories, or directories that hold some."""
    constants: Constants = "dqn_zoo"
    """Random and human scores to normalise by; table1 is what the papers in the NDQFN paper's Table 1 used."""
    games: Annotated[str, tyro.conf.arg(metavar=f"{{{','.join(GAME_SETS)}}}")] = "atari57"
    """Games to aggregate over; `monotau list games` shows the sets."""
    format: Literal["table", "csv", "json"] = "table"
    """A table to read, or the same for programs; only JSON has performance profiles."""
    per_game: bool = False
    """Show every game's raw and normalised scores too; in CSV, instead."""


def show_scores(given: ScoresCommand, console: Console) -> None:
    """Print what is asked for; runs that have no score to be compared are named on standard error."""
    games_of(given.games)  # refuses what is no set
    runs = _read(given.runs, given.games)
    sources = (published_row(source, given.constants, given.games) for source in published())
    rows = [row for row in sources if row] + run_rows(runs, given.constants, given.games)
    selection = Selection(rows=rows, constants=given.constants, games=given.games, per_game=given.per_game)
    text = FORMATS[given.format](selection)
    console.print(text, end="", markup=False, highlight=False, soft_wrap=True)


def _read(paths: Sequence[Path], games: str) -> list[Run]:
    runs, skipped = [], []
    for directory in find_runs(paths):
        try:
            run = read_run(directory)
        except ConfigError as damage:
            run = str(damage).rstrip(".")
        if isinstance(run, Run) and run.game not in games_of(games):
            run = f"{run.game} is not in {games}"
        if isinstance(run, Run):
            runs.append(run)
        else:
            skipped.append(f"{directory} is left out: {run}.")
    if skipped and not runs:
        more = f" Others left out: {len(skipped) - 1}." if skipped[1:] else ""
        raise ConfigError(f"no run has a score to show. {skipped[0]}{more}")
    for line in skipped:
        Console(stderr=True).print(escape(line), highlight=False, soft_wrap=True)
    return runs
