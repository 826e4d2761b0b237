"""Checks of the nodes of a cluster before a suite starts: what they see, and how failures are reported."""

from pathlib import Path

import pytest
import ray
from ray.exceptions import NodeDiedError, RayTaskError

from monotau.distributed import nodes
from monotau.distributed.nodes import PACKAGES, View, _check_answer, check_nodes, check_view, view
from monotau.errors import ConfigError
from monotau.runs.process import locked


def answering(monkeypatch, error: Exception) -> None:
    def fail(_):
        raise error

    monkeypatch.setattr(ray, "get", fail)


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("No module named 'monotau'", r"^monotau is not installed on node n7: install it there as it is here\.$"),
        ("libtorch.so: cannot open", r"^node n7 cannot run monotau: .*libtorch.so: cannot open"),
    ],
)
def test_the_error_names_a_node_that_cannot_run_the_program(monkeypatch, reason, message):
    answering(monkeypatch, RayTaskError("view", f"Traceback\nImportError: {reason}", ImportError(reason)))
    with pytest.raises(ConfigError, match=message):
        _check_answer("n7", object(), Path("/data"), pytest.fail)


def test_a_node_lost_during_the_check_causes_a_warning(monkeypatch):
    answering(monkeypatch, NodeDiedError("gone"))
    said: list[str] = []
    _check_answer("n7", object(), Path("/data"), said.append)
    assert said == ["[yellow]warning:[/] node n7 was lost during the check (NodeDiedError)"]


@pytest.mark.usefixtures("local_ray")
def test_nodes_that_see_the_directory_pass_and_leave_nothing_behind(tmp_path):
    said: list[str] = []
    with locked(tmp_path):
        check_nodes(tmp_path, said.append)
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    assert [line for line in said if "warning" in line] == []
    check_nodes(tmp_path, said.append)
    assert "locks do not work across this storage" in said[-1]


@pytest.mark.usefixtures("local_ray")
def test_the_error_names_a_node_that_does_not_answer(tmp_path, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(nodes, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(nodes, "DEADLINE_SECONDS", 0.2)
    with pytest.raises(ConfigError, match=r"no answer within 0 seconds from node [\d.]+\."):
        check_nodes(tmp_path, said.append)
    assert "waiting for an answer from node" in said[0]
    assert list(tmp_path.iterdir()) == []


HERE = {package: nodes.version(package) for package in PACKAGES}


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        (View("No such file or directory: /data/.x", HERE, True), r"--out /data is not the same on node n7 \(No such"),
        (
            View("", HERE | {"torch": "1.0"}, True),
            r"node n7 has torch 1.0, but this machine has .*: versions must match",
        ),
        (View("", HERE | {"monotau": "9"}, True), "node n7 has monotau 9, but this machine has "),
    ],
)
def test_the_error_names_a_node_with_another_directory_or_other_versions(seen, message):
    with pytest.raises(ConfigError, match=message):
        check_view("n7", seen, Path("/data"), pytest.fail)


def test_a_node_reports_whether_it_sees_the_same_directory(tmp_path):
    (tmp_path / "token").write_text("ours")
    assert view(str(tmp_path), "token", "ours") == View("", HERE, False)
    assert view(str(tmp_path), "token", "theirs").problem == "a different directory with the same path"
    assert view(str(tmp_path / "no"), "token", "ours").problem.startswith("No such file or directory: ")
    assert [path.name for path in tmp_path.iterdir()] == ["token"]
