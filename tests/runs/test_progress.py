"""The progress display: shown by default in terminals and notebooks, and never with warnings."""

import io

import pytest
from rich.console import Console

from monotau.runs import progress
from monotau.runs.progress import Display, console_for, is_live


@pytest.mark.parametrize(
    ("terminal", "jupyter", "verbose", "shown"),
    [
        (True, False, None, True),
        (False, True, None, True),
        (False, False, None, False),
        (True, False, False, False),
        (False, False, True, True),
    ],
)
def test_progress_is_shown_in_terminals_and_notebooks_unless_told_otherwise(
    terminal, jupyter, verbose, shown, monkeypatch
):
    console = Console(file=io.StringIO(), force_terminal=terminal, force_jupyter=jupyter)
    monkeypatch.setattr(progress, "Console", lambda stderr: console)
    assert console_for(verbose) is (console if shown else None)


@pytest.mark.parametrize(("widgets", "live"), [(None, False), (object(), True)])
def test_a_notebook_without_widgets_gets_lines_instead_of_a_bar(widgets, live, monkeypatch):
    monkeypatch.setattr(progress, "find_spec", lambda name: widgets if name == "ipywidgets" else None)
    assert is_live(Console(file=io.StringIO(), force_jupyter=True)) is live


def test_a_notebook_without_widgets_is_not_warned(monkeypatch):
    """rich would warn here, and warnings are errors."""
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    with Display(Console(file=io.StringIO(), force_jupyter=True)).bar(100, 0):
        pass


def test_a_terminal_gets_a_bar():
    file = io.StringIO()
    display = Display(Console(file=file, force_terminal=True, width=120))
    with display.bar(100, 0):
        display.advance(50, {"return": 3.25})
    assert "50%" in file.getvalue()
    assert "3.25" in file.getvalue()
    assert not is_live(None)
    assert not is_live(Console(file=io.StringIO()))
