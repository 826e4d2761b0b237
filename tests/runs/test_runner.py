"""Run directories: complete, idempotent, and reproducible from the seed."""

import io
import json
import struct
import subprocess
import sys

import numpy as np
import pytest
import torch
from benchmarks.endings import contents
from rich.console import Console

from monotau.agent import Agent
from monotau.config.resolve import resolve
from monotau.errors import ConfigError
from monotau.learning.evaluate import Evaluation
from monotau.report.run_figures import widest_state
from monotau.runs import runner
from monotau.runs.files import read_json, temporary_path, write_json
from monotau.runs.layout import CONTENTS, state_of
from monotau.runs.metrics import TIMING, read_lines
from monotau.runs.runner import default_directory, train_into
from tests.support.small_runs import SMALL, silent, skip_figures, small_run
from tests.support.tensorboard import scalars

EVAL = {"return_mean", "return_std", "episodes", "policy", "crossing", "seconds"}
TRAIN = {"loss", "bonus_mean", "crossing", "dead_increments", "updates_per_second", "updates", "epsilon", "return_mean"}
TRAIN |= {"learning_rate"}


def told(directory, resolved):
    """Train, and return the printed text."""
    file = io.StringIO()
    train_into(directory, resolved, Console(file=file, width=500))
    return file.getvalue()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The directory of a finished run of the program, and the printed text."""
    home = tmp_path_factory.mktemp("runs")
    directory, settings = home / "deep" / "run", home / "settings.json"
    settings.write_text(json.dumps(SMALL))
    words = [sys.executable, "-m", "monotau", "train", "--config", str(settings), "--out", str(directory)]
    done = subprocess.run(words, capture_output=True, text=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return directory, done.stdout


@pytest.fixture
def undrawn(monkeypatch):
    """Skip figures, which take longer than these runs."""
    skip_figures(monkeypatch)


def test_a_run_leaves_every_file_it_names_and_no_other(finished):
    directory, text = finished
    for pattern, about in CONTENTS.items():
        assert len(list(directory.glob(pattern))) == 1, pattern
        assert f"{pattern:{max(map(len, CONTENTS))}s}  {about}" in text
    assert {path.name for path in directory.iterdir() if path.name.startswith(".")} == {".lock"}
    assert len(list(directory.iterdir())) == len(CONTENTS) + 1
    assert {path.name for path in (directory / "agent").iterdir()} == {"agent.json", "weights.safetensors"}


@pytest.mark.parametrize("name", [name for name in CONTENTS if name.endswith(".png")])
def test_figures_are_valid_images(name, finished):
    data = (finished[0] / name).read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert data[12:16] == b"IHDR"
    assert struct.unpack(">II", data[16:24]) == (1050, 630)
    assert data[-8:-4] == b"IEND"
    assert len(data) > 10_000


def test_the_settings_written_are_those_of_the_run(finished):
    directory, text = finished
    assert read_json(directory / "config.json") == small_run().config.to_plain()
    assert f"ndqfn-dpe on CartPole-v1 for 200 steps, seed 0 (profile classic, cpu) into {directory}" in text


def test_metrics_have_a_line_for_each_measurement(finished):
    lines = read_lines(finished[0] / "metrics.jsonl")
    kinds = [(line["kind"], line["step"]) for line in lines]
    expected = [
        ("eval", 0),
        ("train", 50),
        ("train", 100),
        ("eval", 100),
        ("train", 150),
        ("train", 200),
        ("eval", 200),
    ]
    assert kinds == expected
    evals = [line for line in lines if line["kind"] == "eval"]
    assert [line["policy"] for line in evals] == ["random", "greedy", "greedy"]
    assert all(line.keys() >= EVAL and line["episodes"] == 2 for line in evals)
    trains = [line for line in lines if line["kind"] == "train"]
    assert all(line.keys() >= TRAIN for line in trains)
    assert trains[-1]["updates"] == 76  # every second step from the 50th on
    last = trains[-1]
    assert last["loss"] > 0
    assert last["bonus_mean"] > 0
    assert last["crossing"] == 0
    assert 0 <= last["dead_increments"] <= 1
    assert last["epsilon"] == 0.01
    # It falls in a straight line over the run's 200 steps.
    optimiser = small_run().config.optimiser
    assert optimiser.anneal < 1
    expected_rates = [optimiser.learning_rate * (1 - (1 - optimiser.anneal) * line["step"] / 200) for line in trains]
    assert [line["learning_rate"] for line in trains] == pytest.approx(expected_rates)
    assert all(line[name] > 0 for line in trains for name in ("updates_per_second", "steps_per_second"))


def test_tensorboard_has_the_numbers_of_the_metrics(finished):
    directory, _ = finished
    found = scalars(directory)
    for line in read_lines(directory / "metrics.jsonl"):
        for name, value in line.items():
            if isinstance(value, int | float) and name != "step":
                assert found.pop((f"{line['kind']}/{name}", line["step"])) == pytest.approx(value, rel=1e-6)
    assert found == {}


def test_the_result_summarises_the_metrics(finished):
    directory, text = finished
    result, lines = read_json(directory / "result.json"), read_lines(directory / "metrics.jsonl")
    random, *greedy = (line for line in lines if line["kind"] == "eval")
    assert (result["steps"], result["updates"]) == (200, 76)
    assert result["random"].items() <= random.items()
    assert result["final"].items() <= greedy[-1].items()
    best = max(greedy, key=lambda line: line["return_mean"])
    assert result["best"] == {name: best[name] for name in ("step", "return_mean", "return_std", "episodes")}
    assert f"final evaluation: return {result['final']['return_mean']:.2f} ± " in text
    assert f"random policy: return {random['return_mean']:.2f} ± {random['return_std']:.2f}" in text
    assert text.count("evaluation: return") == 3


def test_the_agent_in_a_run_is_the_one_that_was_trained(finished):
    agent = Agent.load(finished[0] / "agent")
    fresh = Agent("CartPole-v1", **SMALL)
    assert agent.config == small_run().config == fresh.config
    seen = np.ones((3, 4))
    assert not torch.equal(agent.quantiles(seen, [0.5]), fresh.quantiles(seen, [0.5]))


def test_a_finished_run_is_reported_and_not_trained_again(finished, monkeypatch):
    directory, first = finished
    before = contents(directory)
    monkeypatch.setattr(runner, "Training", None)
    text = told(directory, small_run())
    assert contents(directory) == before
    assert text.startswith(f"{directory} is finished already; use another --out or --seed to train again.\n")
    assert text.partition("\nfinal")[2] == first.partition("\nfinal")[2]


def without_timing(directory):
    lines = read_lines(directory / "metrics.jsonl")
    assert all(any(name in line for name in TIMING) for line in lines)
    return [json.dumps({name: value for name, value in line.items() if name not in TIMING}) for line in lines]


def test_the_directory_of_another_run_is_refused_and_left_alone(finished):
    directory, _ = finished
    before = contents(directory)
    other = small_run(seed=4, head={"knots": 9})
    message = (
        r"holds another run: it differs in head\.knots \(32 there, 9 here\), seed \(0 there, 4 here\); use another"
    )
    with pytest.raises(ConfigError, match=message):
        train_into(directory, other, silent())
    message = r"it differs in head\.action_fractions \(None there, 32 here\), head\.anchor \('mean' there, .* and more;"
    with pytest.raises(ConfigError, match=message):
        train_into(directory, small_run("iqn-dpe"), silent())
    assert contents(directory) == before


def test_a_directory_that_holds_something_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(
        ConfigError, match=r"^the run directory \S+ is not empty and holds no run; use another directory\.$"
    ):
        train_into(tmp_path, small_run(), silent())
    with pytest.raises(ConfigError, match=r"^the run directory \S+thesis\.tex is a file, but must be a directory\.$"):
        train_into(tmp_path / "thesis.tex", small_run(), silent())
    with pytest.raises(ConfigError, match=r"^the run directory \S+/run cannot be written to: .*Not a directory"):
        train_into(tmp_path / "thesis.tex" / "run", small_run(), silent())
    assert contents(tmp_path) == {"thesis.tex": b"mine"}


def test_a_name_that_cannot_be_a_directory_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"^the run directory \S+ cannot be used: .*File name too long"):
        train_into(tmp_path / ("a" * 300), small_run(), silent())


def test_a_directory_whose_settings_are_damaged_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json is not valid JSON"):
        state_of(tmp_path, small_run().config.to_plain())


def test_a_directory_counts_as_new_until_its_settings_are_complete(tmp_path):
    config = small_run().config
    assert state_of(tmp_path / "missing", config.to_plain()) == "new"
    assert state_of(tmp_path, config.to_plain()) == "new"
    temporary_path(tmp_path / "config.json").write_text("{")
    assert state_of(tmp_path, config.to_plain()) == "new"
    write_json(tmp_path / "config.json", config.to_plain())
    assert state_of(tmp_path, config.to_plain()) == "unfinished"


@pytest.mark.parametrize("settings", [{"device": "cuda"}, {"replay": {"capacity_steps": 3, "warmup_steps": 3}}])
def test_settings_that_fail_late_leave_no_directory(settings, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"device is 'cuda', but|replay\.capacity_steps is 3, but"):
        train_into(tmp_path / "run", small_run(**settings), silent())
    assert not (tmp_path / "run").exists()


def test_messages_show_the_directory_s_name_even_if_it_looks_like_markup(tmp_path, undrawn):
    directory = tmp_path / "[bold]a[/b] [1]"
    assert f"into {directory}\n" in told(directory, small_run(steps=2, iteration_steps=2))
    text = told(directory, small_run(steps=2, iteration_steps=2))
    assert text.startswith(f"{directory} is finished")
    assert f"in {directory}:\n" in text


def test_runs_go_where_their_settings_say():
    resolved = small_run("iqn", "monotau/Chain-v0", seed=3)
    assert str(default_directory(resolved)) == "runs/iqn_monotau-Chain-v0_seed3"
    unusual = resolve("iqn", {"env": {"id": "ALE/Pong-v5"}}, profile="atari-fast")
    assert str(default_directory(unusual)) == "runs/iqn-atari-fast_ALE-Pong-v5-noop_seed0"


@pytest.mark.parametrize("preset", ["ndqfn-dpe", pytest.param("iqn-dpe", marks=pytest.mark.slow)])
def test_the_same_seed_gives_the_same_run_bit_by_bit_and_another_does_not(preset, tmp_path):
    metrics, files = [], []
    for number, seed in enumerate((1, 1, 2)):
        torch.manual_seed(number)  # no global generator has an influence
        np.random.seed(number)  # noqa: NPY002
        directory = tmp_path / str(number)
        train_into(directory, small_run(preset, seed=seed), silent())
        metrics.append("\n".join(without_timing(directory)))
        files.append(contents(directory / "agent"))
    assert metrics[0] == metrics[1] != metrics[2]
    assert files[0] == files[1]
    assert files[0]["weights.safetensors"] != files[2]["weights.safetensors"]
    assert "nan" not in metrics[0].lower()


def test_the_state_drawn_is_the_one_in_which_the_actions_differ_most():
    agent = Agent("CartPole-v1", **SMALL)
    states = np.random.default_rng(5).standard_normal((6, 1, 4)).astype(np.float32)
    taus, curves = widest_state(agent, Evaluation([0.0], [1], states))
    all_curves = agent.quantiles(states[:, 0], taus).numpy()
    spreads = [abs(curve[0].mean() - curve[1].mean()) for curve in all_curves]
    np.testing.assert_allclose(curves, all_curves[int(np.argmax(spreads))], rtol=1e-5, atol=1e-6)
    assert int(np.argmax(spreads)) not in (0, 5)


def test_figures_are_drawn_before_the_result_is_written_and_only_on_request(tmp_path):
    drawn = []

    def draw(directory, lines, agent, evaluation):
        assert not (directory / "result.json").exists()
        assert lines[-1]["step"] == 200
        drawn.append((directory, agent.actions, len(evaluation.returns)))

    train_into(tmp_path / "drawn", small_run(), silent(), draw=draw)
    train_into(tmp_path / "undrawn", small_run(), silent())
    train_into(tmp_path / "drawn", small_run(), silent(), draw=draw)  # finished: nothing is drawn again
    assert drawn == [(tmp_path / "drawn", 2, 2)]
    assert not [*tmp_path.glob("*/*.png")]


def test_a_run_whose_figures_fail_is_unfinished_and_ends_the_same_when_repeated(tmp_path):
    def fail(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_into(tmp_path / "run", small_run(), silent(), draw=fail)
    assert state_of(tmp_path / "run", small_run().config.to_plain()) == "unfinished"
    train_into(tmp_path / "run", small_run(), silent())
    train_into(tmp_path / "whole", small_run(), silent())
    assert contents(tmp_path / "run" / "agent") == contents(tmp_path / "whole" / "agent")
