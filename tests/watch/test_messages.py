"""Requests of the page are bounded and validated, and moments arrive as they were packed."""

import io
import json
import struct

import numpy as np
import pytest
from PIL import Image

from monotau.distributions import Risk
from monotau.errors import ConfigError
from monotau.watch.messages import LONGEST_REQUEST, Request, pack_moment, png, read_request
from monotau.watch.scene import BINS, FRACTIONS, Player
from tests.support.watched import tiny_agent


@pytest.mark.parametrize(
    ("plain", "request_"),
    [
        ({"type": "play"}, Request("play")),
        ({"type": "speed", "value": 60}, Request("speed", 60)),
        ({"type": "epsilon", "value": 1}, Request("epsilon", 1.0)),
        ({"type": "epsilon", "value": 0.05}, Request("epsilon", 0.05)),
        ({"type": "seed", "value": 2**31 - 1}, Request("seed", 2**31 - 1)),
        ({"type": "risk", "kind": "cvar", "alpha": 0.3}, Request("risk", Risk("cvar", 0.3))),
        ({"type": "risk", "kind": "wang", "eta": -1}, Request("risk", Risk("wang", None, -1.0))),
        ({"type": "visible", "value": False}, Request("visible", False)),
        ({"type": "audit", "value": 12}, Request("audit", 12)),
    ],
)
def test_requests_are_read(plain, request_):
    assert read_request(json.dumps(plain)) == request_


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x" * (LONGEST_REQUEST + 1), "a request has 513 characters, but must have at most 512"),
        ("{", "is not JSON"),
        ("[" * 400, "is not JSON"),
        ("5", "has no type"),
        ('{"type": 5}', "has no type"),
        ('{"type": "eval"}', "is unknown"),
        ('{"type": "play", "value": 1}', "is unknown"),
        ('{"type": "speed"}', "is unknown"),
        ('{"type": "speed", "value": 61}', "the request speed has the value 61, but must be from 1 to 60"),
        ('{"type": "speed", "value": 1.5}', "the request speed has the value 1.5"),
        ('{"type": "speed", "value": true}', "the request speed has the value True"),
        ('{"type": "seed", "value": -1}', "but must be from 0 to 2147483647"),
        ('{"type": "epsilon", "value": NaN}', "the request epsilon has the value nan"),
        ('{"type": "epsilon", "value": "0"}', "the request epsilon has the value '0'"),
        ('{"type": "visible", "value": 1}', "is unknown"),
        ('{"type": "risk", "kind": "luck"}', "risk 'luck' is unknown"),
        ('{"type": "risk", "kind": "cvar", "alpha": 2}', "needs alpha in"),
        ('{"type": "risk", "kind": "cvar", "alpha": "x"}', "a parameter of the risk measure is 'x', but must be"),
        ('{"type": "risk", "kind": "wang", "eta": Infinity}', "a parameter of the risk measure is inf"),
        ('{"type": "risk", "kind": "cvar", "path": "/etc"}', "is unknown"),
    ],
)
def test_other_requests_are_refused(text, reason):
    with pytest.raises(ConfigError, match=reason):
        read_request(text)


def unpacked(data):
    (length,) = struct.unpack_from("<I", data)
    header = json.loads(data[4 : 4 + length])
    assert (4 + length) % 4 == 0
    count = header["rows"] * header["columns"]
    numbers = np.frombuffer(data, "<f4", count, 4 + length).reshape(header["rows"], header["columns"])
    return header, numbers, data[4 + length + 4 * count :]


def test_a_moment_is_packed_without_loss():
    player = Player(tiny_agent())
    moment = player.start(7)
    header, numbers, picture = unpacked(pack_moment(12, moment, 3.5))
    thought = moment.thought
    assert (header["at"], header["time"], header["seed"], header["step"]) == (12, 3.5, 7, 0)
    assert (header["action"], header["best"], header["fractions"]) == (thought.action, thought.best, FRACTIONS)
    assert header["start"]["interval"] == list(moment.start.interval)
    np.testing.assert_array_equal(numbers[:, :FRACTIONS], thought.quantiles)
    assert numbers[:, FRACTIONS : FRACTIONS + BINS].sum(axis=1) == pytest.approx([1, 1], abs=1e-5)
    columns = np.stack([thought.means, thought.cvars, thought.scores, thought.bonuses], axis=1)
    np.testing.assert_array_equal(numbers[:, -4:], columns)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(picture))), moment.picture)


def test_the_last_moment_has_no_predictions_and_a_missing_bonus_is_no_number():
    player = Player(tiny_agent(preset="ndqfn"))
    moment = player.start(0)
    assert np.isnan(unpacked(pack_moment(0, moment, 0.0))[1][:, -1]).all()
    while not moment.ended:
        moment = player.advance()
    header, numbers, _ = unpacked(pack_moment(0, moment, 0.0))
    assert header["ended"] == "terminated"
    assert "action" not in header
    assert numbers.size == 0


def test_pictures_are_small():
    assert len(png(np.zeros((400, 600, 3), np.uint8))) < 10_000
