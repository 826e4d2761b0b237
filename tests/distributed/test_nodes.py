"""What is said of nodes that cannot answer."""

from pathlib import Path

import pytest
import ray
from ray.exceptions import NodeDiedError, RayTaskError

from monotau.distributed.nodes import _judge
from monotau.errors import ConfigError


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
def test_a_node_that_cannot_run_the_program_is_named(monkeypatch, reason, message):
    answering(monkeypatch, RayTaskError("view", f"Traceback\nImportError: {reason}", ImportError(reason)))
    with pytest.raises(ConfigError, match=message):
        _judge("n7", object(), Path("/data"), pytest.fail)


def test_a_node_that_is_lost_meanwhile_is_a_warning(monkeypatch):
    answering(monkeypatch, NodeDiedError("gone"))
    said: list[str] = []
    _judge("n7", object(), Path("/data"), said.append)
    assert said == ["[yellow]warning:[/] node n7 was lost while it was looked at (NodeDiedError)"]
