"""A process that loads what a stranger may send, and measures what that costs and what it sets off.

Each order is carried out in a child of its own, forked after all imports, so that memory and time are those of loading
alone. Seconds are those of the processor: the machine may be busy with other things.
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

ROOT = Path(__file__).parent.parent
LARGEST_SECONDS, LARGEST_MEGABYTES = 1.0, 100.0
LARGEST_DATA = 6 * 10**9

SETTINGS = {
    "steps": 240,
    "iteration_steps": 60,
    "log_every_steps": 25,
    "head": {"hidden": 8},
    "env": {"num_envs": 2},
    "replay": {"capacity_steps": 400, "warmup_steps": 20},
}


class Strangers:
    """The other end of the process: orders go in, what became of them comes out."""

    def __init__(self, home: Path) -> None:
        self.agent, self.run = home / "agent", home / "run"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.strangers", str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            cwd=ROOT,
        )
        assert self._answer() == {"ready": True}

    def ask(self, order: str, path: Path) -> dict[str, Any]:
        """Carry out an order; the answer must have come at little cost, and by doing nothing but reading."""
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
        """Carry out an order that must be refused, in one line and by an error of ours."""
        answer = self.ask(order, path)
        assert answer["error"] in ("ConfigError", "Damage", "StorageFault"), answer
        assert "\n" not in answer["message"]
        assert len(answer["message"]) < 1500
        message: str = answer["message"]
        return message

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the process has ended"
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
"""Beginnings of the names of events that would let data run, or talk."""

CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink", "os.chmod")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

events: list[str] = []
watching: set[str] = set()


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Note what must not happen while the order of now is carried out."""
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
    except Exception as error:  # of any kind: the other end says which will do
        failure = error
    answer["seconds"] = time.process_time() - start
    answer["megabytes"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
    watching.clear()
    if failure:  # written down only now, since Python looks at source code for it
        trace = "".join(traceback.format_exception(failure))[-2000:]
        answer |= {"error": type(failure).__name__, "message": str(failure), "trace": trace}
    return answer | {"events": events}


def in_a_child(prepare: Any, order: str, path: Path) -> dict[str, Any]:
    """Carry out an order in a child, which inherits what was imported."""
    out, into = os.pipe()
    if not (child := os.fork()):
        try:
            # So that what is found here does not take the machine with it.
            resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
            resource.setrlimit(resource.RLIMIT_DATA, (LARGEST_DATA, LARGEST_DATA))
            answer = json.dumps(measured(prepare, order, path)).encode()
        except BaseException:
            answer = json.dumps({"error": "none of ours", "message": traceback.format_exc()}).encode()
        with open(into, "wb") as file:
            file.write(answer)
        os._exit(0)
    os.close(into)
    with open(out, "rb") as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"error": "killed", "message": "", "events": [], "seconds": 30, "megabytes": 0}


class Bomb:
    """What a pickle may do."""

    def __reduce__(self) -> Any:
        return os.getcwd, ()


def control() -> None:
    """Do everything that must not be done."""
    import marshal
    import socket

    pickle.loads(pickle.dumps(Bomb()))  # noqa: S301
    exec(compile("1 + 1", "text", "exec"))  # noqa: S102
    marshal.loads(marshal.dumps(1))  # noqa: S302
    socket.socket().close()
    subprocess.run(["true"], check=True)  # noqa: S607
    import this_is_not_there  # noqa: F401


def serve(home: Path) -> None:
    """Make an agent and a run, and carry out orders until there are no more."""
    import torch

    from monotau.agent import Agent
    from monotau.config.presets import resolve
    from monotau.runs import runner
    from monotau.runs.checkpoint import Checkpoints
    from monotau.runs.metrics import Log
    from monotau.runs.progress import Display
    from tests.small_runs import SMALL, silent

    torch.set_num_threads(1)
    resolved = resolve("ndqfn-dpe", SMALL, SETTINGS)

    def prepare(order: str, path: Path) -> Any:
        if order == "load":
            return lambda: Agent.load(path).actions
        if order == "state":
            return lambda: runner.state_of(path, resolved.config)
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

    runner.train_into(home / "run", resolved, silent())
    Agent.of(resolved).save(home / "agent")
    for order, place in (("load", "agent"), ("state", "run"), ("resume", "run")):  # imports what is imported late
        measured(prepare, order, home / place)
    sys.addaudithook(watch)
    print(json.dumps({"ready": True}), flush=True)  # noqa: T201
    for line in sys.stdin:
        order, path = json.loads(line)
        print(json.dumps(in_a_child(prepare, order, Path(path))), flush=True)  # noqa: T201


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
