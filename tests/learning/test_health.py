"""Health warnings: a run with a dead network or unreachable returns warns once and in plain words."""

import io
import re

import pytest
import torch
from benchmarks.endings import differences, end_of
from rich.console import Console

from monotau.agent import Agent
from monotau.config.resolve import resolve
from monotau.learning import health
from monotau.learning.health import FEWEST_UPDATES, findings
from monotau.runs import runner
from monotau.runs.files import read_json
from monotau.runs.metrics import read_lines
from monotau.runs.runner import train_into
from tests.support.disk_faults import Crash
from tests.support.small_runs import SMALL, short_run, skip_figures, small_run
from tests.support.tensorboard import scalars

HEALTHY = {
    "q_mean": -50.0,
    "q_std": 2.0,
    "q_contrast": 0.04,
    "dead_features": 0.5,
    "dead_increments": 0.9,
    "clipped": 0.1,
    "overshoot": 0.5,
}
ILL = {
    "dead_features": {"dead_features": 1.0},
    "one_value": {"q_contrast": 1e-5, "q_std": 5e-4},
    "dead_increments": {"dead_increments": 1.0},
    "out_of_reach": {"clipped": 0.3},
}
CONFIG = small_run("ndqfn").config


def lines(*changes, updates=FEWEST_UPDATES):
    """Return a training line for each set of changes to a healthy line."""
    common = {"kind": "train", "updates": updates}
    return [{"step": n, "return_mean": float(n)} | common | HEALTHY | each for n, each in enumerate(changes)]


def rules(trains, said=(), config=CONFIG):
    return [finding.rule for finding in findings(config, trains, said)]


def test_a_healthy_run_gets_no_warning():
    assert rules(lines({}, {}, {}, {})) == []
    assert rules([]) == []


@pytest.mark.parametrize(("rule", "ill"), [*ILL.items(), ("out_of_reach", {"overshoot": 1.5})])
def test_each_rule_warns_once_after_several_bad_lines_in_a_row(rule, ill):
    assert rules(lines({}, ill, ill)) == []
    assert rules(lines(ill, {}, ill)) == []
    assert rules(lines(ill, ill, {})) == []
    assert rules(lines(ill, ill)) == []
    assert rules(lines({}, ill, ill, ill)) == [rule]
    assert rules(lines(ill, ill, ill, ill), said=[rule]) == []


@pytest.mark.parametrize("ill", ILL.values(), ids=ILL)
def test_no_rule_warns_about_initial_weights_or_missing_numbers(ill):
    assert rules(lines(ill, ill, ill, updates=FEWEST_UPDATES - 1)) == []
    unknown = lines(ill, ill | dict.fromkeys(ill), ill)
    assert rules(unknown) == []
    for line in unknown:
        for name in ill:
            del line[name]
    assert rules(unknown) == []


def test_a_warning_about_a_cause_silences_warnings_about_its_effects():
    dead = ILL["dead_features"] | ILL["one_value"] | ILL["dead_increments"]
    trains = lines(dead, dead, dead)
    assert rules(trains) == ["dead_features"]
    assert rules(trains, said=["dead_features"]) == []
    assert rules(trains, said=["dead_increments"]) == ["dead_features"]
    far = ILL["out_of_reach"] | dead
    assert rules(lines(far, far, far)) == ["dead_features", "out_of_reach"]
    cut = ILL["out_of_reach"] | ILL["one_value"]
    assert rules(lines(cut, cut, cut)) == ["out_of_reach"]
    assert rules(lines(cut, cut, cut), said=["out_of_reach"]) == []


def test_predicting_a_single_return_is_healthy_if_all_episodes_are_alike():
    ill = ILL["dead_increments"]
    for returns in ([1.0, 1.0, 1.0], [None, 1.0, None], [None, None, None]):
        assert rules(lines(*(ill | {"return_mean": returned} for returned in returns))) == []
    assert rules(lines(*(ill | {"return_mean": returned} for returned in (1.0, None, 2.0)))) == ["dead_increments"]


WARNINGS = {
    "dead_features": "the network is dead: 100.00% of its features are zero in every sampled state (dead_features, "
    "3 log lines in a row), so it cannot distinguish states; start again with a lower optimiser.learning_rate "
    "(now 0.0003), another torso or another seed (now 0).",
    "one_value": "every state has the same predicted value (q_std 0.0005 around a q_mean of -50, 3 log lines in a "
    "row): unless that is true, the network no longer distinguishes states; start again with a lower "
    "optimiser.learning_rate (now 0.0003), another torso or another seed (now 0).",
    "dead_increments": "the head predicts a single return although episodes differ: 100.00% of its increments are zero "
    "in every sampled state (dead_increments, 3 log lines in a row); unless returns are deterministic, start again "
    "with head.increment scaled, which cannot die, or a lower optimiser.learning_rate (now 0.0003).",
    "out_of_reach": "returns exceed the head's support: 30% of the targets' probability mass is clipped (clipped, "
    "3 log lines in a row); it is -7 to 9 in raw rewards: head.low -7 and head.high 9, in units of 1; start again with "
    "bounds that enclose all discounted returns.",
}


@pytest.mark.parametrize("rule", ILL)
def test_a_warning_names_the_symptom_and_the_remedy(rule):
    if rule == "out_of_reach":
        config = Agent("CartPole-v1", "c51", head={"low": -7.0, "high": 9.0}).config
    else:
        config = small_run("ndqfn", optimiser={"learning_rate": 3e-4}, head={"increment": "relu"}).config
    (finding,) = findings(config, lines(*[ILL[rule]] * 3), ())
    assert finding.text == WARNINGS[rule]


def test_the_remedy_does_not_suggest_a_setting_that_is_already_in_use():
    config = small_run("ndqfn", head={"increment": "softplus"}).config
    (finding,) = findings(config, lines(*[ILL["dead_increments"]] * 3), ())
    assert "start again with a lower optimiser.learning_rate" in finding.text


@pytest.fixture
def early(monkeypatch):
    """Check health after only a few updates, and skip figures."""
    monkeypatch.setattr(health, "FEWEST_UPDATES", 20)
    skip_figures(monkeypatch)


@pytest.fixture
def killed(monkeypatch):
    """Zero the torso before the first step; without gradients its weights never recover."""
    real = runner.Training.iterate

    def iterate(training, total):
        if training.iteration == 0:
            with torch.no_grad():
                for parameter in training.networks.learner.online.torso.parameters():
                    parameter.zero_()
            training.networks.learner.online.invalidate_cache()
        return real(training, total)

    monkeypatch.setattr(runner.Training, "iterate", iterate)


def told(directory, resolved):
    file = io.StringIO()
    train_into(directory, resolved, Console(file=file, width=500))
    return file.getvalue()


@pytest.mark.parametrize("preset", ["dqn", "ndqfn", pytest.param("iqn", marks=pytest.mark.slow)])
def test_a_dead_run_warns_once_and_not_again_after_resuming(preset, early, killed, tmp_path, monkeypatch):
    resolved = short_run(preset)
    text = told(tmp_path / "whole", resolved)
    (warning,) = (line for line in read_lines(tmp_path / "whole" / "metrics.jsonl") if line["kind"] == "warning")
    assert warning["rule"] == "dead_features"
    assert read_json(tmp_path / "whole" / "result.json")["warnings"] == [warning["text"]]
    during, _, after = text.partition("final evaluation")
    assert during.count(f"step {warning['step']:>9,d}  warning: {warning['text']}\n") == during.count("warning:") == 1
    assert after.count(f"\nwarning: {warning['text']}\n") == 1
    assert told(tmp_path / "whole", resolved).count("warning:") == 1  # a finished run repeats its warnings

    real = runner.Training.evaluate

    def evaluate(training):
        if training.iteration == 3:
            raise Crash
        return real(training)

    with monkeypatch.context() as patch:
        patch.setattr(runner.Training, "evaluate", evaluate)
        with pytest.raises(Crash):
            train_into(tmp_path / "cut", resolved, Console(quiet=True))
    assert [line["kind"] for line in read_lines(tmp_path / "cut" / "metrics.jsonl")].count("warning") == 1
    during, _, after = told(tmp_path / "cut", resolved).partition("final evaluation")
    assert "resuming from step 180" in during
    assert (during.count("warning:"), after.count("warning:")) == (0, 1)
    assert differences(end_of(tmp_path / "whole"), end_of(tmp_path / "cut")) == []
    assert not any(tag.startswith("warning") for tag, _ in scalars(tmp_path / "cut"))


@pytest.mark.parametrize(
    "preset", ["dqn", "ndqfn-dpe", *(pytest.param(name, marks=pytest.mark.slow) for name in ("iqn", "c51"))]
)
def test_a_short_healthy_run_does_not_warn(preset, early, tmp_path):
    assert "warning" not in told(tmp_path / "run", short_run(preset))
    assert read_json(tmp_path / "run" / "result.json")["warnings"] == []


@pytest.mark.parametrize("world", ["monotau/Coin-v0", "monotau/TimeLimit-v0"])
def test_an_environment_with_a_single_state_is_not_mistaken_for_a_dead_network(world, early):
    agent = Agent(world, "dqn", **(SMALL | {"head": {"hidden": 8}})).learn(300)
    assert {line["kind"] for line in agent.history} == {"train"}
    assert agent.history[-1]["q_std"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("bounds", "least"), [((-0.1, 0.1), 100), ((-10.0, -9.5), 20)])
def test_an_agent_warns_if_its_support_is_far_too_small(bounds, least, early, capsys):
    head = {"kind": "c51", "low": bounds[0], "high": bounds[1], "hidden": 8}
    agent = Agent("CartPole-v1", "c51", verbose=True, **(SMALL | {"head": head})).learn(300)
    (warning,) = (line for line in agent.history if line["kind"] == "warning")
    assert warning["rule"] == "out_of_reach"
    said = " ".join(capsys.readouterr().err.split())
    (share,) = re.findall(
        r"warning: returns exceed the head's support: (\d+)% of the targets' probability mass is clipped", said
    )
    assert int(share) >= least
    assert f"head.low {bounds[0]:g} and head.high {bounds[1]:g}, in units of" in said


def test_a_support_in_units_that_were_given_is_told_in_raw_rewards():
    config = resolve("c51", {"env": {"id": "CartPole-v1"}, "return_scale": 0.01}).config
    ill = {"clipped": 1.0, "return_unit": 0.01}
    (finding,) = findings(config, lines(ill, ill, ill), ())
    assert finding.text.endswith(
        "it is -0.8 to 0.8 in raw rewards: head.low -80 and head.high 80, in units of return_scale (0.01); start again "
        "without return_scale, or with bounds that enclose all returns."
    )
