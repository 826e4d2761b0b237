"""docs/scores.md is true: its code runs, its commands work, its table comes out."""

import re
import shlex
from pathlib import Path

import monotau
from monotau.cli import main
from monotau.results import published, published_row
from tests.support.runs import write_atari_run as write_run

TEXT = (Path(monotau.__file__).parents[2] / "docs" / "scores.md").read_text()


def test_the_code_of_the_page_runs():
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    names = {"__name__": "example"}
    exec(example, names)  # noqa: S102
    assert names["low"] < names["value"] < names["high"]
    assert names["shares"].shape == (41,)
    assert names["ends"].shape == (2, 41)


def test_the_commands_of_the_page_work(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_run(Path("runs") / "a", [1.0])
    commands = re.findall(r"^monotau (scores.*)$", TEXT, flags=re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        main(shlex.split(command, comments=True))
        assert "IQN" in capsys.readouterr().out


def test_the_table_of_the_page_comes_out():
    iqn = next(source for source in published() if (source.algorithm, source.protocol) == ("IQN", "noop"))
    pattern = r"\| `(\w+)`, (\d+) games \| (\d+) % \| (\d+) % \| (\d+) % \| (\d+) \|"
    lines = re.findall(pattern, TEXT)
    assert len(lines) == 3
    for constants, games, *numbers in lines:
        found = published_row(iqn, constants, f"atari{games}").aggregates
        percents = [f"{100 * found[key].value:.0f}" for key in ("mean", "median", "iqm")]
        assert [*percents, f"{found['above_human'].value:.0f}"] == numbers
