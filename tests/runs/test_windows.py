"""monotau on Windows, as far as another system can show it: its types, and a run without what Windows lacks."""

import subprocess
import sys

import pytest

LACKING = """
import fcntl, os, signal, sys, types
import gymnasium, matplotlib.pyplot, numpy, rich.console, torch, tyro, yaml  # these must see the real system

def locking(descriptor, mode, count):
    assert (mode, count) == (msvcrt.LK_NBLCK, 1)
    assert os.lseek(descriptor, 0, os.SEEK_CUR) == 2**30
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

msvcrt = types.ModuleType("msvcrt")
msvcrt.LK_NBLCK, msvcrt.locking = 3, locking
sys.modules |= {"msvcrt": msvcrt, "fcntl": None, "resource": None}
for module, names in {
    os: ("sysconf", "sched_getaffinity", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_DIRECTORY"),
    signal: ("SIGHUP", "SIGKILL"),
}.items():
    for name in names:
        delattr(module, name)
sys.platform = "win32"
"""

TRAIN = """
from pathlib import Path
from monotau import Agent, ConfigError, train_agent
from monotau.runs.process import is_held, locked, stoppable

settings = dict(steps=100, evaluation={"episodes": 2}, verbose=False, replay={"warmup_steps": 50})
out = Path(sys.argv[1])
with stoppable():
    agent = train_agent("CartPole-v1", out, "dqn", **settings)
assert Agent.load(out).config.steps == 100
with locked(out):
    assert is_held(out)
    try:
        train_agent("CartPole-v1", out, "dqn", **(settings | {"steps": 200}))
    except ConfigError as error:
        assert "is training into the run directory" in str(error), error
    else:
        raise AssertionError("a locked directory was used")
assert not is_held(out)
print("trained, loaded and locked")
"""


def test_a_run_needs_nothing_that_windows_lacks(tmp_path):
    words = [sys.executable, "-c", LACKING + TRAIN, str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("trained, loaded and locked\n", 0), done.stderr


@pytest.mark.slow
def test_no_name_is_used_that_windows_lacks(tmp_path):
    words = [sys.executable, "-m", "mypy", "src", "--platform", "win32", "--cache-dir", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
