"""Runs the command line in this process."""

from collections.abc import Callable

import pytest

from monotau.cli import main


def command_caller(capsys: pytest.CaptureFixture[str], *first: str) -> Callable[..., tuple[object, str, str]]:
    """Return a function that runs a command with further words, and returns its exit code and what it printed."""

    def call(*words: object) -> tuple[object, str, str]:
        code: object = 0
        try:
            main([*first, *map(str, words)])
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return call
