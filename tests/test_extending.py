"""The page on extending is true: its module runs as it stands there, from the command line and from Python."""

import json
import re
from pathlib import Path

import pytest
import torch
import yaml

import monotau
from monotau import Agent
from monotau.networks import HEADS
from monotau.report.sections.quantiles import quantile_sections
from tests.support.commands import command_caller
from tests.support.imports import forget
from tests.support.small_runs import SMALL, skip_figures

PAGE = Path(monotau.__file__).parents[2] / "docs" / "extending.md"
MODULE, USE = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)

FLAGS = [
    *("--steps", "100", "--iteration-steps", "100", "--log-every-steps", "50", "--replay.warmup-steps", "50"),
    *("--update.batch-size", "8", "--evaluation.episodes", "2"),
]


@pytest.fixture
def page(own_modules, monkeypatch):
    own_modules("my_parts", MODULE)
    skip_figures(monkeypatch)


def test_the_module_in_the_documentation_is_complete_and_learns(page):
    names = {}
    exec(USE, names)  # noqa: S102
    assert names["agent"].config.imports == ("my_parts",)
    assert HEADS["logistic"].__module__ == "my_parts"
    parts = {"head": {"kind": "logistic", "units": 8}, "torso": {"kind": "smooth", "width": 8}}
    agent = Agent("CartPole-v1", "ndqfn-dpe", **(SMALL | parts | {"dueling": True, "noisy": True})).learn(200)
    line = next(line for line in agent.history if line["loss"] is not None)
    assert line["crossing"] == 0
    curve = agent.quantiles([0.0, 0.1, 0.0, -0.1], torch.linspace(0, 1, 101))
    assert (curve.diff(dim=-1) >= 0).all()
    assert (curve[..., -1] > curve[..., 0]).all()
    assert (names["agent"].bonus([0.0, 0.1, 0.0, -0.1]) > 0).all()  # the quantile at 0.8 lies above the mean


def test_its_parts_are_used_from_the_command_line(page, capsys, tmp_path):
    call = command_caller(capsys)
    words = ["--head", "logistic", "--head.units", "8", "--explorer", "optimistic", "--torso", "smooth"]
    code, _, err = call("train", "--import", "my_parts", *words, *FLAGS, "--out", "run")
    assert (code, err) == (0, "")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["imports"] == ["my_parts"]
    assert (config["head"], config["torso"]["kind"]) == ({"kind": "logistic", "units": 8}, "smooth")
    code, out, _ = call("evaluate", "run", "--import", "my_parts", "--episodes", "2")
    assert (code, json.loads(out)["episodes"]) == (0, 2)
    assert call("export", "run", "--import=my_parts", "--format", "torch")[:2] == (0, "run/agent.pt2\n")
    assert "# ndqfn-dpe on CartPole-v1" in call("card", "run")[1]


def test_its_parts_are_used_in_a_suite_and_a_report(page, capsys, tmp_path, monkeypatch):
    settings = SMALL | {"head": {"units": 8}, "torso": {"kind": "smooth", "width": 8}, "steps": 100}
    suite = {"presets": ["logistic"], "envs": ["monotau/Coin-v0"], "seeds": 1, "settings": settings}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(suite))
    call = command_caller(capsys)
    code, _, err = call("suite", "mine.yaml", "--import", "my_parts", "--out", "runs", "--index", "0")
    assert (code, err) == (0, "")
    (run,) = (tmp_path / "runs").glob("logistic_*")
    assert json.loads((run / "config.json").read_text())["imports"] == ["my_parts"]
    monkeypatch.setattr("monotau.report.command.SECTIONS", (quantile_sections,))  # the one that loads agents
    assert call("report", "runs", "--import", "my_parts", "--out", "page")[0] == 0
    assert (tmp_path / "page" / "figures" / "quantiles-monotau-Coin-v0.png").exists()


def test_its_agents_are_audited_watched_and_filmed(page, capsys, tmp_path, monkeypatch):
    call, load = command_caller(capsys), ("--import", "my_parts")
    words = ["logistic", "--env", "monotau/TwoStepCoin-v0", "--head.units", "8", "--torso.width", "8"]
    assert call("train", *words, *load, *FLAGS, "--out", "run")[0] == 0
    needed = "the settings need the module my_parts, which must be named: pass --import my_parts"
    for name in ("os.nice", "prepare_process"):
        monkeypatch.setattr(f"monotau.watch.command.{name}", lambda *_: None)
    forget("my_parts")
    for command in (["audit", "run"], ["video", "run", "--out", "film.gif"], ["watch", "run"]):
        code, _, err = call(*command)
        assert (code, needed in err) == (2, True), err
    film = ("--out", "film.gif", "--most-steps", "1", "--width", "320")
    assert call("video", "run", *film, *load)[:2] == (0, "film.gif\n")
    forget("my_parts")
    shown = []
    monkeypatch.setattr(
        "monotau.watch.server.serve", lambda sessions, bound, *_: (shown.extend(sessions), bound.close())
    )
    assert call("watch", "run", *load)[0] == 0
    assert [session.status()["state"] for session in shown] == ["playing"]
    forget("my_parts")
    few = ("--states", "5", "--rollouts", "8", "--jobs", "2")  # two parts, each in a process of its own
    code, out, _ = call("audit", "run", *few, *load)
    assert (code, "run/audit/index.html" in out) == (0, True)


def test_a_search_trains_its_parts_in_other_processes(page, capsys, tmp_path, monkeypatch):
    call, seen = command_caller(capsys), []
    settings = SMALL | {"head": {"units": 8}, "torso": {"kind": "smooth", "width": 8}}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump({name: settings[name] for name in settings if name != "steps"}))
    monkeypatch.setattr("monotau.tuning.command.run_study", lambda out, trials, workers, *_: seen.append(workers))
    words = ("tune", "monotau/Coin-v0", "--preset", "logistic", "--config", "small.yaml", "--steps", "100")
    assert call(*words, "--out", "study")[0] == 2
    assert call(*words, "--out", "study", "--import", "my_parts")[0] == 0
    forget("my_parts")
    trial = seen[0]._command(0)[3:]  # without python -m monotau
    assert call(*trial)[0] == 0
    config = json.loads((tmp_path / "study" / "trials" / "0000" / "config.json").read_text())
    assert (config["imports"], config["head"]["kind"]) == (["my_parts"], "logistic")


def test_the_example_is_short():
    body = [line for line in MODULE.splitlines() if line.strip() and not line.startswith(("import", "from"))]
    assert len(body) <= 65
