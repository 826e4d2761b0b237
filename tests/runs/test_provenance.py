"""The provenance record of a run: versions, commit and processor of every start."""

import json
import subprocess
from importlib.metadata import version

import pytest
import torch

from monotau.runs import provenance
from monotau.runs.provenance import commit, describe, processor, record_start, was_compiled

CPU = torch.device("cpu")


def test_every_start_is_recorded_and_earlier_records_stay(tmp_path):
    assert was_compiled(tmp_path) is None
    record_start(tmp_path, 0, CPU, compiled=True)
    assert was_compiled(tmp_path) is True
    record_start(tmp_path, 400, CPU, compiled=False)
    assert was_compiled(tmp_path) is False
    starts = json.loads((tmp_path / "provenance.json").read_text())["starts"]
    assert [start["step"] for start in starts] == [0, 400]
    assert starts[0]["packages"]["torch"] == version("torch")
    assert starts[0]["cores"] >= 1
    assert starts[0]["device"] == "cpu"
    assert starts[1]["time"] >= starts[0]["time"]


def test_packages_that_are_not_installed_are_left_out(monkeypatch):
    monkeypatch.setattr(provenance, "PACKAGES", ("numpy", "no-such-package"))
    assert [*describe(CPU)["packages"]] == ["numpy"]


@pytest.mark.parametrize("held", ['{"starts": 3}', '{"starts": [1, {"step": 7}]}', "{}"])
def test_a_malformed_provenance_record_keeps_only_its_valid_starts(tmp_path, held):
    (tmp_path / "provenance.json").write_text(held)
    assert was_compiled(tmp_path) is None
    record_start(tmp_path, 9, CPU, compiled=False)
    starts = json.loads((tmp_path / "provenance.json").read_text())["starts"]
    assert [start["step"] for start in starts] == ([7, 9] if "7" in held else [9])


def test_the_commit_of_a_checkout_is_recorded_and_marked_if_files_differ(tmp_path):
    source = tmp_path / "src" / "monotau" / "provenance.py"
    source.parent.mkdir(parents=True)
    source.write_text("one")
    assert commit(source) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    clean = commit(source)
    assert clean is not None
    assert len(clean) == 40
    source.write_text("two")
    assert commit(source) == clean + "+"


def test_without_git_there_is_no_commit(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    source = tmp_path / "src" / "monotau" / "provenance.py"
    monkeypatch.setenv("PATH", "")
    assert commit(source) is None


def test_python_names_the_processor_if_no_file_does(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance.platform, "processor", lambda: "an abacus")
    assert processor(tmp_path / "cpuinfo") == "an abacus"
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A Slide Rule: 9\n")
    assert processor(tmp_path / "cpuinfo") == "A Slide Rule: 9"
