"""Hooks: they see the training and may end it, they change nothing that is learned, and their errors pass unchanged."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

from monotau import Agent, ConfigError, Divergence, EnvironmentFault, Progress, train_agent
from monotau.agent import Hooks
from monotau.config.resolve import resolve
from monotau.learning.hooks import asks_to_stop
from monotau.report.card import card
from monotau.results.read import read_run
from monotau.runs.files import read_json
from monotau.runs.metrics import TIMING, Log, read_lines
from monotau.runs.progress import Display
from monotau.runs.runner import train_into
from tests.support.small_runs import skip_figures
from tests.support.suites import TINY_SUITE

COIN, SHORT = "monotau/Coin-v0", TINY_SUITE["settings"]  # 60 steps, with an evaluation after each 20


def learned(agent):
    return {name: tensor.numpy().tobytes() for name, tensor in agent.networks.state().items()}


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Train into a directory of this test without figures."""
    skip_figures(monkeypatch)

    def train(name="run", **hooks):
        return train_agent(COIN, tmp_path / name, "dqn", verbose=False, **SHORT, **hooks)

    return train


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The weights of a run without hooks."""
    with pytest.MonkeyPatch.context() as patch:
        skip_figures(patch)
        return learned(train_agent(COIN, tmp_path_factory.mktemp("whole") / "run", "dqn", verbose=False, **SHORT))


def meddle(progress):
    """Use everything that a hook is given, in ways that would show if a random stream or a line were shared."""
    progress.agent.evaluate(1)
    progress.agent.predict(0, deterministic=False)
    progress.evaluations[-1]["return_mean"] = 1e9


def test_hooks_do_not_change_what_is_learned(train, whole, tmp_path):
    assert learned(train(on_evaluation=meddle, on_log=lambda line: line.clear())) == whole
    assert abs(read_json(tmp_path / "run" / "result.json")["best"]["return_mean"]) <= 1
    assert learned(Agent(COIN, "dqn", **SHORT).learn(60, on_evaluation=meddle)) == whole


def without_timing(lines):
    return [{name: value for name, value in line.items() if name not in TIMING} for line in lines]


def test_a_hook_receives_each_line_as_it_is_written(train, tmp_path):
    seen = []
    train(on_log=seen.append)
    assert seen == read_lines(tmp_path / "run" / "metrics.jsonl")
    assert {line["kind"] for line in seen} == {"train", "eval"}
    later = []
    agent = Agent(COIN, "dqn", **SHORT).learn(20, on_log=later.append)
    assert later == agent.history
    agent.learn(20)
    assert len(later) < len(agent.history)


def test_progress_tells_what_early_stopping_needs(train, tmp_path):
    told = []
    train(on_evaluation=told.append)
    assert [progress.step for progress in told] == [20, 40, 60]
    assert {progress.steps for progress in told} == {60}
    greedy = [line for line in read_lines(tmp_path / "run" / "metrics.jsonl") if line.get("policy") == "greedy"]
    last = told[-1]
    assert list(last.evaluations) == greedy
    assert (last.return_mean, last.return_std) == (greedy[-1]["return_mean"], greedy[-1]["return_std"])
    best = max(greedy, key=lambda line: line["return_mean"])
    assert (last.best_return, last.best_step) == (best["return_mean"], best["step"])
    agent, returns = Agent(COIN, "dqn"), [1.0, 5.0, 5.0, 2.0]
    lines = [{"policy": "greedy", "step": n, "return_mean": x, "return_std": 0.0} for n, x in enumerate(returns)]
    agent.start_training(Log(), Display(None)).log.lines += [{"policy": "random", "step": 0}, *lines]
    later = Progress.of(agent, 60, 1.0, None)
    assert (later.return_mean, later.best_return, later.best_step) == (2.0, 5.0, 1)
    assert 0 < told[0].seconds < last.seconds
    assert (last.agent.steps, last.directory) == (60, tmp_path / "run")
    with pytest.raises(AttributeError, match="cannot assign"):
        last.step = 3


def test_a_hook_ends_a_run_in_order(train, tmp_path):
    asked = []

    def stop(progress):
        asked.append(progress.step)
        return progress.step == 40

    agent = train(on_evaluation=stop)
    directory = tmp_path / "run"
    result = read_json(directory / "result.json")
    assert (result["stopped"], result["steps"], asked) == ("on_evaluation", 40, [20, 40])
    assert read_lines(directory / "metrics.jsonl")[-1]["step"] == 40
    assert learned(agent) == learned(Agent.load(directory / "checkpoints" / "00000002", COIN))
    run = read_run(directory)
    assert (run.state, run.step) == ("finished", 40)
    assert "It was trained for 40 of 60 steps (stopped early) with seed 0" in card(run, directory)


def test_a_run_that_a_hook_ended_is_finished(train, tmp_path):
    agent = train(on_evaluation=lambda progress: True)
    file = io.StringIO()
    train_into(tmp_path / "run", resolve("dqn", SHORT, {"env": {"id": COIN}}), Console(file=file, width=300))
    assert "is finished already" in file.getvalue()
    assert "stopped early by on_evaluation after 20 steps" in file.getvalue()
    assert learned(train()) == learned(agent)


def test_a_run_that_nothing_ended_was_not_stopped(train, tmp_path):
    train(on_evaluation=lambda progress: progress.step == 60)
    assert read_json(tmp_path / "run" / "result.json")["stopped"] is None


def test_learning_ends_where_the_hook_says():
    agent = Agent(COIN, "dqn", **SHORT)
    assert agent.learn(60, on_evaluation=lambda progress: np.bool_(progress.step >= 40)).steps == 40
    assert agent.learn(20, on_evaluation=lambda progress: False).steps == 60


def test_an_answer_other_than_true_false_and_none_is_refused(train, tmp_path):
    def refused(answer):
        return rf"^on_evaluation returned {answer!r}, but must return True to stop, or False or None to go on\.$"

    with pytest.raises(ConfigError, match=refused("stop")):
        train(on_evaluation=lambda progress: "stop")
    assert not (tmp_path / "run" / "result.json").exists()
    for answer in (0, 1, "continue"):
        with pytest.raises(ConfigError, match=refused(answer)):
            asks_to_stop(answer)


def test_a_hook_that_is_no_function_is_refused():
    hooks = object.__new__(Hooks)  # the checks of the test run would refuse it first
    hooks.__dict__.update(on_evaluation=3, on_log=None)
    with pytest.raises(ConfigError, match=r"^on_evaluation is 3, but must be a function\.$"):
        hooks.__post_init__()


ERRORS = [
    ("on_evaluation", OSError("no such disk")),
    ("on_log", Divergence("mine")),
    ("on_log", EnvironmentFault("mine")),
]


@pytest.mark.parametrize(("name", "error"), ERRORS, ids=lambda given: given if isinstance(given, str) else "")
def test_an_error_of_a_hook_passes_unchanged_and_the_run_resumes(name, error, train, whole):
    def fail(given):
        step = given.step if isinstance(given, Progress) else given["step"]
        if step >= 30:
            raise error

    with pytest.raises(type(error)) as caught:
        train(**{name: fail})
    assert caught.value is error
    assert caught.value.__context__ is None
    seen = []
    resumed = train(on_log=seen.append)
    # The run resumes from its last checkpoint; lines from before it are not sent again.
    assert min(line["step"] for line in seen) >= 20
    assert learned(resumed) == whole


def test_a_resumed_run_sends_only_new_lines(train, tmp_path):
    first, second = [], []

    def interrupt(progress):
        if progress.step == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(on_evaluation=interrupt, on_log=first.append)
    train(on_log=second.append)
    written = without_timing(read_lines(tmp_path / "run" / "metrics.jsonl"))
    # Only the evaluation after the checkpoint is repeated.
    assert without_timing(first[:-1] + second) == written
    assert without_timing(first[-1:]) == without_timing(second[:1])
    assert json.dumps(first[-1])
