"""The log of a run: metrics on disk, TensorBoard events, and the progress bar."""

import io
import json
import math

import pytest
from rich.console import Console

from monotau.errors import ConfigError
from monotau.runs.files import record_of
from monotau.runs.metrics import Log, read_lines
from monotau.runs.progress import FIELDS, Display
from tests.support.tensorboard import scalars


@pytest.fixture
def log(tmp_path):
    log = Log(tmp_path)
    yield log
    log.close()


def test_each_line_is_on_disk_as_soon_as_it_is_written(log, tmp_path):
    log.write("train", 10, {"loss": 0.5, "updates": 3, "note": "x", "bonus_mean": None})
    first = {"step": 10, "kind": "train", "loss": 0.5, "updates": 3, "note": "x", "bonus_mean": None}
    assert read_lines(tmp_path / "metrics.jsonl") == [first]
    log.write("eval", 20, {"return_mean": 1.0})
    assert (
        read_lines(tmp_path / "metrics.jsonl") == log.lines == [first, {"step": 20, "kind": "eval", "return_mean": 1.0}]
    )
    assert list(first)[:2] == list(json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0]))[:2]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_written_as_null(value, log, tmp_path):
    log.write("train", 1, {"loss": value, "q_mean": 2.0})
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1, "kind": "train", "loss": null, "q_mean": 2.0}\n'
    assert log.lines[0]["loss"] is None


def test_tensorboard_has_the_same_numbers_under_their_kind(log, tmp_path):
    log.write("train", 10, {"loss": 0.5, "updates": 3, "bonus_mean": None, "policy": "x", "q_mean": math.nan})
    log.write("train", 20, {"loss": 0.25})
    log.write("eval", 20, {"return_mean": -7.0})
    log.close()
    expected = {
        ("train/loss", 10): 0.5,
        ("train/updates", 10): 3,
        ("train/loss", 20): 0.25,
        ("eval/return_mean", 20): -7,
    }
    assert scalars(tmp_path) == expected


def test_a_log_without_a_directory_keeps_its_lines_in_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = Log()
    log.write("train", 1, {"loss": 1.0})
    log.close()
    assert log.lines == [{"step": 1, "kind": "train", "loss": 1.0}]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("value", "shown"), [(1e300, math.inf), (-1e300, -math.inf), (2**60, 2.0**60), (0, 0)])
def test_tensorboard_takes_numbers_of_any_size(value, shown, log, tmp_path):
    log.write("train", 2**40, {"loss": value})
    log.close()
    assert scalars(tmp_path) == {("train/loss", 2**40): shown}


def test_a_log_continues_from_its_record(tmp_path):
    log = Log(tmp_path)
    log.write("train", 1, {"loss": 0.5})
    records = log.sync()
    log.write("train", 2, {"loss": 0.25})
    log.close()
    again = Log(tmp_path, records)
    assert again.lines == [{"step": 1, "kind": "train", "loss": 0.5}]
    again.write("train", 3, {"loss": 0.125})
    again.close()
    assert read_lines(tmp_path / "metrics.jsonl") == again.lines
    assert scalars(tmp_path) == {("train/loss", 1): 0.5, ("train/loss", 3): 0.125}


@pytest.mark.parametrize("text", ['{"step": 1}\n', '{"kind": "eval"}\n', '{"step": -1, "kind": "eval"}\n'])
def test_a_log_does_not_continue_from_lines_without_step_or_kind(text, tmp_path):
    (tmp_path / "metrics.jsonl").write_text(text)
    with pytest.raises(ConfigError, match=r"metrics\.jsonl holds \{.*\}, which has no step or no kind"):
        Log(tmp_path, {"metrics.jsonl": record_of(tmp_path / "metrics.jsonl")})


def test_a_new_log_starts_empty(tmp_path):
    for step in (1, 2):
        log = Log(tmp_path)
        log.write("train", step, {})
        log.close()
    assert [line["step"] for line in read_lines(tmp_path / "metrics.jsonl")] == [2]


@pytest.mark.parametrize("torn", ["", "{", '{"step": 3, "ki', '{"step": 3, "loss": 0.', '{"step": 3, "kind": "train"'])
def test_a_last_line_torn_by_a_crash_is_left_out(torn, tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "kind": "train"}\n{"step": 2, "kind": "train"}\n' + torn)
    assert [line["step"] for line in read_lines(path)] == [1, 2]


def test_a_damaged_line_before_the_last_one_is_an_error(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(
        ConfigError, match=r"metrics\.jsonl, line 2 is not valid JSON; only the last line may be incomplete\.$"
    ):
        read_lines(path)


def test_metrics_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"^the metrics \S+metrics\.jsonl cannot be read: .*No such file"):
        read_lines(tmp_path / "metrics.jsonl")
    (tmp_path / "metrics.jsonl").write_bytes(b"\xff\n")
    with pytest.raises(ConfigError, match=r"^the metrics \S+metrics\.jsonl cannot be read: .*codec"):
        read_lines(tmp_path / "metrics.jsonl")


def shown(terminal, use):
    """Return what the display shows."""
    file = io.StringIO()
    display = Display(Console(file=file, force_terminal=terminal, width=150))
    use(display)
    return file.getvalue()


def train(display):
    with display.bar(total_steps=200, done_steps=50):
        display.advance(100, {"return": 12.345, "bonus": None, "loss": 0.5})
        display.say("step 100")
        display.advance(150, stage="evaluating")
    display.advance(200, {"return": 98765.0})


def test_a_terminal_shows_a_bar_with_the_newest_numbers():
    text = shown(True, train)
    assert all(name in text for name in FIELDS)
    assert all(part in text for part in ("75%", "12.3", "0.5", "evaluating", "step 100", "steps/s"))
    assert "98765" not in text.rpartition("75%")[2]


def test_without_a_terminal_only_lines_are_printed():
    assert shown(False, train) == "step 100\n"


def test_a_silent_display_prints_nothing(capsys):
    train(Display(None))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("line", ["[]", "null", "1", '"text"'])
def test_a_line_that_is_not_a_mapping_is_refused(line, tmp_path):
    (tmp_path / "metrics.jsonl").write_text(line + "\n")
    with pytest.raises(ConfigError, match=r"metrics\.jsonl, line 1 is .*, but must be a mapping of names to values"):
        read_lines(tmp_path / "metrics.jsonl")
