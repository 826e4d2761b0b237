"""Hooks: they see the training and may end it, they change nothing that is learned, and their errors pass unchanged."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

from monotau import Agent, ConfigError, Divergence, EnvironmentFault, Progress, train_agent
from monotau.agent import Hooks
from monotau.report.card import card
from monotau.results.read import read_run
from monotau.runs.files import read_json
from monotau.runs.metrics import TIMING, read_lines
from monotau.runs.runner import train_into
from tests.support.small_runs import SMALL, skip_figures, small_run

LONG = SMALL | {"steps": 400, "head": {"hidden": 8}}


def learned(agent):
    return {name: tensor.numpy().tobytes() for name, tensor in agent.networks.state().items()}


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Train into a directory of this test without figures."""
    skip_figures(monkeypatch)

    def train(name="run", **hooks):
        return train_agent("CartPole-v1", tmp_path / name, "dqn", verbose=False, **(LONG | hooks))

    return train


def meddle(progress):
    """Use everything that a hook is given, in ways that would show if a random stream or a line were shared."""
    progress.agent.evaluate(1)
    progress.agent.predict(np.zeros(4), deterministic=False)
    progress.evaluations[-1]["return_mean"] = 1e9


def test_hooks_do_not_change_what_is_learned(train):
    plain = train("plain")
    watched = train("watched", on_evaluation=meddle, on_log=lambda line: line.clear())
    assert learned(plain) == learned(watched)
    assert learned(Agent("CartPole-v1", "dqn", **LONG).learn(400, on_evaluation=meddle)) == learned(plain)


def without_timing(lines):
    return [{name: value for name, value in line.items() if name not in TIMING} for line in lines]


def test_a_hook_receives_each_line_as_it_is_written(train, tmp_path):
    seen = []
    train(on_log=seen.append)
    assert seen == read_lines(tmp_path / "run" / "metrics.jsonl")
    assert {line["kind"] for line in seen} == {"train", "eval"}
    later = []
    agent = Agent("CartPole-v1", "dqn", **LONG).learn(100, on_log=later.append)
    assert later == agent.history
    agent.learn(100)
    assert len(later) < len(agent.history)


def test_progress_tells_what_early_stopping_needs(train, tmp_path):
    told = []
    train(on_evaluation=told.append)
    assert [progress.step for progress in told] == [100, 200, 300, 400]
    assert {progress.steps for progress in told} == {400}
    greedy = [line for line in read_lines(tmp_path / "run" / "metrics.jsonl") if line.get("policy") == "greedy"]
    last = told[-1]
    assert list(last.evaluations) == greedy
    assert (last.return_mean, last.return_std) == (greedy[-1]["return_mean"], greedy[-1]["return_std"])
    best = max(greedy, key=lambda line: line["return_mean"])
    assert (last.best_return, last.best_step) == (best["return_mean"], best["step"])
    assert 0 < told[0].seconds < last.seconds
    assert (last.agent.steps, last.directory) == (400, tmp_path / "run")
    with pytest.raises(AttributeError, match="cannot assign"):
        last.step = 3


def test_a_hook_ends_a_run_in_order(train, tmp_path):
    asked = []

    def stop(progress):
        asked.append(progress.step)
        return progress.step == 200

    agent = train(on_evaluation=stop)
    directory = tmp_path / "run"
    result = read_json(directory / "result.json")
    assert (result["stopped"], result["steps"], asked) == ("on_evaluation", 200, [100, 200])
    assert read_lines(directory / "metrics.jsonl")[-1]["step"] == 200
    assert learned(agent) == learned(Agent.load(directory / "checkpoints" / "00000002", "CartPole-v1"))
    run = read_run(directory)
    assert (run.state, run.step) == ("finished", 200)
    assert "It was trained for 200 of 400 steps (stopped early) with seed 0" in card(run, directory)


def test_a_run_that_a_hook_ended_is_finished(train, tmp_path):
    agent = train(on_evaluation=lambda progress: True)
    file, settings = io.StringIO(), read_json(tmp_path / "run" / "config.json")
    again = small_run("dqn", **{name: value for name, value in settings.items() if name not in ("preset", "profile")})
    train_into(tmp_path / "run", again, Console(file=file, width=300))
    assert "is finished already" in file.getvalue()
    assert "stopped early by on_evaluation after 100 steps" in file.getvalue()
    assert learned(train()) == learned(agent)


def test_a_run_that_nothing_ended_was_not_stopped(train, tmp_path):
    train(on_evaluation=lambda progress: progress.step == 400)
    assert read_json(tmp_path / "run" / "result.json")["stopped"] is None


def test_learning_ends_where_the_hook_says():
    agent = Agent("CartPole-v1", "dqn", **LONG)
    assert agent.learn(400, on_evaluation=lambda progress: np.bool_(progress.step >= 200)).steps == 200
    assert agent.learn(200, on_evaluation=lambda progress: False).steps == 400


@pytest.mark.parametrize("answer", [0, 1, "stop", "continue"])
def test_an_answer_other_than_true_false_and_none_is_refused(answer, train, tmp_path):
    message = rf"^on_evaluation returned {answer!r}, but must return True to stop the training, or False or None to go"
    with pytest.raises(ConfigError, match=message):
        train(on_evaluation=lambda progress: answer)
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_hook_that_is_no_function_is_refused():
    hooks = object.__new__(Hooks)  # the checks of the test run would refuse it first
    hooks.__dict__.update(on_evaluation=3, on_log=None)
    with pytest.raises(ConfigError, match=r"^on_evaluation is 3, but must be a function\.$"):
        hooks.__post_init__()


ERRORS = [OSError("no such disk"), Divergence("mine"), EnvironmentFault("mine"), KeyError("mine")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", ["on_evaluation", "on_log"])
def test_an_error_of_a_hook_passes_unchanged_and_the_run_resumes(name, error, train):
    def fail(given):
        step = given.step if isinstance(given, Progress) else given["step"]
        if step >= 150:
            raise error

    with pytest.raises(type(error)) as caught:
        train(**{name: fail})
    assert caught.value is error
    assert caught.value.__context__ is None
    seen = []
    resumed = train(on_log=seen.append)
    # The run resumes from its last checkpoint; lines from before it are not sent again.
    assert min(line["step"] for line in seen) > 100
    assert learned(resumed) == learned(train("whole"))


def test_a_resumed_run_sends_only_new_lines(train, tmp_path):
    first, second = [], []

    def interrupt(progress):
        if progress.step == 200:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(on_evaluation=interrupt, on_log=first.append)
    train(on_log=second.append)
    written = without_timing(read_lines(tmp_path / "run" / "metrics.jsonl"))
    # Only the evaluation after the checkpoint is repeated.
    assert without_timing(first[:-1] + second) == written
    assert without_timing(first[-1:]) == without_timing(second[:1])
    assert json.dumps(first[-1])


def test_hooks_run_in_this_process_with_actors(local_ray):
    steps, lines = [], []
    settings = LONG | {"actors": 1, "iteration_steps": 200}
    agent = Agent("CartPole-v1", "dqn", **settings)
    agent.learn(400, on_evaluation=lambda progress: steps.append(progress.step) or True, on_log=lines.append)
    assert steps == [agent.steps]
    assert 200 <= agent.steps < 400
    assert lines == agent.history
