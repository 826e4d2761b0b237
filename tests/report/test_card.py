"""Model cards: the front matter of the Hub, evaluations, settings, and the learning curve if there is one."""

import re

import pytest
import yaml
from rich.console import Console

from monotau.config.command_line import parse
from monotau.errors import ConfigError, StorageFault
from monotau.report.card import CardCommand, card, plain, write_card
from monotau.results.read import read_run
from tests.support.runs import plain_settings, write_run


def parts(text):
    """Return the front matter and the body of a card."""
    empty, front, body = text.split("---\n", 2)
    assert empty == ""
    return yaml.safe_load(front), body


def test_the_front_matter_has_the_last_evaluation_as_the_result(tmp_path):
    run = write_run(tmp_path / "run", [100.0, 300.0, 250.0, 200.25], config=plain_settings("iqn"))
    front, _ = parts(card(read_run(run), run))
    assert (front["library_name"], front["pipeline_tag"]) == ("monotau", "reinforcement-learning")
    assert front["tags"][:2] == ["CartPole-v1", "iqn"]
    (model,) = front["model-index"]
    (result,) = model["results"]
    assert (model["name"], result["dataset"]["type"]) == ("iqn", "CartPole-v1")
    assert result["task"]["type"] == "reinforcement-learning"
    (metric,) = result["metrics"]
    assert (metric["type"], metric["value"]) == ("mean_reward", "200.25 +/- 1.50")


def test_the_body_shows_evaluations_settings_and_versions(tmp_path):
    run = write_run(tmp_path / "run", [100.0, 300.0], config=plain_settings("iqn", seed=4))
    _, body = parts(card(read_run(run), run))
    assert "# iqn on CartPole-v1" in body
    assert "It was trained for 20,000 steps with seed 4 in 60 min." in body
    assert "| last agent | 20,000 | 10 | 300 | 1.5 | 298 | 302 |" in body
    assert "| random actions | - | - | 20 |" in body
    assert '| `head.kind` | `"iqn"` |' in body
    assert 'Agent.load("path/to/this/directory")' in body
    assert "monotau 0.2.0, torch 2.13.0" in body
    assert "![" not in body


def test_an_unfinished_run_says_so_and_its_curve_is_linked(tmp_path):
    run = write_run(tmp_path / "run", [100.0], finished=False, every=5_000)
    (run / "learning_curve.png").write_bytes(b"image")
    assert "5,000 of 20,000 steps (unfinished)" in card(read_run(run), run)
    assert "![Returns over training](<learning_curve.png>)" in card(read_run(run), run)
    assert "![Returns over training](<run/learning_curve.png>)" in card(read_run(run), tmp_path)


def test_a_card_is_printed_or_written(tmp_path, capsys):
    run = write_run(tmp_path / "run", [100.0])
    write_card(parse(CardCommand, [str(run)], "monotau card"), Console())
    printed = capsys.readouterr().out
    assert printed.startswith("---\nlibrary_name: monotau\n")
    write_card(parse(CardCommand, [str(run), "--out", str(run / "README.md")], "monotau card"), Console())
    assert (run / "README.md").read_text() == printed


@pytest.mark.parametrize(
    ("place", "error", "reason"),
    [
        ("nowhere/README.md", ConfigError, "the directory does not exist"),
        (".", ConfigError, "it is a directory"),
        ("README.md", StorageFault, "Is a directory"),
    ],
)
def test_a_card_that_cannot_be_written_names_the_path_that_was_given(place, error, reason, tmp_path):
    run = write_run(tmp_path / "run", [100.0])
    (tmp_path / ".README.md.tmp").mkdir()  # in place of the temporary file
    path = tmp_path / place
    with pytest.raises(error, match=rf"^the card cannot be written to {re.escape(str(path))}: {reason}\.$"):
        write_card(CardCommand(directory=run, out=path), Console(quiet=True))


def test_a_run_without_an_evaluation_or_with_damaged_files_has_no_card(tmp_path):
    empty = write_run(tmp_path / "empty", [], finished=False)
    with pytest.raises(ConfigError, match=r"empty has no evaluation yet, so it has no score\.$"):
        write_card(CardCommand(directory=empty), Console(quiet=True))
    (empty / "config.json").write_text("{}")
    with pytest.raises(
        ConfigError, match=r"empty is not a run that can be described: .*not the configuration of a run"
    ):
        write_card(CardCommand(directory=empty), Console(quiet=True))


@pytest.mark.parametrize("text", ["a|b", "`x`\n# heading", "<script>", "![x](y)", "\x1b[31m"])
def test_text_of_a_file_cannot_add_markdown(text):
    assert not {*plain(text)} & {*"`|<>[]\n\x1b"}
