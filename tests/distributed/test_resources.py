"""Resource requests of runs: which nodes have room for them, and which shares are possible."""

import pytest

from monotau.distributed.resources import Request, check_room, check_share
from monotau.errors import ConfigError


def node(name: str, alive: bool = True, **resources: float) -> dict[str, object]:
    return {"NodeManagerAddress": name, "Alive": alive, "Resources": resources}


def test_a_request_must_fit_into_one_node():
    nodes = [node("n1", CPU=8.0, memory=9e9), node("n2", CPU=2.0, GPU=1.0, memory=4e9), node("n3", False, CPU=64.0)]
    check_room([Request(8.0, 0.0, 9_000_000_000), Request(1.0, 0.5, 0)], nodes)
    message = "requests 4 CPUs, 1 GPU and 1.0 GB, but no node has that; the largest, n2, has 2 CPUs, 1 GPU and 4.0 GB"
    with pytest.raises(ConfigError, match=message):
        check_room([Request(1.0, 0.0, 0), Request(4.0, 1.0, 1_000_000_000)], nodes)
    with pytest.raises(ConfigError, match="--force if the cluster scales on demand"):
        check_room([Request(9.0, 0.0, 0)], nodes)
    with pytest.raises(ConfigError, match="no node has that; the largest, none, has 0 CPUs"):
        check_room([Request(1.0, 0.0, 0)], [])


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), 1.5, 0.00001])
def test_impossible_resource_shares_are_refused(value):
    with pytest.raises(
        ConfigError, match=r"--gpus-per-run is .* but must be 0, a fraction from 0.0001 to 1, or a whole"
    ):
        check_share("--gpus-per-run", value, 0.0)


def test_possible_resource_shares_are_accepted():
    for value in (0.0, 0.0001, 0.25, 1.0, 8.0):
        check_share("--gpus-per-run", value, 0.0)
    with pytest.raises(ConfigError, match="--cpus-per-run is 0, but must be a fraction"):
        check_share("--cpus-per-run", 0.0, 0.0001)
