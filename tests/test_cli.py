"""The command line: user errors print one line and exit with code 2 before anything is written."""

import ast
import inspect
import json
import re
import shutil
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path

import gymnasium as gym
import pytest
import torch
from benchmarks.endings import contents

import monotau
from monotau.agent import Agent
from monotau.cli import main
from monotau.config.presets import PRESETS
from monotau.config.profiles import PROFILES
from monotau.config.schema import Config
from monotau.envs import EnvFactory, list_envs
from monotau.errors import ConfigError, Divergence
from monotau.explorers import EXPLORERS
from monotau.networks import HEADS, TORSOS
from monotau.replay import REPLAYS
from monotau.runs import command
from monotau.runs.files import write_json
from tests.support.commands import command_caller
from tests.support.small_runs import SMALL, SMALL_FLAGS, small_run

CLASSIC = PROFILES["classic"].settings


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    """Call the program in an empty directory; return exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        code = 0
        try:
            main(list(words))
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def refused(call, tmp_path):
    """Call the program with a user error; return the one line that reports it."""

    def refused(*words):
        before = contents(tmp_path), sorted(tmp_path.rglob("*"))
        code, out, err = call(*words)
        assert (code, out) == (2, "")
        assert (contents(tmp_path), sorted(tmp_path.rglob("*"))) == before
        return one_line(err)

    return refused


def one_line(err):
    assert re.fullmatch(r"error: [^\n]+\n", err), err
    assert "Traceback" not in err
    return err.removeprefix("error: ").rstrip()


REFUSED = [
    (
        ["fly"],
        "the command 'fly' is unknown. Allowed: audit, card, evaluate, export, list, report, scores, suite, train,",
    ),
    (["train", "ndqfn-dep"], "the preset 'ndqfn-dep' is unknown. Did you mean 'ndqfn-dpe'"),
    (["train", "--env", "CartPol-v1"], "env.id 'CartPol-v1' is unknown. Did you mean 'CartPole-v1'"),
    (["train", "--env", "Pendulum-v1"], "Pendulum-v1: the action space is Box(-2.0, 2.0, (1,), float32), but must be"),
    (["train", "--env", "Pendulum-v1"], "or a flat MultiDiscrete that starts at 0 with at most 10,000 combinations,"),
    (["train", "--env", "Pendulum-v1"], "; a gymnasium.ActionWrapper can discretise or flatten it to one of these."),
    (["train", "--env", "nowhere:Env-v0"], "env.id 'nowhere:Env-v0' cannot be made: ModuleNotFoundError"),
    (["train", "--env"], "--env needs a value."),
    (["train", "--env="], "--env needs a value."),
    (["train", "--env", "--steps", "5"], "--env needs a value."),
    (["train", "--config"], "--config needs a value."),
    (["train", "--out"], "Missing value for argument '--out'. Expected 1 values."),
    (["train", "--head.support", "0.5", "0.1"], "head.support is (0.5, 0.1), but must be at least two points that"),
    (["train", "--head.support", "0.1,0.5"], "--head.support takes [FLOAT [FLOAT ...]], but: "),
    (["train", "--replay.warmup-steps", "600000"], "replay.warmup_steps is 600000, but must be between 1 and"),
    (["train", "--gamma", "nan"], "gamma is nan, but must be from 0 to 1"),
    (["train", "--return-scale", "0"], "return_scale is 0.0, but must be a finite number above 0: it is the unit of"),
    (["train", "--return-scale", "nan"], "return_scale is nan, but must be a finite number"),
    (["train", "--return-scale", "-1"], "return_scale is -1.0, but must be a finite number above 0"),
    (["train", "--return-scale", "inf"], "return_scale is inf, but must be a finite number"),
    (["train", "iqn", "--head.anchor", "mean"], "the option '--head.anchor' is unknown here."),
    (
        ["train", "--head.increment-scale", "1"],
        "head.increment_scale is '1', but head.increment 'scaled' has",
    ),
    (["train", "--seed", "-1"], "seed is -1, but must be at least 0."),
    (["train", "--stepz", "5"], "the option '--stepz' is unknown here. Did you mean --steps"),
    (["train", "--head.knotz", "5"], "the option '--head.knotz' is unknown here. Did you mean --head.knots"),
    (["train", "--confg", "x"], "the option '--confg' is unknown here. Did you mean --config"),
    (["train", "--xyzzy"], "the option '--xyzzy' is unknown here. See monotau train --help."),
    (["train", "--steps", "many"], "--steps takes a whole number, not 'many'. See monotau train --help"),
    (["train", "--steps", "1.5"], "--steps takes a whole number, not '1.5'. See"),
    (["train", "--optimiser.learning-rate", "x"], "--optimiser.learning-rate takes a number, not 'x'. See"),
    (["train", "--head.increment", "sine"], "invalid choice 'sine' for argument '--head.increment'."),
    (["train", "--lr", "1"], "the option '--lr' is unknown here. Did you mean --optimiser.learning-rate? See"),
    (["train", "--batch-size=9"], "the option '--batch-size=9' is unknown here. Did you mean --update.batch-size? See"),
    (["train", "NDQFN-DPE"], "the preset 'NDQFN-DPE' is unknown. Did you mean 'ndqfn-dpe'? Allowed"),
    (["train", "--head", "QR"], "head.kind 'QR' is unknown. Did you mean 'qr'? Allowed"),
    (["train", "--steps", "5", "iqn"], "the preset 'iqn' must come first: monotau train iqn ..."),
    (["train", "--double-q", "False"], "'False' is neither a preset nor the value of an option."),
    (["train", "iqn", "ndqfn"], "the option 'ndqfn' is unknown here."),
    (["train", "--head", "nope"], "head.kind 'nope' is unknown. Allowed: c51, dqn, fqf, "),
    (["train", "--explorer=nope"], "explorer.kind 'nope' is unknown."),
    (["train", "--torso", "nope"], "torso.kind 'nope' is unknown."),
    (["train", "--replay", "nope"], "replay.kind 'nope' is unknown. Allowed: prioritized, uniform."),
    (["train", "--replay.kind"], "--replay needs a value."),
    (["train", "--replay", "uniform", "--replay.alpha", "0.5"], "the option '--replay.alpha' is unknown here."),
    (
        ["train", "--replay", "prioritized", "--replay.alpha", "2"],
        "replay.alpha is 2.0, but must be a number from",
    ),
    (["train", "--torso", "nature"], "torso 'nature' needs images of at least 36x36, but the observations are vectors"),
    (["train", "--profile", "nope"], "the profile 'nope' is unknown."),
    (["train", "--env.kwargs", "size", "3"], "env.id 'CartPole-v1' cannot be made: TypeError"),
    (["evaluate"], "Missing from monotau evaluate: DIR. A run directory, or one that"),
    (["evaluate", "nowhere"], "there is no agent in nowhere: name a run directory or one that Agent.save wrote."),
    (["evaluate", "a" * 300], "there is no agent in aaaa"),
    (["evaluate", "x", "--episodes", "few"], "--episodes takes a whole number, not 'few'. See"),
    (["evaluate", "x", "--fly"], "the option '--fly' is unknown here. See monotau evaluate --help."),
    (["export"], "Missing from monotau export: DIR"),
    (["export", "nowhere"], "there is no agent in nowhere: name a run directory or one that Agent.save wrote."),
    (["export", "nowhere", "--best"], "there is no best agent in nowhere: a run writes best_agent at its first eval"),
    (["export", "x", "--format", "tflite"], "invalid choice 'tflite' for argument '--format'."),
    (["card"], "Missing from monotau card: DIR"),
    (["card", "nowhere"], "nowhere is not a run that can be described: "),
    (["list"], "monotau list takes one of: presets, profiles, heads,"),
    (["list", "birds"], "the table 'birds' is unknown. Allowed: envs, explorers, games, heads, presets,"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=[" ".join(words)[:50] for words, _ in REFUSED])
def test_an_invalid_command_prints_one_line_and_writes_nothing(words, message, refused):
    assert message in refused(*words)


def test_a_missing_device_is_refused(refused, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert refused("train", "--device", "cuda") == (
        "device is 'cuda', but torch finds no CUDA device on this machine; allowed: auto, cpu."
    )


FILES = [
    ("steps: 5\nhead: {knotz: 3}\n", "the setting 'head.knotz' is unknown. Did you mean 'head.knots'"),
    ("steps: many\n", "steps is 'many', but must be a whole number."),
    ("gamma: true\n", "gamma is True, but must be a number."),
    ("preset: [iqn]\n", "the preset must be a name, but is ['iqn']."),
    ("preset: nope\n", "the preset 'nope' is unknown."),
    ("profile: 3\n", "the profile must be a name, but is 3."),
    ("head: {kind: [iqn]}\n", "head.kind is ['iqn'], but must be text."),
    (
        "env:\n  kwargs:\n    ? 'a\n\n      b'\n    : 1\n",
        "env.kwargs is {'a\\nb': 1}, but must be a mapping with identifiers as keys.",
    ),
    ("- steps\n", "settings.yaml must contain a mapping of settings, but contains ['steps']."),
    ("steps: 1\nsteps: 2\n", "settings.yaml: the key 'steps' appears more than once."),
    ("steps: !!python/name:os.system\n", "settings.yaml: line 1 has an anchor, an alias or a tag"),
]


@pytest.mark.parametrize(("text", "message"), FILES)
def test_a_file_of_settings_is_read_strictly(text, message, refused, tmp_path):
    (tmp_path / "settings.yaml").write_text(text)
    assert message in refused("train", "--config", "settings.yaml")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("missing.yaml", "No such file"), ("settings.txt", "must end in .json, .yaml or .yml"), (".", "must end in")],
)
def test_a_file_of_settings_that_cannot_be_read_is_refused(name, reason, refused):
    message = refused("train", "--config", name)
    assert message.startswith(f"the settings file {name}")
    assert reason in message


@pytest.fixture
def run_directory(tmp_path):
    """The files of a finished run, written without training."""
    directory, config = tmp_path / "run", small_run().config
    Agent("CartPole-v1", **SMALL).save(directory / "agent")
    write_json(directory / "config.json", config.to_plain())
    returns = {"return_mean": 20.0, "return_std": 1.0, "episodes": 2}
    outcome = {
        "random": returns,
        "final": returns | {"return_mean": 30.5},
        "best": returns | {"return_mean": 31.0, "step": 70},
        "seconds": 60.0,
    }
    write_json(directory / "result.json", outcome)
    return directory


def test_the_refusal_of_another_run_s_directory_names_the_differences(refused, run_directory):
    message = refused("train", "--config", "run/config.json", "--seed", "5", "--out", "run")
    assert message == (
        "the run directory run holds another run: it differs in seed (0 there, 5 here); use another directory."
    )


def test_a_directory_with_other_files_is_refused(refused, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    assert "is not empty and holds no run" in refused("train", "--out", ".")
    assert "is a file" in refused("train", "--out", "thesis.tex")
    assert "cannot be written to" in refused("train", "--out", "thesis.tex/run")
    assert "cannot be used" in refused("train", "--out", "a" * 300)


def test_the_settings_file_of_a_run_can_start_the_same_run(call, run_directory):
    """Equal settings mean the same run, which is already finished."""
    code, out, err = call("train", "--config", "run/config.json", "--out", "run")
    assert (code, err) == (0, "")
    assert out.startswith("run is finished already")
    assert "final evaluation: return 30.50 ± 1.00 over 2 episodes (best 31.00 at step 70), random policy 20.00" in out


SHOWN = [
    [],
    ["iqn-star", "--env", "MinAtar/Breakout-v1", "--seed", "3"],
    ["ndqfn-vpe", "--env", "monotau/DeepSea-v0", "--env.kwargs", "size", "4", "stochastic", "True"],
    ["--head.support", "0.1", "0.5", "0.9", "--head", "ndqfn", "--explorer.normalise", "--no-double-q"],
    ["ndqfn", "--head=iqn", "--head.kappa", "0.5", "--explorer", "dpe", "--explorer.c", "2", "--profile", "atari"],
    ["--replay", "prioritized", "--replay.alpha", "0.5", "--replay.warmup-steps", "9"],
]


@pytest.mark.parametrize("words", SHOWN, ids=[" ".join(words)[:40] or "nothing" for words in SHOWN])
def test_the_printed_settings_are_a_file_that_gives_the_same_settings(words, call, tmp_path):
    code, shown, err = call("train", *words, "--show")
    assert (code, err) == (0, "")
    assert list(json.loads(shown)) == [field.name for field in fields(Config) if field.name != "imports"]
    (tmp_path / "settings.json").write_text(shown)
    assert call("train", "--config", "settings.json", "--show") == (0, shown, "")
    assert [path.name for path in tmp_path.iterdir()] == ["settings.json"]


def test_flags_set_the_settings_they_name(call):
    words = ["--head", "iqn", "--head.kappa", "0.5", "--no-double-q", "--optimiser.learning-rate", "1e-4"]
    shown = json.loads(call("train", "ndqfn-dpe", "--env", "Acrobot-v1", *words, "--show")[1])
    assert (shown["preset"], shown["env"]["id"], shown["double_q"]) == ("ndqfn-dpe", "Acrobot-v1", False)
    assert (shown["head"]["kind"], shown["head"]["kappa"]) == ("iqn", 0.5)
    assert (shown["optimiser"]["learning_rate"], shown["head"]["hidden"]) == (1e-4, CLASSIC["head"]["hidden"])


@pytest.mark.parametrize("words", [["--out", "../q2"], ["--out=../q2"], ["--out", "a..b"], ["--out", "./head.knots"]])
def test_a_value_with_dots_is_no_setting(words, call):
    assert call("train", *words, "--show") == call("train", "--show")


def test_a_file_of_settings_may_lie_in_another_directory(call, tmp_path, monkeypatch):
    (tmp_path / "c.yaml").write_text("gamma: 0.5")
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    code, out, err = call("train", "--config", "../c.yaml", "--show")
    assert (code, err, json.loads(out)["gamma"]) == (0, "", 0.5)


@pytest.mark.parametrize("words", [["--replay.kind", "prioritized"], ["--replay.kind=prioritized"]])
def test_a_kind_may_be_named_as_in_a_file(words, call):
    shown = call("train", *words, "--replay.alpha", "0.5", "--show")
    assert shown == call("train", "--replay", "prioritized", "--replay.alpha", "0.5", "--show")
    replay = json.loads(shown[1])["replay"]
    warmup = {"warmup_steps": CLASSIC["steps"] // 10}
    assert replay.items() >= (CLASSIC["replay"] | warmup | {"kind": "prioritized", "alpha": 0.5}).items()


def test_flags_override_the_file_which_overrides_the_profile_which_overrides_the_preset(call, tmp_path):
    file = {"preset": "iqn-star", "env": {"id": "Acrobot-v1"}, "n_step": 2, "head": {"kind": "iqn", "kappa": 2}}
    (tmp_path / "file.yaml").write_text(json.dumps(file | {"update": {"batch_size": 5, "every_steps": 6}}))
    shown = json.loads(call("train", "--config", "file.yaml", "--update.batch-size", "7", "--show")[1])
    assert (shown["preset"], shown["env"]["id"], shown["n_step"]) == ("iqn-star", "Acrobot-v1", 2)
    assert shown["update"] == CLASSIC["update"] | {"batch_size": 7, "every_steps": 6}
    assert (shown["head"]["kappa"], shown["head"]["online_fractions"]) == (2.0, 32)
    assert shown["head"]["hidden"] == CLASSIC["head"]["hidden"]
    words = ["iqn", "--config=file.yaml", "--env", "CartPole-v1", "--profile", "atari", "--explorer", "dpe", "--show"]
    shown = json.loads(call("train", *words)[1])
    assert (shown["preset"], shown["profile"], shown["env"]["id"]) == ("iqn", "atari", "CartPole-v1")
    assert (shown["n_step"], shown["head"]["online_fractions"], shown["head"]["hidden"]) == (2, 64, 512)
    assert (shown["explorer"]["kind"], shown["update"]["sync_every_steps"]) == ("dpe", 8000)


def test_another_part_on_the_command_line_replaces_the_one_in_the_file(call, run_directory):
    words = ["--head", "iqn", "--explorer", "epsilon-greedy", "--show"]
    code, out, err = call("train", "--config", "run/config.json", *words)
    assert (code, err) == (0, "")
    assert (json.loads(out)["head"]["kind"], json.loads(out)["explorer"]) == ("iqn", {"kind": "epsilon-greedy"})


@pytest.mark.parametrize("words", [["--fly"], ["--steps", "many"]])
def test_errors_are_the_same_on_a_terminal(words, call, monkeypatch):
    """On a terminal the parser colours its error message, which must not break up ours."""
    plain = call("train", *words)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert call("train", *words) == plain


def test_errors_are_the_same_on_a_narrow_terminal(call, monkeypatch):
    plain = call("train", "--head.knotz", "5")
    monkeypatch.setenv("COLUMNS", "30")
    assert call("train", "--head.knotz", "5") == plain


TABLES = {
    "presets": PRESETS,
    "profiles": PROFILES,
    "heads": HEADS,
    "explorers": EXPLORERS,
    "torsos": TORSOS,
    "replays": REPLAYS,
    "envs": dict(list_envs()),
}


@pytest.mark.parametrize("table", TABLES)
def test_each_table_is_listed_with_descriptions_of_its_rows(table, call):
    code, out, err = call("list", table)
    assert (code, err) == (0, "")
    rows = [line.split(maxsplit=1) for line in out.splitlines()]
    assert [name for name, _ in rows] == list(TABLES[table])
    assert all(about for _, about in rows)
    assert len(rows) > 1


@pytest.mark.parametrize("words", [(), ("heads", "torsos")])
def test_a_list_of_nothing_or_of_two_tables_is_refused(words, refused):
    given = " ".join(words) or "nothing"
    assert refused("list", *words).startswith("monotau list takes one of: presets, profiles, heads,")
    assert refused("list", *words).endswith(f"given: {given}.")


def test_an_unknown_table_is_refused_with_the_nearest(refused):
    assert refused("list", "head").startswith("the table 'head' is unknown. Did you mean 'heads'")


@pytest.mark.parametrize("words", [["--help"], ["list", "presets"], ["list", "games"], ["list", "suites"]])
def test_help_and_lists_import_no_torch(words):
    code = f"import sys; from monotau.cli import main; main({words!r}); print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "False"


def test_an_evaluation_prints_the_returns_as_json(call, run_directory):
    code, out, err = call("evaluate", "run", "--episodes", "2")
    assert (code, err) == (0, "")
    line = json.loads(out)
    assert line.keys() >= {"return_mean", "return_std", "length_mean"}
    assert line["episodes"] == 2
    assert line["return_min"] <= line["return_mean"] == line["length_mean"] <= line["return_max"]
    assert call("evaluate", "run/agent", "--episodes", "2") == (0, out, "")


def test_an_evaluation_takes_the_last_the_best_or_an_unfinished_run_s_agent(call, refused, tmp_path):
    assert call("train", *SMALL_FLAGS, "--out", "run")[0] == 0
    shutil.rmtree(tmp_path / "run" / "agent")
    code, out, err = call("evaluate", "run", "--episodes", "2")
    assert (code, err) == (0, "the run in run has not finished; using its checkpoint 00000001\n")
    assert call("evaluate", "run", "--best", "--episodes", "2") == (0, out, "")  # the run has a single evaluation
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert refused("evaluate", "run") == "there is no agent in run: it has no checkpoint yet."
    shutil.rmtree(tmp_path / "run" / "best_agent")
    message = "there is no best agent in run: a run writes best_agent at its first evaluation."
    assert refused("evaluate", "run", "--best") == message


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ([], "run/agent.onnx"),
        (["--format", "torch", "--best", "--risk", "wang"], "run/best_agent.pt2"),
        pytest.param(["--out", "x.onnx", "--alpha", "0.5"], "x.onnx", marks=pytest.mark.slow),
    ],
)
def test_an_export_prints_the_name_of_the_file(words, name, call, run_directory, tmp_path):
    shutil.copytree(run_directory / "agent", run_directory / "best_agent")
    assert call("export", "run", *words) == (0, f"{name}\n", "")
    assert (tmp_path / name).stat().st_size > 1000


def test_an_evaluation_of_no_episodes_is_refused(refused, run_directory):
    assert refused("evaluate", "run", "--episodes", "0") == "--episodes is 0, but must be at least 1."


def test_an_environment_of_your_own_is_evaluated_when_you_name_it(call, refused, faulty_world, tmp_path):
    """The id makes Gymnasium import a module, so it must come from the user and not from a file."""
    Agent("faulty_world:Faulty-v0", **SMALL).save(tmp_path / "agent")
    message = "the environment faulty_world:Faulty-v0 of the agent in agent must be named: pass --env ID or --import"
    assert refused("evaluate", "agent").startswith(message)
    code, out, err = call("evaluate", "agent", "--env", "faulty_world:Faulty-v0", "--episodes", "2")
    assert (code, err, json.loads(out)["return_mean"]) == (0, "", 5.0)


def test_an_agent_that_was_edited_is_refused(refused, run_directory):
    (run_directory / "agent" / "agent.json").write_text("{}")
    assert "agent.json: the format is None, but must be 3." in refused("evaluate", "run")


def documented(config):
    """Return the docstring of each field of nested settings, read from the source, including those of base classes."""
    texts = []
    for layer in filter(is_dataclass, type(config).__mro__):
        (body,) = ast.parse(inspect.getsource(layer)).body
        texts += [part.value.value for part in body.body[1:] if isinstance(part, ast.Expr)]
    for field in fields(config):
        if is_dataclass(getattr(config, field.name)):
            texts += documented(getattr(config, field.name))
    return texts


def helptext(call, monkeypatch, *words):
    monkeypatch.setenv("COLUMNS", "100")  # a single column of boxes
    code, out, err = call(*words, "--help")
    assert (code, err) == (0, "")
    return " ".join(re.sub(r"[─│╭╮╰╯]+|-{5,}", " ", out).split())


def test_the_help_of_train_explains_every_setting(call, monkeypatch):
    text = helptext(call, monkeypatch, "train")
    explained = {" ".join(given.split()) for given in documented(command._Train(settings=small_run().config))}
    assert len(explained) > 50
    of_env = {given for given in explained if given.startswith("Gymnasium id; ")}  # whose flag is --env itself
    assert {given for given in explained if given not in text} == of_env
    assert "--head.knots INT" in text
    assert "A run records which of the two it was. (default: auto)" in text
    assert "Train an agent into a run directory." in text


def test_the_help_shows_the_settings_of_the_chosen_part(call, monkeypatch):
    text = helptext(call, monkeypatch, "train", "iqn", "--explorer", "dpe")
    assert "--head.action-fractions INT" in text
    assert "--explorer.predictor-fraction FLOAT" in text
    assert "--head.knots" not in text


def test_the_other_commands_explain_themselves(call, monkeypatch):
    text = helptext(call, monkeypatch, "evaluate")
    assert "A run directory, or one that Agent.save wrote." in text
    assert "--episodes INT Episodes to play." in text
    assert "List what can be named on the command line." in helptext(call, monkeypatch, "list")


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"]])
def test_without_a_command_the_commands_are_shown(words, call):
    code, out, err = call(*words)
    assert (code, err) == (0, "")
    assert all(f"\n  monotau {command} " in out for command in ("train", "evaluate", "list"))


def test_an_interrupt_prints_one_line(call, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "train_into", interrupted)
    assert call("train") == (130, "", "error: interrupted\n")


def test_divergence_prints_one_line_and_has_its_own_exit_code(call, monkeypatch):
    def diverged(*_, **__):
        raise Divergence("the loss is nan")

    monkeypatch.setattr(command, "train_into", diverged)
    assert call("train") == (3, "", "error: the loss is nan\n")


def test_a_message_of_many_lines_becomes_one(call, monkeypatch):
    def broken(*_, **__):
        raise ConfigError("a [bold]wild[/]\n  message")

    monkeypatch.setattr(command, "train_into", broken)
    assert call("train") == (2, "", "error: a [bold]wild[/] message\n")


FAULTY = '''
import gymnasium as gym
import numpy as np

class Faulty(gym.Env):
    """Breaks in its 30th step, after the first evaluation."""

    observation_space = gym.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, fault="none"):
        self.fault, self.total = fault, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.total += 1
        broken = self.total == 30
        observation = np.zeros(2, np.float32)
        if broken and self.fault in ("nan observation", "inf observation"):
            observation[1] = float(self.fault[:3])
        reward = float(self.fault[:3]) if broken and self.fault.endswith("reward") else 1.0
        return observation, reward, self.total % 5 == 0, False, {}

gym.register("Faulty-v0", entry_point=Faulty)
'''


@pytest.fixture
def faulty_world(tmp_path, monkeypatch):
    """An importable module with an environment that breaks."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "faulty_world.py").write_text(FAULTY)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    yield
    gym.registry.pop("Faulty-v0", None)
    sys.modules.pop("faulty_world", None)


FAULTS = {
    "nan reward": "faulty_world:Faulty-v0, step 30: the environment returned the reward nan,",
    "inf reward": "faulty_world:Faulty-v0, step 30: the environment returned the reward inf,",
    "nan observation": "faulty_world:Faulty-v0, step 30: The observation contains nan,",
    "inf observation": "faulty_world:Faulty-v0, step 30: The observation contains inf,",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_environment_stops_the_run_with_one_line(fault, call, faulty_world, tmp_path):
    words = ["--env", "faulty_world:Faulty-v0", "--env.kwargs", "fault", fault, *SMALL_FLAGS, "--out", "run"]
    code, out, err = call("train", *words)
    assert code == 1
    assert one_line(err).startswith(FAULTS[fault])
    assert "for 100 steps, seed 0" in out
    assert "(there is no checkpoint yet)" in err
    written = {path.name for path in (tmp_path / "run").iterdir() if "tfevents" not in path.name}
    assert written == {".lock", "config.json", "metrics.jsonl", "provenance.json"}


def program(*words, cwd):
    command = [sys.executable, "-m", "monotau", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_the_program_ends_with_code_2_and_one_line(tmp_path):
    done = program("train", "--env", "CartPol-v1", "--steps", "5", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert one_line(done.stderr).startswith("env.id 'CartPol-v1' is unknown. Did you mean 'CartPole-v1'")
    assert list(tmp_path.iterdir()) == []


def test_the_program_lists_presets(tmp_path):
    done = program("list", "presets", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(PRESETS)


def test_a_flag_that_names_another_part_drops_the_file_s_settings_for_the_preset_s_part(tmp_path, capsys):
    file = tmp_path / "a.yaml"
    file.write_text("preset: rainbow\nhead: {atoms: 21, low: -5.0, high: 5.0}\nreplay: {alpha: 0.3}\n")
    main(["train", "--config", str(file), "--head", "qr", "--replay", "uniform", "--show"])
    shown = json.loads(capsys.readouterr().out)
    assert (shown["head"]["kind"], shown["replay"]["kind"]) == ("qr", "uniform")
    main(["train", "--config", str(file), "--show"])
    shown = json.loads(capsys.readouterr().out)
    assert (shown["head"]["atoms"], shown["replay"]["alpha"]) == (21, 0.3)


def test_schedules_follow_the_steps_that_a_flag_gives(call):
    shown = json.loads(call("train", "--steps", "100000", "--show")[1])
    assert (shown["epsilon"]["decay_steps"], shown["replay"]["warmup_steps"]) == (40_000, 10_000)
    shown = json.loads(call("train", "--steps=100000", "--epsilon.decay-steps", "4000", "--no-double-q", "--show")[1])
    assert (shown["epsilon"]["decay_steps"], shown["replay"]["warmup_steps"]) == (4_000, 10_000)
    assert shown["double_q"] is False


def test_settings_are_resolved_and_an_environment_is_made_once(call, monkeypatch):
    made = []
    real = EnvFactory.__init__
    monkeypatch.setattr(EnvFactory, "__init__", lambda self, *given: (made.append(given), real(self, *given))[1])
    call("train", "--env", "Acrobot-v1", "--steps", "100", "--show")
    assert len(made) == 1
    call("train", "--env", "Acrobot-v1", "--env.num-envs", "2", "--show")
    assert [config.num_envs for config, _ in made[1:]] == [1, 2]  # settings of the environment itself make it anew


def test_the_version_is_printed(call):
    assert call("--version") == (0, f"monotau {monotau.__version__}\n", "")


def test_a_misspelt_command_is_refused_with_the_nearest(refused):
    assert refused("trian").startswith("the command 'trian' is unknown. Did you mean 'train'?")


SIZED = """
import gymnasium as gym

class Sized(gym.Env):
    action_space = gym.spaces.Discrete(2)

    def __init__(self, size, mode="text", limit=0, scale=1.0):
        assert (mode, limit, scale) in (("text", 0, 1.0), (True, None, -0.5)), (mode, limit, scale)
        self.observation_space = gym.spaces.Discrete(size)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 0, 1.0, True, False, {}

gym.register("Sized-v0", Sized)
"""


@pytest.fixture
def sized(own_modules):
    own_modules("my_env", SIZED)
    yield "my_env:Sized-v0"
    gym.registry.pop("Sized-v0", None)


def test_an_environment_is_made_with_its_keyword_arguments_from_the_first(sized, capsys, tmp_path):
    call = command_caller(capsys, "train", "--env", sized, "--show")
    shown = json.loads(call("--env.kwargs", "size", "3")[1])
    assert shown["env"]["kwargs"] == {"size": 3}
    words = ["--env.kwargs", "size", "3", "mode", "true", "--seed", "1", "--env.kwargs=limit", "null", "scale", "-5e-1"]
    shown = json.loads(call(*words)[1])
    assert shown["env"]["kwargs"] == {"size": 3, "mode": True, "limit": None, "scale": -0.5}
    (tmp_path / "file.json").write_text(json.dumps(shown))
    assert json.loads(call("--config", "file.json")[1]) == shown
    assert json.loads(call("--config", "file.json", "--env.kwargs", "size", "4")[1])["env"]["kwargs"]["size"] == 4
    assert "--env.kwargs.size" not in call("--config", "file.json", "--help")[1]  # one option for all of them


KWARGS = [
    (["size"], "--env.kwargs takes names and values in turn, but got: size. See monotau train --help."),
    ([], "--env.kwargs takes names and values in turn, but got: nothing. See monotau train --help."),
    (["size", "3", "--env.kwargs", "size", "4"], "--env.kwargs sets 'size' more than once."),
    (["size", "{"], "--env.kwargs size is '{', which is not a value in YAML; text may need quotes."),
    (["size", "!!python/name:os.system"], "--env.kwargs size is '!!python/name:os.system', which is not a value in"),
    (["size", "[1]"], "env.kwargs.size is [1], but must be one of: bool, int, float, str, null."),
    (["a-b", "1"], "env.kwargs is {'a-b': 1}, but must be a mapping with identifiers as keys."),
    (["mode", "text"], "env.id 'my_env:Sized-v0' cannot be made: TypeError: "),
]


@pytest.mark.parametrize(("words", "message"), KWARGS, ids=[" ".join(words) or "nothing" for words, _ in KWARGS])
def test_invalid_keyword_arguments_are_refused(words, message, sized, refused):
    assert refused("train", "--env", sized, "--env.kwargs", *words).startswith(message)


@pytest.mark.parametrize(
    "words", [["train", "--env", "x", "--import"], ["train", "--import="], ["train", "--import", "--show"]]
)
def test_an_import_without_a_name_is_refused(words, refused):
    assert refused(*words) == "--import needs a value."


def test_the_console_script_finds_a_module_in_the_current_directory(tmp_path):
    (tmp_path / "my_env.py").write_text(SIZED)
    script = Path(sys.executable).with_name("monotau")
    words = ["train", "dqn", "--import", "my_env", "--env", "my_env:Sized-v0", "--env.kwargs", "size", "3", "--show"]
    done = subprocess.run([script, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["imports"] == ["my_env"]
