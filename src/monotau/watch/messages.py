"""The messages between the page and the server: requests are bounded and validated, moments are packed into bytes."""

import io
import json
import math
import struct
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from PIL import Image

from monotau.distributions import Risk
from monotau.errors import ConfigError, brief
from monotau.watch.scene import FRACTIONS, Moment, densities
from monotau.watch.world import LARGEST_SEED

LONGEST_REQUEST = 512
"""Characters of a request; longer ones are refused."""
SLOWEST, FASTEST = 1, 60
"""Steps per second that can be asked for."""

Bare = Literal["play", "pause", "step", "next", "again"]
BARE = ("play", "pause", "step", "next", "again")
"""Requests without a value."""
NUMBERS: dict[str, tuple[type, float, float]] = {
    "speed": (int, SLOWEST, FASTEST),
    "seed": (int, 0, LARGEST_SEED),
    "epsilon": (float, 0.0, 1.0),
    "look": (int, 0, 2**53),
    "drawn": (int, 0, 2**53),
    "audit": (int, 0, 2**53),
}
"""Requests with a number: its type, and the smallest and largest that is allowed."""


@dataclass(frozen=True)
class Request:
    """What the page asks for."""

    type: str
    value: Any = None


def read_request(text: str) -> Request:
    """Read a request of the page, and raise ConfigError for anything that the page does not send."""
    if len(text) > LONGEST_REQUEST:
        raise ConfigError(f"a request has {len(text)} characters, but must have at most {LONGEST_REQUEST}.")
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError(f"the request {brief(text)} is not JSON.") from None
    if not isinstance(plain, dict) or not isinstance(plain.get("type"), str):
        raise ConfigError(f"the request {brief(plain)} has no type.")
    kind, fields = plain["type"], plain.keys() - {"type"}
    if kind in BARE and not fields:
        return Request(kind)
    if kind == "risk" and fields <= {"kind", "alpha", "eta"} and isinstance(plain.get("kind"), str):
        return Request(kind, Risk(plain["kind"], _real(plain.get("alpha")), _real(plain.get("eta"))))
    if kind == "visible" and fields == {"value"} and isinstance(plain["value"], bool):
        return Request(kind, plain["value"])
    if kind in NUMBERS and fields == {"value"}:
        number, (wanted, low, high) = plain["value"], NUMBERS[kind]
        suits = type(number) is int or (wanted is float and type(number) is float)
        if not suits or not low <= number <= high:
            raise ConfigError(f"the request {kind} has the value {brief(number)}, but must be from {low} to {high}.")
        return Request(kind, wanted(number))
    raise ConfigError(f"the request {brief(plain)} is unknown.")


def _real(number: Any) -> float | None:
    if number is None:
        return None
    if type(number) not in (int, float) or not math.isfinite(number):
        raise ConfigError(f"a parameter of the risk measure is {brief(number)}, but must be a number.")
    return float(number)


def pack_moment(at: int, moment: Moment, time: float) -> bytes:
    """Return a moment as bytes: the length of a JSON header, the header, numbers in float32, and a PNG picture.

    `at` is its place in the session and `time` when it was rendered, in seconds since 1970.
    """
    thought, low, high = moment.thought, 0.0, 0.0
    numbers = np.zeros((0, 0), np.float32)
    if thought is not None:
        low, high, masses = densities(thought.quantiles)
        bonuses = thought.bonuses if thought.bonuses is not None else np.full_like(thought.means, np.nan)
        columns = [thought.means, thought.cvars, thought.scores, bonuses]
        numbers = np.hstack([thought.quantiles, masses, *(column[:, None] for column in columns)])
    header: dict[str, Any] = {
        "at": at,
        "time": time,
        "seed": moment.seed,
        "step": moment.step,
        "reward": moment.reward,
        "score": moment.score,
        "discounted": moment.discounted,
        "expected": moment.expected,
        "start": {"mean": moment.start.mean, "interval": moment.start.interval},
        "below": moment.start.share_below(moment.expected),
        "ended": moment.ended,
        "rows": len(numbers),
        "fractions": FRACTIONS,
        "columns": numbers.shape[1],
        "low": low,
        "high": high,
    }
    if thought is not None:
        header |= {"action": thought.action, "best": thought.best, "alpha": thought.cvar_alpha}
        header["allowed"] = None if thought.allowed is None else [bool(allowed) for allowed in thought.allowed]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 4)  # the numbers after it must be aligned
    picture = b"" if moment.picture is None else png(moment.picture)
    return struct.pack("<I", len(text)) + text + numbers.astype("<f4").tobytes() + picture


def png(picture: np.ndarray) -> bytes:
    """Compress a picture without loss; quickly, because it only travels to the same machine."""
    out = io.BytesIO()
    Image.fromarray(picture).save(out, "PNG", compress_level=1)
    return out.getvalue()
