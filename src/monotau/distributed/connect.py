"""Connects this process to Ray; a cluster that cannot be reached raises a one-line error within seconds."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any

from monotau.config.schema import LOCAL
from monotau.errors import ConfigError, MissingExtra, in_one_line
from monotau.machine import cores

"""The address that starts a private Ray instance."""

REACH_SECONDS = 3.0
"""Timeout for a TCP connection."""
ANSWER_SECONDS = 11.0
"""Timeout for a trial process to connect to Ray."""

TRIAL = """
import sys, ray
try:
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
except Exception as error:
    sys.exit(f"REFUSED {type(error).__name__}: {' '.join(str(error).split())}")
"""
"""Connects and exits. If nothing answers, ray.init waits for a minute and may end the process."""

ALLOWED = "'local' (a private Ray on this machine), 'auto' (this machine's cluster, or RAY_ADDRESS) or 'host:port'"


def require_ray() -> None:
    """Raise MissingExtra if Ray is not installed."""
    if find_spec("ray") is None:
        raise MissingExtra("Ray is not installed, but clusters and actors need it: pip install 'monotau[cluster]'.")


@contextmanager
def connected(address: str, cpus: int | None = None) -> Iterator[None]:
    """Connect to Ray for the block: to 'local', 'auto' or 'host:port'; `cpus` is for a private Ray.

    A process that is already connected stays connected.
    """
    check_address(address)
    require_ray()
    import ray

    if ray.is_initialized():
        yield
        return
    if address != LOCAL:
        _try(address)
    with _own_signals(), _quiet_start():
        try:
            ray.init(**_options(address, cpus))
        except Exception as error:
            ray.shutdown()
            raise ConfigError(f"cannot connect to Ray at {address!r}: {in_one_line(error)}.") from None
    try:
        yield
    finally:
        with _own_signals():
            ray.shutdown()


def cluster_nodes() -> list[dict[str, Any]]:
    """Return Ray's description of the nodes of the connected cluster."""
    import ray

    nodes: list[dict[str, Any]] = ray.nodes()
    return nodes


def _options(address: str, cpus: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
    if address == LOCAL:
        options |= {"num_cpus": cpus or cores(), "include_dashboard": False}
    return options


def check_address(address: str) -> None:
    """Raise ConfigError for an invalid address, without connecting to it."""
    meant = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    if meant.startswith("ray://"):
        raise ConfigError(
            f"the Ray address is {meant!r}, but Ray Client is not supported: run this on a node of the cluster with "
            "'auto', or with `ray job submit`."
        )
    if address in (LOCAL, "auto"):
        return
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]]+):(\d{1,5})", address)
    if not match or not 0 < int(match[2]) < 65_536:
        raise ConfigError(f"the Ray address is {address!r}, but must be {ALLOWED}.")


def _try(address: str) -> None:
    """Raise ConfigError if a trial process cannot connect to the cluster."""
    if address != "auto":
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()
        except OSError as error:
            reason = error.strerror or str(error) or "no answer"
            raise ConfigError(f"cannot reach the Ray address {address}: {reason}.") from None
    # The variables that `ray job submit` sets are meant for this process, not for the trial.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_JOB")}
    try:
        done = subprocess.run(  # noqa: S603  # our own arguments, without a shell
            [sys.executable, "-P", "-c", TRIAL, address],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
        )
    except subprocess.TimeoutExpired as timeout:
        if "Unauthenticated" in (timeout.stderr or b"").decode(errors="replace"):
            raise ConfigError(_why(address, "Unauthenticated")) from None
        raise ConfigError(
            f"the Ray address {_named(address)} did not answer as a Ray cluster within {ANSWER_SECONDS:.0f} seconds; "
            "run `ray status` on the head node to see whether it runs, and at which port."
        ) from None
    if done.returncode:
        refused = re.search(r"REFUSED \w+: (.*)", done.stderr)
        raise ConfigError(_why(address, refused[1] if refused else f"the attempt ended with code {done.returncode}"))


def _named(address: str) -> str:
    meant = os.environ.get("RAY_ADDRESS")
    return f"{address} (RAY_ADDRESS is {meant})" if address == "auto" and meant else address


def _why(address: str, reason: str) -> str:
    if versions := re.search(r"Ray: (\S+) Python: (\S+) .*Ray: (\S+) Python: (\S+)", reason):
        return (
            f"the cluster at the Ray address {_named(address)} has Ray {versions[1]} with Python {versions[2]}, but "
            f"this process has Ray {versions[3]} with Python {versions[4]}: both must be the same."
        )
    if "Unauthenticated" in reason or "Authentication" in reason:
        return (
            f"the cluster at the Ray address {_named(address)} requires an authentication token: set "
            "RAY_AUTH_MODE=token. Ray then reads RAY_AUTH_TOKEN, the file at RAY_AUTH_TOKEN_PATH, or "
            "~/.ray/auth_token, which `ray start` uses if it exists."
        )
    if "Could not find any running Ray" in reason:
        return "the Ray address is 'auto', but no cluster runs on this machine and RAY_ADDRESS is not set."
    return f"cannot connect to Ray at {_named(address)}: {reason[:300].rstrip('.')}."


@contextmanager
def _own_signals() -> Iterator[None]:
    """Restore the SIGTERM handler, which Ray replaces with its own."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        with suppress(ValueError):  # outside the main thread, where Ray replaces nothing
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _quiet_start() -> Iterator[None]:
    """Disable Ray's usage statistics and the notice about them, without changing the cluster's own settings."""
    before = os.environ.get("RAY_USAGE_STATS_ENABLED")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ["RAY_USAGE_STATS_ENABLED"]
        else:
            os.environ["RAY_USAGE_STATS_ENABLED"] = before
