"""The machine's resources: freed memory is kept for the next update."""

import platform
import subprocess
import sys
from types import SimpleNamespace

import pytest

from monotau import machine

UPDATES = """
import resource, sys
import torch
from benchmarks import update
from monotau.explorers import EpsilonGreedy
from monotau.networks.heads.ndqfn import Ndqfn
if sys.argv[1] == "default":
    update.keep_freed_memory = lambda: None
torch.set_num_threads(1)
job = update.updater(Ndqfn(), EpsilonGreedy(), "fp32", update.filled_ring(300))
for _ in range(4):
    job()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
job()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
without_cache = machine.keep_freed_memory.__wrapped__


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_updates_on_images_reuse_freed_memory():
    faults = {}
    for how in ("keep", "default"):
        words = [sys.executable, "-c", UPDATES, how]
        faults[how] = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert faults["keep"] < 200 < 2_000 < faults["default"]


def test_thresholds_are_set_and_a_refusal_is_reported(monkeypatch):
    asked = []

    def mallopt(parameter, value):
        asked.append((parameter, value))
        return int(parameter != machine.M_TRIM_THRESHOLD)

    monkeypatch.setattr(machine.sys, "platform", "linux")
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    assert without_cache() is False
    assert asked == [(-3, 64 * 2**20), (-1, 512 * 2**20)]


def test_systems_without_glibc_keep_their_allocator(monkeypatch):
    monkeypatch.setattr(machine.sys, "platform", "win32")
    assert without_cache() is False
    monkeypatch.setattr(machine.sys, "platform", "linux")
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: object())
    assert without_cache() is False
