"""The progress display of a suite: a live table on a terminal, one line per change elsewhere."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import final

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import MofNCompleteColumn, Progress, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from monotau.results.read import count_warnings, read_progress, was_stopped
from monotau.suites.track import State, Track

REFRESH_SECONDS = 1.0
REFRESH_PAUSE = 10
"""The pause after a refresh is at least this many times as long as the refresh."""

COLOURS: Mapping[State, str] = {
    "finished": "green",
    "running": "cyan",
    "elsewhere": "yellow",
    "failed": "red",
    "waiting": "dim",
}

COLUMNS = {"state": 9, "step": 10, "of": 10, "return": 8, "ETA": 8, "try": 3}
"""Columns of the table and their widths."""
NARROW = ("state", "step", "return", "ETA")
WIDE = 90
"""Width in characters below which a terminal shows only the columns NARROW."""
NODE_WIDTH = 15
"""Width of the node column, which is shown if runs are on nodes and the terminal is wide enough."""

IDLE_SECONDS = 60.0
"""Time without a running process after which a message is printed."""

ORDER = ("running", "failed", "elsewhere", "finished", "waiting")
"""Order of the table by state; a terminal may be too short for all runs."""


def bar_of(console: Console) -> Progress:
    """Return a progress bar for the work before runs start; it is shown on a terminal only."""
    columns = (TextColumn("{task.description}"), MofNCompleteColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def line_printer(console: Console) -> Callable[[str], None]:
    """Return a function that prints a line without wrapping it."""
    return partial(console.print, highlight=False, soft_wrap=True)


def clock(seconds: float | int | None) -> str:
    """Format a duration; an unknown one gives an empty string."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days:,d} d {hours:02d} h"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _cells(track: Track, now: float) -> dict[str, Text | str]:
    progress = track.progress
    return {
        "state": Text(track.state, style=COLOURS[track.state]),
        "step": f"{progress.step:,d}" if progress.step else "",
        "of": f"{progress.total:,d}" if progress.total else "",
        "return": "" if progress.last_return is None else f"{progress.last_return:.4g}",
        "ETA": clock(track.eta_seconds(now)),
        "try": str(track.tries or ""),
        "node": track.node,
    }


def _cut(name: str, width: int) -> str:
    """Shorten a name in its middle, because it starts with the method and ends with the seed."""
    return name if len(name) <= width else f"{name[: width - 8]}…{name[-7:]}"


def _interest(track: Track) -> tuple[int, float]:
    """Return the sort key: by state, then finished runs newest first and others in the order of the grid."""
    return ORDER.index(track.state), -track.started if track.state == "finished" else float(track.index)


@final
class Board:
    """Shows the state of all cells of a suite."""

    def __init__(self, title: str, tracks: Sequence[Track], console: Console, jobs: int | None) -> None:
        """`jobs` is the number of runs at once, or None if the cluster decides."""
        self._title, self._tracks, self._console, self._jobs = title, tracks, console, jobs
        self._live: Live | None = None
        self._refreshed, self._pause = 0.0, REFRESH_SECONDS
        self._active = time.monotonic()
        """Last time at which a run was active."""
        self._idle = False

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the table while the block runs, on a terminal only."""
        if not self._console.is_terminal:
            yield
            return
        with Live(self.table(), console=self._console, auto_refresh=False, transient=True) as self._live:
            yield

    def show(self, track: Track | None) -> None:
        """Print a cell whose state has changed, and refresh the table from time to time."""
        if track:
            self._say(track)
        now = time.monotonic()
        self._warn_if_idle(now)
        if self._live and now - self._refreshed > self._pause:
            self._refreshed = now
            for each in self._tracks:
                if each.state in ("running", "elsewhere"):
                    each.progress = read_progress(each.directory)
            self._live.update(self.table(), refresh=True)
            # Reading a thousand runs from slow storage must not block the driver.
            self._pause = max(REFRESH_SECONDS, REFRESH_PAUSE * (time.monotonic() - now))

    def _warn_if_idle(self, now: float) -> None:
        """Print one message whenever runs are waiting and none has been running for IDLE_SECONDS."""
        waiting = sum(track.state == "waiting" for track in self._tracks)
        if not waiting or any(track.state == "running" for track in self._tracks):
            self._active, self._idle = now, False
        elif not self._idle and now - self._active > IDLE_SECONDS:
            self._idle = True
            line_printer(self._console)(
                f"no run is active: {waiting} runs are waiting for a node with enough resources"
            )

    def _say(self, track: Track) -> None:
        node = f" on {track.node}" if track.node else ""
        about = {
            "running": f"started{node}" if track.tries == 1 else f"started{node}, try {track.tries}",
            "finished": "finished" + (f" in {clock(track.seconds)}" if track.seconds else " by another process"),
            "failed": f"failed: {track.reason}",
            "elsewhere": "is running in another process",
            "waiting": f"will be retried: {track.reason}",
        }[track.state]
        if track.state == "finished" and track.progress.last_return is not None:
            about += f", return {track.progress.last_return:.4g}"
        if track.state == "finished" and was_stopped(track.directory):
            about += ", stopped early"
        if track.state == "finished" and (count := count_warnings(track.directory)):
            about += f", with {count} warning{'s' if count > 1 else ''}: see result.json in its directory"
        line_printer(self._console)(f"[{COLOURS[track.state]}]{escape(track.name)}[/] {escape(about)}")

    def table(self) -> Group:
        """Return the table, with as many cells as fit on the terminal."""
        counts = Counter(track.state for track in self._tracks)
        head = ", ".join(f"{counts[state]} {state}" for state in COLOURS if counts[state])
        title = Table.grid(padding=(0, 2))
        title.add_row(
            ProgressBar(total=len(self._tracks), completed=counts["finished"] + counts["failed"], width=20),
            Text(f"{self._title}: {head}; ETA {clock(self.eta_seconds()) or 'not known yet'}", style="bold"),
        )
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        columns = COLUMNS if self._console.width >= WIDE else {name: COLUMNS[name] for name in NARROW}
        if self._console.width >= WIDE + NODE_WIDTH and any(track.node for track in self._tracks):
            columns = {**columns, "node": NODE_WIDTH}
        table.add_column("run", no_wrap=True)
        for name in columns:
            table.add_column(name, justify="left" if name in ("state", "node") else "right", no_wrap=True)
        widest = max(12, self._console.width - sum(width + 2 for width in columns.values()) - 2)
        ranked = sorted(self._tracks, key=_interest)
        room = max(self._jobs or 1, self._console.height - 5)
        now = time.monotonic()
        for track in ranked[:room]:
            cells = _cells(track, now)
            table.add_row(_cut(track.name, widest), *(cells[name] for name in columns))
        more = [Text(f"... and {len(ranked) - room} more", style="dim")] if len(ranked) > room else []
        return Group(title, table, *more)

    def eta_seconds(self) -> float | None:
        """Estimate the remaining time, from the rates of running cells and the durations of earlier ones."""
        now = time.monotonic()
        running = [(track, track.eta_seconds(now)) for track in self._tracks if track.state == "running"]
        known = [(now - track.started, seconds) for track, seconds in running if seconds is not None]
        left = [seconds for _, seconds in known]
        whole = [track.seconds for track in self._tracks if track.state == "finished" and track.seconds]
        whole += [spent + seconds for spent, seconds in known]
        waiting = sum(track.state == "waiting" for track in self._tracks)
        if not whole or (running and not known):
            return None
        if not waiting:
            return max(left, default=0.0)
        return (sum(left) + waiting * sum(whole) / len(whole)) / (self._jobs or max(1, len(running)))
