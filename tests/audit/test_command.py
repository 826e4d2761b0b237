"""`monotau audit`: what it writes, that it continues, what it refuses in one line, and its section of the report."""

import csv
import json
import re
import shutil
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from rich.console import Console

from monotau.agent import Agent
from monotau.audit import command, parts
from monotau.audit.page import Audited
from monotau.audit.parts import Part, pack, pairs_of, parts_of, read_part, run_parts, unpack
from monotau.audit.summary import summarise
from monotau.cli import main
from monotau.errors import ConfigError, EnvironmentFault, StorageFault
from monotau.report.comparison import RunComparison
from monotau.report.sections.audit import audit_sections, cell
from monotau.results.methods import read_methods
from tests.audit.test_snapshots import Uncopyable
from tests.audit.test_summary import ABOUT, pairs
from tests.support.commands import command_caller
from tests.support.runs import ignore
from tests.support.small_runs import SMALL, small_run, train_undrawn

COIN = "monotau/TwoStepCoin-v0"
PART = Part(
    agent="", env=None, weights="", index=0, states=1, rollouts=8, actions="all", seed=0, beyond_truncation=False
)
FEW = ("--states", "6", "--rollouts", "8", "--jobs", "1")


@pytest.fixture
def call(capsys):
    return command_caller(capsys, "audit")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two seeds of one method."""
    root = tmp_path_factory.mktemp("audit")
    for seed in (0, 1):
        train_undrawn(root / f"coin{seed}", small_run("iqn", COIN, steps=60, seed=seed))
    return root


@pytest.fixture(scope="module")
def audited(runs):
    out = runs / "out"
    main(["audit", str(runs / "coin0"), str(runs / "coin1"), "--out", str(out), *FEW])
    return out


def test_an_audit_writes_numbers_and_a_page(audited, runs):
    about = json.loads((audited / "audit.json").read_text())
    assert [(each["method"], each["env"], each["seed"]) for each in about["agents"]] == [
        ("iqn", COIN, 0),
        ("iqn", COIN, 1),
    ]
    assert about["agents"][0]["states"] == 6
    with (audited / "audit.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 6 * 2
    assert {row["action"] for row in rows} == {"0", "1"}
    mean = sum(float(row["bias"]) for row in rows[:12]) / 12
    assert about["agents"][0]["measures"]["bias"][0] == pytest.approx(mean)
    page = (audited / "index.html").read_text()
    for text in ("Errors by method", "Calibration and claims", "Worst actions", "iqn, seed 1"):
        assert text in page
    assert (audited / "figures" / "audit-histograms.svg").exists()
    assert "| iqn | monotau/TwoStepCoin-v0 | 2 |" in (audited / "table.md").read_text()
    own = json.loads((runs / "coin1" / "audit.json").read_text())
    assert own["agents"] == about["agents"][1:]


def test_a_repeated_command_repeats_nothing_and_gives_the_same_files(audited, runs, call, monkeypatch):
    before = {path: path.read_bytes() for path in audited.rglob("*") if path.is_file() and path.name != ".lock"}
    monkeypatch.setattr(parts, "audit_states", None)  # would raise if it were called
    code, out, err = call(runs / "coin0", runs / "coin1", "--out", audited, *FEW)
    assert (code, err) == (0, "")
    assert re.search(
        r"coin1: W1 \S+ above chance \(\S+ spreads\), calibration error \S+, \d+ % of 4 strong claims", out
    )
    assert {path: path.read_bytes() for path in before} == before


def test_an_interrupted_audit_continues(audited, runs, call, tmp_path, monkeypatch):
    out = tmp_path / "out"
    (out / "parts").mkdir(parents=True)
    kept, damaged, *_ = sorted((audited / "parts").iterdir())
    shutil.copy(kept, out / "parts")
    (out / "parts" / damaged.name).write_bytes(b"PK\x03\x04 nothing")
    (out / "parts" / "older.npz").write_bytes(b"")
    ran = []
    monkeypatch.setattr(
        command, "run_parts", lambda missing, *rest: (ran.extend(missing), run_parts(missing, *rest))[1]
    )
    assert call(runs / "coin0", runs / "coin1", "--out", out, *FEW)[0] == 0
    assert len(ran) == 3
    assert kept.name not in {part.name for part in ran}
    assert (out / "audit.json").read_text() == (audited / "audit.json").read_text()
    assert not (out / "parts" / "older.npz").exists()


def test_another_seed_gives_other_numbers(audited, runs, call, tmp_path):
    shutil.copytree(runs / "coin0", tmp_path / "coin0")
    assert call(tmp_path / "coin0", "--out", tmp_path / "out", *FEW, "--seed", "1")[0] == 0
    one, other = (json.loads((place / "audit.json").read_text())["agents"][0] for place in (audited, tmp_path / "out"))
    assert one["measures"] != other["measures"]


def test_without_out_the_run_holds_its_audit(tmp_path, call):
    agent = Agent(COIN, "c51", 0, **(SMALL | {"head": {"hidden": 8}}))
    agent.save(tmp_path / "saved")
    code, out, _ = call(tmp_path / "saved", *FEW, "--actions", "greedy")
    assert code == 0
    assert "no claims tested" in out
    assert (tmp_path / "saved" / "audit" / "index.html").exists()
    assert not (tmp_path / "saved" / "audit.json").exists()  # no run


def test_a_directory_that_is_given_twice_is_audited_once(runs, call, tmp_path):
    shutil.copytree(runs / "coin0", tmp_path / "coin0")
    few = ("--states", "1", "--rollouts", "8", "--jobs", "1")
    code, out, _ = call(tmp_path / "coin0", f"{tmp_path}/coin0/../coin0", *few)
    assert (code, out.count("W1 ")) == (0, 1)
    assert len(json.loads((tmp_path / "coin0" / "audit" / "audit.json").read_text())["agents"]) == 1


def test_captions_name_actions_as_people_do(call, tmp_path):
    Agent("FrozenLake-v1", "c51", 0, **(SMALL | {"head": {"hidden": 8}})).save(tmp_path)
    assert call(tmp_path, "--states", "1", "--rollouts", "8", "--jobs", "1")[0] == 0
    page = (tmp_path / "audit" / "index.html").read_text()
    assert re.search(r"in FrozenLake-v1: (left|down|right|up)( \(its choice\))? in step \d+ of an episode\.", page)


def test_returns_without_spread_are_no_unit(capsys, tmp_path):
    constant = [replace(pair, returns=np.zeros(32)) for pair in pairs(states=2)]
    command._print([Audited(summarise(ABOUT, constant, 0), ["left", "right"], {})], tmp_path, Console())
    assert re.match(r"runs/a: W1 \S+ above chance, calibration error ", capsys.readouterr().out)


def test_twins_are_named_by_their_directories(runs, call, tmp_path):
    for name in ("one", "other"):
        shutil.copytree(runs / "coin0", tmp_path / name)
    few = ("--states", "1", "--rollouts", "8", "--jobs", "1")
    assert call(tmp_path / "one", tmp_path / "other", "--out", tmp_path / "out", *few)[0] == 0
    agents = json.loads((tmp_path / "out" / "audit.json").read_text())["agents"]
    assert [each["method"] for each in agents] == ["iqn (one)", "iqn (other)"]
    assert agents[0]["measures"] == agents[1]["measures"]


def test_the_report_has_a_section_on_audited_runs(audited, runs):
    comparison = RunComparison(read_methods([runs / "coin0", runs / "coin1"]))
    (section,) = audit_sections(comparison, ignore)
    assert section.title == "Audit"
    assert [row[0] for row in section.tables[0].rows] == ["iqn, seed 0", "iqn, seed 1"]
    assert [picture.name for picture in section.pictures] == ["audit-calibration", "audit-histograms"]
    assert cell("refuted", None) == "-"


def test_a_damaged_audit_is_named_in_the_report(runs, tmp_path):
    shutil.copytree(runs / "coin0", tmp_path / "coin")
    (tmp_path / "coin" / "audit.json").write_text("{}")
    (section,) = audit_sections(RunComparison(read_methods([tmp_path / "coin"])), ignore)
    assert "Could not be read: " in section.text
    assert not section.tables
    (tmp_path / "coin" / "audit.json").unlink()
    assert audit_sections(RunComparison(read_methods([tmp_path / "coin"])), ignore) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no DIR is given"),
        (("nowhere",), "there is no agent in nowhere"),
        (("coin0", "--states", "0"), "--states is 0, but must be at least 1"),
        (("coin0", "--rollouts", "7"), "--rollouts is 7, but must be at least 8"),
        (("coin0", "--jobs", "0"), "--jobs is 0, but must be at least 1"),
        (("coin0", "--seed", "-1"), "--seed is -1, but must be at least 0"),
        (("coin0", "--states", "1000000"), "their product must be at most 10,000,000"),
        (("coin0", "coin1"), "--out is required with 2 directories"),
        (("coin0", "--out", "coin1"), "--out is coin1, which contains agent, no part of an audit"),
        (("coin0", "--out", "coin1/config.json"), "--out is coin1/config.json, which is not a directory"),
        (("coin0", "--env", "CartPole-v1"), f"--env is CartPole-v1, but the agent in coin0 was trained on {COIN}"),
        (("coin0", "--actions", "some"), "--actions"),
        (("means", "--out", "new"), "whose head learns mean returns only"),
        (("swapped", "--out", "new"), "was trained on monotau/TwoStepCoin-v0, but its run on CartPole-v1"),
        (("module", "--out", "new"), "must be named: pass --env ID or --import MODULE"),
        (("truncating", "--out", "new", *FEW), "use --beyond-truncation"),
        (("uncopyable", "--out", "new", *FEW), "Uncopyable-v0 cannot be restored from a snapshot"),
    ],
)
def test_bad_input_is_refused_in_one_line(words, message, runs, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("coin0", "coin1"):
        shutil.copytree(runs / name, tmp_path / name)
    if words and words[0] == "means":
        Agent(COIN, "dqn", **(SMALL | {"head": {"hidden": 8}})).save("means")
    if words and words[0] == "truncating":
        Agent("monotau/TimeLimit-v0", "ndqfn", **SMALL).save("truncating")
    if words and words[0] == "swapped":
        shutil.copytree("coin0", "swapped")
        config = json.loads((tmp_path / "swapped" / "config.json").read_text())
        (tmp_path / "swapped" / "config.json").write_text(
            json.dumps(config | {"env": config["env"] | {"id": "CartPole-v1"}})
        )
    if words and words[0] == "module":
        Agent(COIN, "ndqfn", **SMALL).save("module")
        path = tmp_path / "module" / "agent.json"
        path.write_text(path.read_text().replace(COIN, f"os:{COIN}"))
    gym.register("Uncopyable-v0", Uncopyable)
    try:
        if words and words[0] == "uncopyable":
            Agent("Uncopyable-v0", "ndqfn", **SMALL).save("uncopyable")
        code, out, err = call(*words)
    finally:
        del gym.registry["Uncopyable-v0"]
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert len(err.strip().splitlines()) == 1
    if message != "use --beyond-truncation":  # known only after the rollouts
        assert not (tmp_path / "new").exists()
        assert not (tmp_path / "coin0" / "audit").exists()


def test_an_environment_of_a_module_is_audited_if_the_user_names_it(runs, call, tmp_path):
    agent = tmp_path / "module"
    Agent(COIN, "ndqfn", **SMALL).save(agent)
    (agent / "agent.json").write_text((agent / "agent.json").read_text().replace(COIN, f"os:{COIN}"))
    assert call(agent, *FEW, "--env", COIN)[0] == 0


def test_a_directory_that_cannot_be_written_is_a_storage_fault(runs, call, tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command, "write_bytes", full)
    code, _, err = call(runs / "coin0", "--out", tmp_path / "out", *FEW)
    assert code == 4
    assert "cannot be written to: [Errno 28] No space left on device" in err
    with pytest.raises(StorageFault, match="is damaged although it was just written"):
        command._read(tmp_path, PART)


def test_states_are_split_into_parts_whose_names_say_what_they_hold(tmp_path):
    def some(**changes):
        options = {"rollouts": 8, "actions": "all", "seed": 0, "beyond_truncation": False}
        return parts_of(tmp_path, None, changes.pop("weights", "abc"), changes.pop("states", 10), **(options | changes))

    assert [part.states for part in some()] == [4, 4, 2]
    names = {part.name for changes in ({}, {"seed": 1}, {"rollouts": 9}, {"weights": "d"}) for part in some(**changes)}
    assert len(names) == 12
    assert [part.name for part in some(states=8)] == [part.name for part in some()][:2]


def test_parts_are_read_as_they_were_written(audited, tmp_path):
    path = sorted((audited / "parts").iterdir())[0]
    audits = unpack(path.read_bytes())
    again = unpack(pack(audits))
    assert [audit.returns.tolist() for audit in again] == [audit.returns.tolist() for audit in audits]
    assert pairs_of([audits, audits])[-1].episode == 2 * pairs_of([audits])[-1].episode + 1
    assert len(read_part(path, replace(PART, states=4))) == 4
    assert read_part(tmp_path / "none.npz", PART) is None
    (tmp_path / "short.npz").write_bytes(path.read_bytes()[:-200])
    assert read_part(tmp_path / "short.npz", PART) is None
    with pytest.raises(ValueError, match="not a part of an audit"):
        unpack(b"PK\x03\x04")


def test_a_part_without_its_environment_is_refused(tmp_path):
    Agent(COIN, "ndqfn", **SMALL).save(tmp_path)
    path = tmp_path / "agent.json"
    path.write_text(path.read_text().replace(COIN, f"os:{COIN}"))
    with pytest.raises(ConfigError, match=r"the environment of the agent in .* cannot be made"):
        parts.run_part(replace(PART, agent=str(tmp_path)))


class Broken:
    def __init__(self, *args, **kwargs):
        pass

    def submit(self, *args):
        raise parts.BrokenProcessPool("killed")

    def shutdown(self, **kwargs):
        pass


def test_a_killed_process_is_reported(monkeypatch):
    monkeypatch.setattr(parts, "ProcessPoolExecutor", Broken)
    with pytest.raises(EnvironmentFault, match="a process of the audit was killed; use fewer --jobs"):
        list(run_parts([PART, PART], jobs=2))


@pytest.mark.slow
def test_the_number_of_processes_does_not_matter(audited, runs, call, tmp_path):
    out = tmp_path / "out"
    assert call(runs / "coin0", runs / "coin1", "--out", out, *FEW[:-1], "2")[0] == 0
    assert (out / "audit.json").read_text() == (audited / "audit.json").read_text()
