"""The progress display of a run: a live bar in terminals and notebooks, plain lines elsewhere."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

FIELDS = ("return", "bonus", "loss")


def console_for(verbose: bool | None) -> Console | None:
    """Return standard error if progress is shown there: if asked for, or by default in terminals and notebooks."""
    console = Console(stderr=True)
    shown = console.is_terminal or console.is_jupyter if verbose is None else verbose
    return console if shown else None


def is_live(console: Console | None) -> bool:
    """Whether bars can be drawn: in a terminal, or in a notebook with ipywidgets, without which rich only warns."""
    if console is None:
        return False
    return console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)


class _Rate(ProgressColumn):
    """Steps per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f} steps/s" if task.speed else "-- steps/s", style="cyan")


class Display:
    """The progress bar of one run; without a console it prints nothing."""

    def __init__(self, console: Console | None) -> None:
        self.console = console
        self._progress: Progress | None = None
        self._task: Any = None

    @contextmanager
    def bar(self, total_steps: int, done_steps: int) -> Iterator[None]:
        """Show a bar while the block runs, where that is possible."""
        if not is_live(self.console):
            yield
            return
        shown = [TextColumn(f"{name} [bold]{{task.fields[{name}]}}") for name in FIELDS]
        columns = (TextColumn("{task.fields[stage]:>15s}"), BarColumn(), TextColumn("{task.percentage:3.0f}%"))
        with Progress(
            *columns, _Rate(), TextColumn("ETA"), TimeRemainingColumn(), *shown, console=self.console
        ) as progress:
            self._progress = progress
            fields: dict[str, Any] = dict.fromkeys(FIELDS, "--") | {"stage": "training"}
            self._task = progress.add_task("", total=total_steps, completed=done_steps, **fields)
            try:
                yield
            finally:
                self._progress = None

    def advance(self, step: int, numbers: Mapping[str, float | None] = {}, stage: str = "training") -> None:
        """Move the bar to a step and show new numbers."""
        if self._progress is not None:
            shown: dict[str, Any] = {name: f"{value:.3g}" for name, value in numbers.items() if value is not None}
            self._progress.update(self._task, completed=step, stage=stage, **shown)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if self.console is not None:
            self.console.print(text, highlight=False, soft_wrap=True)
