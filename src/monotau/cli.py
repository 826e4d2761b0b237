"""The command line: train, watch, video, suite, tune, evaluate, audit, export, scores, report, card and list.

Each command imports its module when it is called: torch and matplotlib take seconds to load, and `list` needs neither.
"""

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

from monotau.errors import ConfigError, Divergence, EnvironmentFault, StorageFault, unknown_name

if TYPE_CHECKING:
    from rich.console import Console

USAGE = """\
monotau: distributional reinforcement learning with quantile functions that cannot cross

  monotau train [PRESET] [--env ID] [--steps N] [--seed S] [--out DIR]   train an agent and plot its results
  monotau watch DIR... [--best] [--risk NAME]                            watch agents play and predict, in the browser
  monotau video DIR --out FILE.mp4|gif|webm [--episodes N]               the same as a film
  monotau suite NAME|FILE [--out DIR] [--jobs N] [--dry-run]             run a grid of methods, games and seeds
  monotau tune ENV [--trials N] [--steps N] [--jobs N] [--out DIR]       search for good settings with Optuna
  monotau evaluate DIR [--episodes N] [--risk NAME]                      evaluate a trained agent
  monotau audit DIR... [--states N] [--rollouts N] [--out DIR]           measure how true learned distributions are
  monotau export DIR [--out FILE] [--format onnx|torch] [--best]         write an agent as one graph
  monotau scores [RUNS...] [--constants {dqn_zoo,table1}]                Atari scores: published, and of your runs
  monotau report RUNS... --out DIR                                       write a page with curves and tables of runs
  monotau card DIR [--out FILE]                                          print a model card of a run
  monotau list {presets,envs,games,...}                                  list presets, environments, games and more

`monotau train` alone trains the paper's method on CartPole. Every command has --help.
"""


TABLES = ("presets", "profiles", "heads", "explorers", "torsos", "replays", "envs", "games", "suites")
"""The arguments of `monotau list`."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and report an error as one line on standard error.

    Exit codes: 1 environment fault, 2 invalid input, 3 divergence, 4 storage fault, 129, 130 and 143 signals.
    """
    from rich.console import Console

    from monotau.runs.process import Stopped

    words = list(sys.argv[1:] if arguments is None else arguments)
    here = os.getcwd()
    if arguments is None and not sys.flags.safe_path and not {"", here} & {*sys.path}:
        sys.path.insert(0, here)  # so that a module beside the user is found, as with python -m monotau
    commands = {"train": _train, "watch": _watch, "video": _video, "suite": _suite, "tune": _tune}
    commands |= {"evaluate": _evaluate, "audit": _audit, "export": _export, "scores": _scores, "report": _report}
    commands |= {"card": _card, "list": _list}
    console = Console()
    if not words or words[0] in ("-h", "--help"):
        console.print(USAGE, end="", markup=False, highlight=False, soft_wrap=True)
        return
    if words[0] == "--version":
        console.print(f"monotau {version('monotau')}", highlight=False)
        return
    try:
        if words[0] not in commands:
            raise unknown_name("the command", words[0], commands)
        commands[words[0]](words[1:], console)
    except ConfigError as error:
        _fail(str(error), 2)
    except EnvironmentFault as fault:
        _fail(str(fault), 1)
    except Divergence as divergence:
        _fail(str(divergence), 3)
    except StorageFault as fault:
        _fail(str(fault), 4)
    except Stopped as stop:
        raise SystemExit(stop.exit_code) from None
    except KeyboardInterrupt:
        _fail("interrupted", 130)


def _fail(message: str, code: int) -> None:
    from rich.console import Console
    from rich.markup import escape

    line = escape(" ".join(message.split()))
    Console(stderr=True).print(f"[bold red]error:[/] {line}", highlight=False, soft_wrap=True)
    raise SystemExit(code)


def _train(words: list[str], console: "Console") -> None:
    from monotau.runs.command import train

    train(words, console)


def _evaluate(words: list[str], console: "Console") -> None:
    from monotau.runs.command import evaluate

    evaluate(words, console)


def _audit(words: list[str], console: "Console") -> None:
    from monotau.audit.command import AuditCommand, audit
    from monotau.config.command_line import parse

    audit(parse(AuditCommand, words, "monotau audit"), console)


def _export(words: list[str], console: "Console") -> None:
    from monotau.runs.command import export

    export(words, console)


def _watch(words: list[str], console: "Console") -> None:
    from monotau.config.command_line import parse
    from monotau.watch.command import WatchCommand, watch

    watch(parse(WatchCommand, words, "monotau watch"), console)


def _video(words: list[str], console: "Console") -> None:
    from monotau.config.command_line import parse
    from monotau.watch.command import VideoCommand, video

    video(parse(VideoCommand, words, "monotau video"), console)


def _scores(words: list[str], console: "Console") -> None:
    from monotau.config.command_line import parse
    from monotau.results.command import ScoresCommand, show_scores

    show_scores(parse(ScoresCommand, words, "monotau scores"), console)


def _suite(words: list[str], console: "Console") -> None:
    from monotau.config.command_line import parse
    from monotau.suites.command import SuiteCommand, run_suite

    run_suite(parse(SuiteCommand, words, "monotau suite"), console)


def _tune(words: list[str], console: "Console") -> None:
    from monotau.config.command_line import parse
    from monotau.tuning.command import TuneCommand, tune

    tune(parse(TuneCommand, words, "monotau tune"), console)


def _report(words: list[str], console: "Console") -> None:
    from monotau.config.command_line import parse
    from monotau.report.command import ReportCommand, write_report

    write_report(parse(ReportCommand, words, "monotau report"), console)


def _card(words: list[str], console: "Console") -> None:
    from monotau.config.command_line import parse
    from monotau.report.card import CardCommand, write_card

    write_card(parse(CardCommand, words, "monotau card"), console)


def _list(words: list[str], console: "Console") -> None:
    """List what can be named on the command line."""
    from rich.markup import escape

    if words and words[0] in ("-h", "--help"):
        console.print(
            f"usage: monotau list {{{','.join(TABLES)}}} [--import MODULE]\n\n"
            "List what can be named on the command line. --import adds the parts in a module of your own.",
            soft_wrap=True,
        )
        return
    own: list[tuple[str, str]] = []
    if len(words) > 1 and words[1].startswith("--import"):
        from monotau.config.command_line import parse
        from monotau.config.imports import ListCommand, list_parts  # imports torch

        own = list_parts(parse(ListCommand, words, "monotau list"))
    elif len(words) != 1:
        raise ConfigError(f"monotau list takes one of: {', '.join(TABLES)}; given: {' '.join(words) or 'nothing'}.")
    rows = _rows_of(words[0]) + own
    width = max(len(name) for name, _ in rows)
    for name, about in rows:
        console.print(f"[bold]{name:{width}s}[/]  {escape(about)}", highlight=False, soft_wrap=True)


def _rows_of(table: str) -> list[tuple[str, str]]:
    """Return the names and descriptions in a table."""
    from monotau.config.listing import ABOUT

    if table in ABOUT:
        return [*ABOUT[table].items()]
    if table == "games":
        from monotau.envs.games import GAME_SETS

        return [(name, f"{about}: {', '.join(games)}") for name, (about, games) in GAME_SETS.items()]
    if table == "suites":
        from monotau.suites.listing import built_in

        return [*built_in().items()]
    if table == "envs":
        from monotau.envs.catalog import list_envs

        return list_envs()
    raise unknown_name("the table", table, TABLES)
