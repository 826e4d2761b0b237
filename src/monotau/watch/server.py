"""The server of `monotau watch`: one page and one socket for each run, for browsers that know the token.

It serves nothing but the page, to requests that name this server as their host, and sockets only to that page.
"""

import asyncio
import contextlib
import ipaddress
import itertools
import json
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import Any, final
from urllib.parse import parse_qs

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from monotau.errors import ConfigError
from monotau.watch.messages import LONGEST_REQUEST, read_request
from monotau.watch.session import Kept, Session

LOOPBACK = "127.0.0.1"
MOST_VIEWERS = 16
"""Sockets in all; more are refused."""
IN_FLIGHT = 1
"""Moments that may be on their way to a page; the next one, by then the newest, waits until the page has drawn it."""
SEND_SECONDS = 10.0
"""A page that takes longer to receive a message is disconnected."""
MOST_REQUESTS = 300
"""Requests per second of one page; one that sends more is disconnected."""
REFUSED, TOO_MANY = 1008, 1013
"""Codes of closed sockets."""


def page(token: str, runs: Sequence[str], nonce: str) -> str:
    """Return the page with its style and script inside, so that it asks for no other file."""
    home = files("monotau.watch") / "page"
    text, style, script = ((home / name).read_text("utf-8") for name in ("index.html", "page.css", "page.js"))
    setup = json.dumps({"token": token, "runs": list(runs)}).replace("<", "\\u003c")
    for mark, value in (("@nonce@", nonce), ("@style@", style), ("@script@", script), ("@setup@", setup)):
        text = text.replace(mark, value)
    return text


@final
class Guard:
    """Refuses requests without the token, with a foreign Host, or, for sockets, with a foreign Origin."""

    def __init__(self, app: ASGIApp, token: str, host: str, port: int) -> None:
        self._app, self._token, self._host, self._port = app, token, host, port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        reason = self._reason(scope)
        if not reason:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await PlainTextResponse(f"{reason}\n", 403)(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocket(scope, receive, send).close(REFUSED, reason)

    def _reason(self, scope: Scope) -> str:
        if scope["type"] not in ("http", "websocket"):
            return "this server does not speak that protocol"
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        hosts = [value.decode("latin-1") for value in headers.get(b"host", [])]
        if len(hosts) != 1 or not self._is_here(hosts[0]):
            return "the Host is not this server"
        origins = [value.decode("latin-1") for value in headers.get(b"origin", [])]
        if scope["type"] == "websocket" and origins != [f"http://{hosts[0]}"]:
            return "the Origin is not this page"
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])
        if len(given) != 1 or not secrets.compare_digest(given[0].encode(), self._token.encode()):
            return "the token is missing or wrong: open the address that monotau watch printed"
        return ""

    def _is_here(self, given: str) -> bool:
        """Whether a Host names this server; under a name that anybody could point here, a page of theirs could be."""
        name, _, port = given.rpartition(":")
        if port != str(self._port):
            return False
        if name in (LOOPBACK, "localhost", "[::1]", self._host, f"[{self._host}]", socket.gethostname()):
            return True
        try:  # bound to all addresses of the machine: any of them, but no name
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return self._host in ("0.0.0.0", "::")  # noqa: S104  # compared, not bound


def application(sessions: Sequence[Session], token: str, host: str, port: int) -> ASGIApp:
    """Return the application that serves these sessions."""
    numbers, viewers = itertools.count(), set[int]()
    names = [session.source.name for session in sessions]

    async def index(request: HttpRequest) -> Response:
        nonce = secrets.token_urlsafe(16)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
            "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        headers = {
            "Content-Security-Policy": policy,
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",  # the address has the token
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        return HTMLResponse(page(token, names, nonce), headers=headers)

    async def watch(socket: WebSocket) -> None:
        number = socket.path_params["run"]
        if not 0 <= number < len(sessions):
            await socket.close(REFUSED, "there is no such run")
            return
        if len(viewers) >= MOST_VIEWERS:
            await socket.accept()  # a page is told the reason only on an open socket
            await socket.close(TOO_MANY, "too many pages are open")
            return
        viewer = next(numbers)
        viewers.add(viewer)
        try:
            await socket.accept()
            await Viewer(viewer, sessions[number], socket).serve()
        finally:
            viewers.discard(viewer)

    routes = [Route("/", index, methods=["GET"]), WebSocketRoute("/watch/{run:int}", watch)]
    return Guard(Starlette(routes=routes), token, host, port)


@final
class Viewer:
    """One page that shows one session. It gets the newest moment whenever it has drawn an older one."""

    def __init__(self, number: int, session: Session, socket: WebSocket) -> None:
        self._number, self._session, self._socket = number, session, socket
        self._news = asyncio.Event()
        self._sent, self._drawn, self._last_point = 0, 0, -1
        self._looks: list[int] = []  # at most one: the place the page wants to look back at

    async def serve(self) -> None:
        """Send news and read requests until the page leaves."""
        loop = asyncio.get_running_loop()

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                loop.call_soon_threadsafe(self._news.set)

        self._session.join(self._number, notify)
        tasks = [asyncio.create_task(work) for work in (self._send_news(), self._read_requests())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except (WebSocketDisconnect, RuntimeError):  # starlette raises RuntimeError if it closed while sending
            pass
        except TimeoutError:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._socket.close(REFUSED, "the page is too slow"), 1)
        except ConfigError as error:
            with contextlib.suppress(Exception):
                await self._socket.close(REFUSED, str(error)[:100])
        finally:
            self._session.leave(self._number)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_news(self) -> None:
        status: dict[str, Any] | None = None
        curves: Any = None
        audit: Any = None
        shown: Kept | None = None
        self._news.set()
        while True:
            await self._news.wait()
            self._news.clear()
            session = self._session
            if (now := session.status()) != status:
                status = now
                await self._send(self._socket.send_text(json.dumps({"type": "status"} | now)))
            if session.curves is not curves:
                curves = session.curves
                await self._send(self._socket.send_text(json.dumps({"type": "curves", "curves": curves})))
            if session.audit is not audit:
                audit = session.audit
                await self._send(self._socket.send_text(json.dumps(audit)))
            if self._looks:
                past = session.moment(self._looks.pop())
                if past is None:
                    await self._send(self._socket.send_text(json.dumps({"type": "gone"})))
                else:
                    await self._send(self._socket.send_bytes(b"LOOK" + past.data))
            newest = session.newest
            if newest is not None and newest is not shown and self._sent - self._drawn < IN_FLIGHT:
                shown = newest
                points = session.points_since(self._last_point)
                self._last_point = max(self._last_point, newest.at)
                self._sent += 1
                await self._send(self._socket.send_text(json.dumps({"type": "points", "points": points})))
                await self._send(self._socket.send_bytes(b"LIVE" + newest.data))

    async def _send(self, sending: Awaitable[None]) -> None:
        await asyncio.wait_for(sending, SEND_SECONDS)

    async def _read_requests(self) -> None:
        second, count = 0, 0
        while True:
            request = read_request(await self._text())
            now = int(time.monotonic())
            second, count = now, count + 1 if now == second else 1
            if count > MOST_REQUESTS:
                raise ConfigError(f"more than {MOST_REQUESTS} requests in a second")
            if request.type == "drawn":
                self._drawn = min(self._drawn + 1, self._sent)
            elif request.type == "look":
                self._looks[:] = [request.value]
            else:
                self._session.handle(self._number, request)
            self._news.set()

    async def _text(self) -> str:
        """Receive a message; starlette's `receive_text` raises KeyError for one that is not text."""
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message["code"])
        if message.get("text") is None:
            raise ConfigError("the request is not text.")
        return str(message["text"])


def bound_socket(host: str, port: int) -> socket.socket:
    """Bind a socket, and raise ConfigError if that is impossible."""
    bound: socket.socket | None = None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # asyncio sends small messages at once only if the protocol is named; otherwise they may wait 40 ms for more.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen()  # from now on a browser waits instead of being refused
    except (OSError, OverflowError) as error:
        if bound is not None:
            bound.close()
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"--host {host} --port {port} cannot be used: {reason}; --port 0 takes a free one.") from None
    return bound


def serve(
    sessions: Sequence[Session],
    bound: socket.socket,
    host: str,
    token: str,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Play and serve until a signal comes."""
    port = bound.getsockname()[1]
    config = uvicorn.Config(
        application(sessions, token, host, port),
        log_level="error",
        access_log=False,
        lifespan="off",
        server_header=False,
        ws="websockets-sansio",
        ws_max_size=4 * LONGEST_REQUEST,  # a character has up to four bytes
        ws_ping_interval=5.0,
        ws_ping_timeout=10.0,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    for session in sessions:
        session.start()
    try:
        ready()
        server.run(sockets=[bound])
    finally:
        for session in sessions:
            session.stop()
        bound.close()
