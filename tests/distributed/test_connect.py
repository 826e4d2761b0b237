"""Connecting to Ray: failures are reported quickly and in one line, and leave nothing behind."""

import os
import signal
import socket
import sys
import time

import pytest

from monotau.distributed import connect
from monotau.distributed.connect import check_address, connected
from monotau.errors import ConfigError, MissingExtra


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def listening() -> socket.socket:
    """Return a server that accepts connections and never answers."""
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.1)
    return server


@pytest.mark.parametrize(
    "address", ["", "foo", "host:", ":6379", "host:0", "host:65536", "host:6379/x", "a b:6379", "http://host:6379"]
)
def test_an_invalid_address_is_refused(address):
    with pytest.raises(ConfigError, match=r"the Ray address is .* but must be 'local' .* 'auto' .* or 'host:port'"):
        check_address(address)


@pytest.mark.parametrize("address", ["local", "auto", "host:6379", "10.0.0.1:1", "[::1]:65535"])
def test_a_valid_address_is_accepted(address):
    check_address(address)


def test_ray_client_is_refused_however_it_is_named(monkeypatch):
    with (
        pytest.raises(ConfigError, match=r"'ray://h:10001', but Ray Client is not supported.*`ray job submit`"),
        connected("ray://h:10001"),
    ):
        pass
    monkeypatch.setenv("RAY_ADDRESS", "ray://other:10001")
    with pytest.raises(ConfigError, match="'ray://other:10001', but Ray Client is not supported"), connected("auto"):
        pass


def test_the_error_without_ray_names_the_missing_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'monotau\[cluster\]'"), connected("local"):
        pass


def test_a_closed_port_and_an_unknown_host_are_reported_at_once():
    with listening() as server:
        port = server.getsockname()[1]
    start = time.monotonic()
    with pytest.raises(ConfigError, match=rf"cannot reach the Ray address 127.0.0.1:{port}: Connection refused"):
        connected(f"127.0.0.1:{port}").__enter__()
    with pytest.raises(ConfigError, match=r"cannot reach the Ray address nobody.invalid:6379: "):
        connected("nobody.invalid:6379").__enter__()
    assert time.monotonic() - start < 10


def test_a_server_that_is_not_ray_is_reported_before_the_timeout(monkeypatch):
    monkeypatch.setattr(connect, "ANSWER_SECONDS", 3.0)
    with listening() as server, pytest.raises(ConfigError, match="did not answer as a Ray cluster within 3 seconds"):
        connected(f"127.0.0.1:{server.getsockname()[1]}").__enter__()


def test_all_connection_timeouts_together_are_short():
    assert connect.REACH_SECONDS + connect.ANSWER_SECONDS < 15


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        (
            "Version mismatch: The cluster was started with: Ray: 2.50.0 Python: 3.12.1 This process on node 1 was "
            "started with: Ray: 2.60.0 Python: 3.11.7",
            "has Ray 2.50.0 with Python 3.12.1, but this process has Ray 2.60.0 with Python 3.11.7: both must",
        ),
        ("RPC error: Unauthenticated", "requires an authentication token.*RAY_AUTH_MODE=token"),
        ("Could not find any running Ray instance.", "'auto', but no cluster runs on this machine and RAY_ADDRESS"),
        ("It is broken.", r"^cannot connect to Ray at h:1: It is broken\.$"),
    ],
)
def test_a_refusal_by_ray_becomes_one_line(monkeypatch, reason, message):
    monkeypatch.setattr(connect, "TRIAL", f"import sys; sys.exit('noise\\nREFUSED RuntimeError: {reason}')")
    monkeypatch.setattr(connect.socket, "create_connection", lambda *_: listening())
    with pytest.raises(ConfigError, match=message):
        connected("h:1").__enter__()


def test_an_aborted_connection_attempt_is_reported(monkeypatch):
    monkeypatch.setattr(connect, "TRIAL", "import os; os.abort()")
    monkeypatch.setenv("RAY_ADDRESS", "h:7")
    with pytest.raises(ConfigError, match=r"RAY_ADDRESS is h:7\): the attempt ended with code -6"):
        connected("auto").__enter__()


def test_a_missing_token_is_reported_while_ray_keeps_trying(monkeypatch):
    monkeypatch.setattr(connect, "ANSWER_SECONDS", 1.0)
    script = "import sys, time; print('Unauthenticated: RPC', file=sys.stderr, flush=True); time.sleep(60)"
    monkeypatch.setattr(connect, "TRIAL", script)
    with pytest.raises(ConfigError, match=r"at the Ray address auto requires an authentication token"):
        connected("auto").__enter__()


@pytest.mark.slow
def test_a_local_ray_starts_and_stops_with_the_block(capfd, monkeypatch):
    import ray

    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    before = signal.getsignal(signal.SIGTERM)
    with connected("local", cpus=3):
        assert ray.cluster_resources()["CPU"] == 3
        assert signal.getsignal(signal.SIGTERM) is before
        session = ray.get_runtime_context().get_node_id()
        with connected("local"):  # the same one, which is not left
            assert ray.get_runtime_context().get_node_id() == session
        assert ray.is_initialized()
    assert not ray.is_initialized()
    assert signal.getsignal(signal.SIGTERM) is before
    assert "RAY_USAGE_STATS_ENABLED" not in os.environ
    assert capfd.readouterr() == ("", "")
