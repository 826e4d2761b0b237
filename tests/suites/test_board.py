"""The progress display of a suite, on a terminal and without one."""

import io
import json

import pytest
from rich.console import Console

from monotau.results.read import Progress, read_progress
from monotau.suites import board as boards
from monotau.suites.board import Board, clock
from monotau.suites.track import Track


def screen(*, terminal: bool, height: int = 30) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=120, height=height, color_system=None)


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def track(tmp_path, index, **known) -> Track:
    return Track(index=index, name=f"run{index}", directory=tmp_path / f"run{index}", **known)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, ""), (0, "0:00"), (61.6, "1:02"), (3_599.7, "1:00:00"), (90_061, "1 d 01 h"), (1e8, "1,157 d 09 h")],
)
def test_durations_are_formatted_for_people(seconds, shown):
    assert clock(seconds) == shown


def test_the_table_lists_running_cells_first_and_counts_those_that_do_not_fit(tmp_path):
    tracks = [track(tmp_path, i) for i in range(40)]
    tracks[20].state, tracks[20].started_step, tracks[20].progress = "running", 1_500, Progress(1_500, 6_000, 12.345)
    tracks[30].state, tracks[30].reason = "failed", "broken"
    tracks[5].state, tracks[5].tries = "finished", 2
    console = screen(terminal=True, height=16)
    console.print(Board("mine", tracks, console, jobs=2).table())
    lines = text(console).splitlines()
    assert "mine: 1 finished, 1 running, 1 failed, 37 waiting; ETA not known yet" in lines[0]
    first = next(number for number, line in enumerate(lines) if "state" in line.split()) + 1
    assert [line.split()[0] for line in lines[first : first + 3]] == ["run20", "run30", "run5"]
    assert lines[first].split()[1:] == ["running", "1,500", "6,000", "12.35"]
    assert "... and 29 more" in lines[-1]


def test_the_time_left_assumes_that_waiting_runs_take_as_long_as_finished_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(boards.time, "monotonic", lambda: 1_000.0)
    tracks = [track(tmp_path, i) for i in range(6)]
    board = Board("mine", tracks, screen(terminal=True), jobs=2)
    assert board.eta_seconds() is None
    tracks[0].state, tracks[0].seconds = "finished", 100.0
    tracks[1].state, tracks[1].started, tracks[1].progress = "running", 900.0, Progress(500, 1_000)
    # The running cell needs 100 s more; four waiting cells take (100 + 200) / 2 each, two at a time.
    assert board.eta_seconds() == (100 + 4 * 150) / 2
    for each in tracks[2:]:
        each.state = "finished"
    assert board.eta_seconds() == 100.0
    tracks[1].started_step = 500  # its speed is still unknown
    assert board.eta_seconds() is None


def test_a_narrow_terminal_shortens_names_before_numbers(tmp_path):
    console = Console(file=io.StringIO(), force_terminal=True, width=60, height=20, color_system=None)
    one = track(tmp_path, 1, state="running", started_step=1, progress=Progress(123_456, 500_000, 1.25))
    one.name = "a-very-long-name-of-a-method_MinAtar-SpaceInvaders-v1_seed12"
    console.print(Board("mine", [one], console, jobs=1).table())
    row = text(console).splitlines()[-1]
    assert "…_seed12 " in row
    assert "running" in row
    assert "123,456" in row
    assert "1.25" in row


def test_without_a_terminal_each_change_is_a_line(tmp_path):
    console = screen(terminal=False)
    one = track(tmp_path, 1)
    board = Board("mine", [one], console, jobs=1)
    with board.shown():
        for state, known in (
            ("running", {"tries": 1}),
            ("waiting", {"reason": "ended by SIGKILL"}),
            ("running", {"tries": 2}),
            ("elsewhere", {}),
            ("failed", {"reason": "no [luck]"}),
            ("finished", {"progress": Progress(10, 10, 3.5)}),
            ("finished", {"seconds": 75.0}),
        ):
            one.state = state  # type: ignore[assignment]
            for name, value in known.items():
                setattr(one, name, value)
            board.show(one)
            board.show(None)
    assert text(console).splitlines() == [
        "run1 started",
        "run1 will be retried: ended by SIGKILL",
        "run1 started, try 2",
        "run1 is running in another process",
        "run1 failed: no [luck]",
        "run1 finished by another process, return 3.5",
        "run1 finished in 1:15, return 3.5",
    ]


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        ('{"warnings": ["dead"]}', ", with 1 warning: see result.json in its directory"),
        ('{"warnings": ["dead", "far"]}', ", with 2 warnings: see result.json in its directory"),
        ('{"warnings": [], "stopped": null}', ""),
        ('{"stopped": "on_evaluation"}', ", stopped early"),
        ('{"warnings": 3}', ""),
        ("{}", ""),
        ("{", ""),
    ],
)
def test_a_run_that_finished_with_warnings_is_reported_as_such(outcome, told, tmp_path):
    console, one = screen(terminal=False), track(tmp_path, 1, state="finished")
    one.directory.mkdir(parents=True, exist_ok=True)
    (one.directory / "result.json").write_text(outcome)
    Board("mine", [one], console, jobs=1).show(one)
    assert text(console) == f"run1 finished by another process{told}\n"


def test_on_a_terminal_progress_is_read_while_runs_write_it(tmp_path, monkeypatch):
    console, one = screen(terminal=True), track(tmp_path, 1, state="running")
    board = Board("mine", [one], console, jobs=1)
    monkeypatch.setattr(boards, "REFRESH_SECONDS", -1.0)
    with board.shown():
        one.directory.mkdir()
        (one.directory / "config.json").write_text(json.dumps({"steps": 7_000}))
        (one.directory / "metrics.jsonl").write_text('{"step": 4321, "kind": "train"}\n')
        board.show(None)
    assert one.progress == Progress(4_321, 7_000, None)
    assert "4,321" in text(console)


def test_progress_is_read_from_the_end_of_the_log_without_partial_lines(tmp_path):
    assert read_progress(tmp_path) == Progress()
    (tmp_path / "config.json").write_text(json.dumps({"steps": 900_000}))
    lines = [json.dumps({"step": i, "kind": "train", "more": "x" * 50}) for i in range(500)]
    lines.insert(480, json.dumps({"step": 479, "kind": "eval", "policy": "greedy", "return_mean": 2.5}))
    lines.insert(481, json.dumps({"step": 0, "kind": "eval", "policy": "random", "return_mean": -9.0}))
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 99')
    assert read_progress(tmp_path) == Progress(499, 900_000, 2.5)
    (tmp_path / "config.json").write_text("[]")
    assert read_progress(tmp_path) == Progress()


def test_the_node_of_each_run_is_shown_if_there_are_several_and_the_terminal_is_wide(tmp_path):
    one = track(tmp_path, 1, state="running", tries=1, node="10.0.0.17")
    for width, shown in ((boards.WIDE + boards.NODE_WIDTH, True), (boards.WIDE + boards.NODE_WIDTH - 1, False)):
        console = Console(file=io.StringIO(), force_terminal=True, width=width, height=20, color_system=None)
        console.print(Board("mine", [one], console, jobs=None).table())
        assert ("10.0.0.17" in text(console)) == shown
    console = screen(terminal=False)
    board = Board("mine", [one], console, jobs=None)
    board.show(one)
    one.tries = 3
    board.show(one)
    assert text(console).splitlines() == ["run1 started on 10.0.0.17", "run1 started on 10.0.0.17, try 3"]


def test_without_a_job_limit_the_time_left_follows_the_number_of_running_cells(tmp_path, monkeypatch):
    monkeypatch.setattr(boards.time, "monotonic", lambda: 1_000.0)
    tracks = [track(tmp_path, i) for i in range(8)]
    for each in tracks[:3]:
        each.state, each.started, each.progress = "running", 900.0, Progress(500, 1_000)
    board = Board("mine", tracks, screen(terminal=True), jobs=None)
    # Three running cells need 100 s more each; five waiting cells take 200 s each, three at a time.
    assert board.eta_seconds() == (300 + 5 * 200) / 3
    tracks[0].seconds = 200.0
    for each in tracks[:3]:
        each.state = "finished"
    assert board.eta_seconds() == 5 * 200


def test_a_long_wait_without_running_cells_is_reported_once(tmp_path, monkeypatch):
    clocks = iter((1_000.0, 1_001.0, 1_059.0, 1_061.0, 1_200.0, 1_200.0, 1_259.0, 1_261.0))
    monkeypatch.setattr(boards.time, "monotonic", lambda: next(clocks))
    console, tracks = screen(terminal=False), [track(tmp_path, i) for i in range(3)]
    board = Board("mine", tracks, console, jobs=None)
    board.show(None)
    board.show(None)
    assert text(console) == ""
    board.show(None)
    board.show(None)
    assert text(console).splitlines() == ["no run is active: 3 runs are waiting for a node with enough resources"]
    tracks[0].state = "running"
    board.show(None)
    tracks[0].state = "finished"
    board.show(None)
    board.show(None)
    assert text(console).splitlines()[1:] == ["no run is active: 2 runs are waiting for a node with enough resources"]
