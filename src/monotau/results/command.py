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
from monotau.results.read import find_runs, read_run
from monotau.results.summary import AtariRun, atari_run, published_row, run_rows
from monotau.results.tables import Selection, to_csv, to_json, to_table

FORMATS: Mapping[str, Callable[[Selection], str]] = {"table": to_table, "csv": to_csv, "json": to_json}


@dataclass(frozen=True, kw_only=True)
class ScoresCommand:
    """Show published human-normalised Atari scores next to those of your runs.

    Runs are grouped by preset and protocol over games and seeds; protocols are never mixed.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS")] = ()
    """Run directories, or directories that contain some."""
    constants: Constants = "dqn_zoo"
    """Random and human scores for normalisation; table1: those of the papers in Table 1 of the NDQFN paper."""
    games: Annotated[str, tyro.conf.arg(metavar=f"{{{','.join(GAME_SETS)}}}")] = "atari57"
    """Games to aggregate over; `monotau list games` shows the sets."""
    format: Literal["table", "csv", "json"] = "table"
    """Output format; only JSON includes performance profiles."""
    per_game: bool = False
    """Also show raw and normalised scores of every game; CSV then has them instead of the aggregates."""


def show_scores(given: ScoresCommand, console: Console) -> None:
    """Print the scores; runs that cannot be compared are named on standard error."""
    games_of(given.games)  # rejects an unknown set
    runs = _read(given.runs, given.games)
    sources = (published_row(source, given.constants, given.games) for source in published())
    rows = [row for row in sources if row] + run_rows(runs, given.constants, given.games)
    selection = Selection(rows=rows, constants=given.constants, games=given.games, per_game=given.per_game)
    text = FORMATS[given.format](selection)
    console.print(text, end="", markup=False, highlight=False, soft_wrap=True)


def _read(paths: Sequence[Path], games: str) -> list[AtariRun]:
    runs, skipped = [], []
    for directory in find_runs(paths):
        try:
            run = atari_run(read_run(directory))
            if run.game not in games_of(games):
                raise ConfigError(f"{run.game} is not in {games}")
            runs.append(run)
        except ConfigError as reason:
            skipped.append(f"{directory} is left out: {str(reason).rstrip('.')}.")
    if skipped and not runs:
        more = f" Other runs left out: {len(skipped) - 1}." if skipped[1:] else ""
        raise ConfigError(f"no run has a score to show. {skipped[0]}{more}")
    for line in skipped:
        Console(stderr=True).print(escape(line), highlight=False, soft_wrap=True)
    return runs
