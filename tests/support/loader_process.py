"""A process that loads untrusted files, measures the cost, and records any suspicious event that loading triggers.

It forks a child for every order after all imports are done, so that memory and time are those of loading alone. It
measures CPU seconds, because the machine may be busy with other work.
"""

import json
import os
import pickle
import resource
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from tests.support.hostile_files import Bomb
from tests.support.small_runs import SHORT, SMALL, silent, train_undrawn

ROOT = Path(__file__).parents[2]
LARGEST_SECONDS, LARGEST_MEGABYTES = 1.0, 100.0
LARGEST_DATA = 6 * 10**9

SETTINGS = SHORT | {"head": {"hidden": 8}, "replay": SHORT["replay"] | {"capacity_steps": 400}}


class LoaderProcess:
    """The test's side of the process: sends orders and receives their results."""

    def __init__(self, home: Path) -> None:
        self.agent, self.run = home / "agent", home / "run"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.loader_process", str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            cwd=ROOT,
        )
        assert self._answer() == {"ready": True}

    def ask(self, order: str, path: Path) -> dict[str, Any]:
        """Send an order; assert that it cost little and did nothing but read."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps([order, str(path)]) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if order != "control":
            assert answer["events"] == []
            assert answer["seconds"] < LARGEST_SECONDS, answer
            assert answer["megabytes"] < LARGEST_MEGABYTES, answer
        return answer

    def refusal(self, order: str, path: Path) -> str:
        """Send an order and assert that it is refused with one of our errors, in a single line."""
        answer = self.ask(order, path)
        assert answer["error"] in ("ConfigError", "DamagedFile", "StorageFault"), answer
        assert "\n" not in answer["message"]
        assert len(answer["message"]) < 1500
        message: str = answer["message"]
        return message

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the loader process has ended"
        return json.loads(line)

    def close(self) -> None:
        self._process.communicate()


KINDS = (
    "pickle.",
    "exec",
    "compile",
    "import",
    "subprocess.",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "socket.",
    "marshal.load",
    "ctypes.",
    "code.__new__",
    "cpython.run_",
)
"""Prefixes of the audit events by which data could execute code or reach the network."""

CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink", "os.chmod")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

events: list[str] = []
watching: set[str] = set()


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Record forbidden audit events while an order is being carried out."""
    if not watching:
        return
    changes = event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING)
    if event.startswith(KINDS) or (changes and "reading" in watching):
        events.append(f"{event} {str(arguments)[:150]}")


def measured(prepare: Any, order: str, path: Path) -> dict[str, Any]:
    """Carry out an order, in this process."""
    act = prepare(order, path)
    answer: dict[str, Any] = {}
    failure: Exception | None = None
    watching.update({"all", "reading"} if order in ("load", "state", "control") else {"all"})
    memory, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    try:
        answer["value"] = act()
    except Exception as error:  # any kind: the test decides which errors are acceptable
        failure = error
    answer["seconds"] = time.process_time() - start
    answer["megabytes"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
    watching.clear()
    if failure:  # formatted only after the measurement, because it reads source files
        trace = "".join(traceback.format_exception(failure))[-2000:]
        answer |= {"error": type(failure).__name__, "message": str(failure), "trace": trace}
    return answer | {"events": events}


def in_a_child(prepare: Any, order: str, path: Path) -> dict[str, Any]:
    """Carry out an order in a child process, which inherits all imports."""
    out, into = os.pipe()
    if not (child := os.fork()):
        try:
            # A successful attack must not take the whole machine down.
            resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
            resource.setrlimit(resource.RLIMIT_DATA, (LARGEST_DATA, LARGEST_DATA))
            answer = json.dumps(measured(prepare, order, path)).encode()
        except BaseException:
            answer = json.dumps({"error": "not one of ours", "message": traceback.format_exc()}).encode()
        with open(into, "wb") as file:
            file.write(answer)
        os._exit(0)
    os.close(into)
    with open(out, "rb") as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"error": "killed", "message": "", "events": [], "seconds": 30, "megabytes": 0}


def control() -> None:
    """Do everything that loading must never do."""
    import marshal
    import socket

    pickle.loads(pickle.dumps(Bomb()))  # noqa: S301
    exec(compile("1 + 1", "text", "exec"))  # noqa: S102
    marshal.loads(marshal.dumps(1))  # noqa: S302
    socket.socket().close()
    subprocess.run(["true"], check=True)  # noqa: S607
    import this_is_not_there  # noqa: F401


def serve(home: Path) -> None:
    """Make an agent and a run, then carry out orders until standard input ends."""
    import torch

    from monotau.agent import Agent
    from monotau.config.resolve import resolve
    from monotau.runs.checkpoint import Checkpoints
    from monotau.runs.layout import state_of
    from monotau.runs.metrics import Log
    from monotau.runs.progress import Display

    torch.set_num_threads(1)
    resolved = resolve("ndqfn-dpe", SMALL, SETTINGS)

    def prepare(order: str, path: Path) -> Any:
        if order == "load":
            return lambda: Agent.load(path).actions
        if order == "state":
            return lambda: state_of(path, resolved.config.to_plain())
        if order == "control":
            return control
        agent = Agent.of(resolved)
        training = agent.start_training(Log(), Display(silent()))
        checkpoints = Checkpoints(path, resolved.config)

        def resume() -> Any:
            warnings = checkpoints.find()
            checkpoints.restore(agent, training)
            training.log = Log(path, checkpoints.manifest.logs)  # type: ignore[union-attr]
            return [training.iteration, warnings]

        return resume

    train_undrawn(home / "run", resolved)
    Agent.of(resolved).save(home / "agent")
    for order, place in (("load", "agent"), ("state", "run"), ("resume", "run")):  # triggers late imports
        measured(prepare, order, home / place)
    sys.addaudithook(watch)
    print(json.dumps({"ready": True}), flush=True)  # noqa: T201
    for line in sys.stdin:
        order, path = json.loads(line)
        print(json.dumps(in_a_child(prepare, order, Path(path))), flush=True)  # noqa: T201


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
