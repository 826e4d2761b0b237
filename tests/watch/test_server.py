"""The server answers only to its own page, on this machine, and never waits for a slow one."""

import asyncio
import http.client
import json
import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest
import uvicorn
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from monotau.errors import ConfigError
from monotau.watch import server as module
from monotau.watch.server import Guard, application, bound_socket, page, serve
from monotau.watch.session import Session
from monotau.watch.source import Source
from tests.support.watched import tiny_agent

TOKEN = "a-token"  # noqa: S105


@contextmanager
def running(directory, speed=60):
    """Serve an agent from a thread of this process, and return its session and port."""
    session = Session(Source(directory), speed=speed)
    session.load()
    bound = bound_socket("127.0.0.1", 0)
    servers = []

    class Server(uvicorn.Server):
        def __init__(self, config):
            super().__init__(config)
            servers.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn, "Server", Server)
        patch.setattr("monotau.watch.session.END_SECONDS", 0.01)
        thread = threading.Thread(target=serve, args=([session], bound, "127.0.0.1", TOKEN))
        thread.start()
        try:
            deadline = time.monotonic() + 20
            while not (servers and servers[0].started):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            yield session, bound.getsockname()[1]
        finally:
            servers[0].should_exit = True
            thread.join(timeout=20)
            assert not thread.is_alive()
            assert not session._thread.is_alive()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    directory = tmp_path_factory.mktemp("agents") / "cartpole"
    tiny_agent().save(directory)
    return directory


@pytest.fixture(scope="module")
def served(saved):
    with running(saved) as (session, port):
        yield session, port


def get(port, path, host=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read().decode()
    connection.close()
    return found


def opened(port, path="/watch/0", token=TOKEN, origin=None, **settings):
    host = f"127.0.0.1:{port}"
    settings = {"origin": f"http://{host}" if origin is None else origin, "open_timeout": 10} | settings
    return connect(f"ws://{host}{path}?token={token}", **settings)


def moments(connection, count):
    """Receive until some moments have come, and say that each was drawn."""
    found = []
    while len(found) < count:
        message = connection.recv(timeout=10)
        if isinstance(message, bytes):
            found.append(json.loads(message[8 : 8 + int.from_bytes(message[4:8], "little")])["at"])
            connection.send(json.dumps({"type": "drawn", "value": found[-1]}))
    return found


def receive_on(connection, timeout):
    """Receive and throw away until the connection ends or nothing comes; no moment may come."""
    while True:
        assert isinstance(connection.recv(timeout=timeout), str)


def closing(connection):
    """Return how the server closes the connection."""
    with pytest.raises(ConnectionClosed) as closed:
        moments(connection, 10_000)
    return closed.value.rcvd


def test_the_page_is_complete_in_itself(served):
    status, headers, text = get(served[1], f"/?token={TOKEN}")
    assert status == 200
    assert "@" not in "".join(mark for mark in ("@nonce@", "@style@", "@script@", "@setup@") if mark in text)
    assert "https://" not in text
    assert text.replace("http://www.w3.org/2000/svg", "").count("http://") == 0  # the name of SVG, which is not loaded
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/", "/?token=", "/?token=b-token", f"/?token={TOKEN}&token={TOKEN}"])
def test_the_page_needs_the_token(served, path):
    status, _, text = get(served[1], path)
    assert (status, "<html" in text) == (403, False)
    assert "the token is missing or wrong" in text


@pytest.mark.parametrize("path", ["/page.js", "/watch/0", "/../../../../etc/passwd", "/%2e%2e/agent.json", "/static/x"])
def test_no_other_file_is_served(served, path):
    assert get(served[1], f"{path}?token={TOKEN}")[0] == 404


def test_another_host_is_refused(served):
    port = served[1]
    assert get(port, f"/?token={TOKEN}", f"localhost:{port}")[0] == 200
    for host in (f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", f"10.0.0.1:{port}"):
        status, _, text = get(port, f"/?token={TOKEN}", host)
        assert (status, text) == (403, "the Host is not this server\n")


@pytest.mark.parametrize(
    "settings",
    [{"token": "b-token"}, {"origin": "http://evil.example"}, {"origin": "null"}, {"path": "/watch/1"}],
)
def test_a_socket_needs_token_origin_and_run(served, settings):
    with pytest.raises(InvalidStatus, match="403"), opened(served[1], **settings):
        pass


def test_a_socket_without_an_origin_is_refused(served):
    port = served[1]
    with pytest.raises(InvalidStatus, match="403"), connect(f"ws://127.0.0.1:{port}/watch/0?token={TOKEN}"):
        pass


@pytest.mark.parametrize(
    ("host", "name", "allowed"),
    [
        ("0.0.0.0", "192.168.1.5", True),  # noqa: S104
        ("0.0.0.0", "rebound.example", False),  # noqa: S104
        ("::", "[fe80::1]", True),
        ("192.168.1.5", "192.168.1.5", True),
        ("192.168.1.5", "192.168.1.6", False),
    ],
)
def test_a_server_for_other_machines_is_reached_by_address_but_not_by_a_foreign_name(host, name, allowed):
    assert Guard(application([], TOKEN, "x", 80), TOKEN, host, 80)._is_here(f"{name}:80") is allowed


def test_other_protocols_are_refused():
    async def receive():
        raise AssertionError

    asyncio.run(Guard(application([], TOKEN, "x", 80), TOKEN, "127.0.0.1", 80)({"type": "lifespan"}, receive, receive))


def test_status_curves_points_and_moments_arrive(served):
    with opened(served[1]) as connection:
        status = json.loads(connection.recv(timeout=10))
        assert (status["type"], status["env"]) == ("status", "CartPole-v1")
        assert json.loads(connection.recv(timeout=10)) == {"type": "curves", "curves": {}}
        shown = moments(connection, 5)
        assert shown == sorted(set(shown))


def test_a_page_that_draws_slowly_gets_the_newest_moment(served):
    session, port = served
    with opened(port) as connection:
        first = moments(connection, 1)[0]
        while isinstance(message := connection.recv(timeout=10), str):
            assert json.loads(message)["type"] in ("points", "status", "curves")
        time.sleep(0.5)  # about thirty moments, none of which may be sent before this one was drawn
        with pytest.raises(TimeoutError):
            receive_on(connection, 0.1)
        now = session.newest.at
        connection.send(json.dumps({"type": "drawn", "value": 0}))
        newest = moments(connection, 1)[0]
        assert newest >= now > first + 2


def test_a_moment_of_the_past_can_be_looked_at(served):
    with opened(served[1]) as connection:
        shown = moments(connection, 3)
        connection.send(json.dumps({"type": "look", "value": shown[0]}))
        while not (isinstance(message := connection.recv(timeout=10), bytes) and message[:4] == b"LOOK"):
            pass
        assert json.loads(message[8 : 8 + int.from_bytes(message[4:8], "little")])["at"] == shown[0]
        connection.send(json.dumps({"type": "look", "value": 10**9}))
        while message != '{"type": "gone"}':
            message = connection.recv(timeout=10)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"type": "shutdown"}', "is unknown"),
        ("[]", "has no type"),
        ("x" * 600, "a request has 600 characters"),
        (b'{"type": "play"}', "the request is not text"),
    ],
)
def test_an_invalid_request_ends_the_connection(served, text, reason):
    with opened(served[1]) as connection:
        connection.send(text)
        end = closing(connection)
    assert end.code == 1008
    assert reason in end.reason


def test_a_huge_message_ends_the_connection(served):
    with opened(served[1]) as connection:
        connection.send("x" * 100_000)
        assert closing(connection).code == 1009


def test_a_flood_of_requests_ends_the_connection(served, monkeypatch):
    monkeypatch.setattr(module, "MOST_REQUESTS", 2)
    with opened(served[1]) as connection:
        with suppress(ConnectionClosed):  # the server may close before the last one is sent
            for _ in range(20):
                connection.send('{"type": "look", "value": 0}')
        assert "more than 2 requests in a second" in closing(connection).reason


def test_too_many_pages_are_refused(served, monkeypatch):
    monkeypatch.setattr(module, "MOST_VIEWERS", 0)
    with opened(served[1]) as connection:
        end = closing(connection)
    assert (end.code, end.reason) == (1013, "too many pages are open")


def test_a_page_that_receives_nothing_is_disconnected_and_forgotten(saved, monkeypatch):
    """The socket is open, but nobody reads from it; the messages are made large to fill its buffers quickly."""
    monkeypatch.setattr(module, "SEND_SECONDS", 0.2)
    monkeypatch.setattr(module, "IN_FLIGHT", 10_000)
    monkeypatch.setattr("monotau.watch.session.pack_moment", lambda *moment: b"\0\0\0\0" + bytes(2_000_000))
    with running(saved) as (session, port):
        key = "dGhlIHNhbXBsZSBub25jZQ=="
        lines = [
            f"GET /watch/0?token={TOKEN} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Origin: http://127.0.0.1:{port}",
            "Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13",
        ]  # fmt: skip
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            deadline = time.monotonic() + 20
            while not session._listeners:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            while session._listeners:  # it is forgotten although it never says anything
                assert time.monotonic() < deadline
                time.sleep(0.01)
        assert session._watching == {}


def test_a_taken_port_is_refused_in_one_line():
    taken = bound_socket("127.0.0.1", 0)
    taken.listen()
    port = taken.getsockname()[1]
    with pytest.raises(ConfigError, match=rf"--host 127\.0\.0\.1 --port {port} cannot be used: .*; --port 0 takes"):
        bound_socket("127.0.0.1", port)
    taken.close()
    with pytest.raises(ConfigError, match="--port 99999 cannot be used"):
        bound_socket("127.0.0.1", 99_999)
    with pytest.raises(ConfigError, match=r"--host no\.such\.host\.invalid --port 0 cannot be used"):
        bound_socket("no.such.host.invalid", 0)


def test_small_messages_are_sent_at_once():
    """asyncio switches the delay of small packets off for sockets whose protocol is TCP by name."""
    with bound_socket("127.0.0.1", 0) as bound:
        assert bound.proto == socket.IPPROTO_TCP


def test_names_of_runs_cannot_end_the_script():
    assert "</script><b>" not in page(TOKEN, ["</script><b>"], "n")
