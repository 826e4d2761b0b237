"""The commands `monotau watch` and `monotau video`."""

import importlib
import ipaddress
import os
import secrets
import socket
import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import MofNCompleteColumn, Progress

from monotau.agent import Agent
from monotau.config.command_line import IMPORTS
from monotau.config.imports import import_parts
from monotau.distributions import MEAN, RISKS, Risk
from monotau.errors import ConfigError, MissingExtra
from monotau.runs.process import stoppable
from monotau.watch.messages import FASTEST, SLOWEST
from monotau.watch.scene import Player
from monotau.watch.session import Session
from monotau.watch.source import Source
from monotau.watch.world import LARGEST_SEED

POLITENESS = 10
"""Added to the priority number of the process, so that a training on the same machine goes first."""


@dataclass(frozen=True, kw_only=True)
class WatchCommand:
    """Watch agents in the browser: they play, and show the return distribution of every action in every state.

    A run may be finished, interrupted or still training; newer checkpoints are loaded as they appear.
    """

    directories: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR...", help_behavior_hint="(required)")
    ]
    """Run directories, or some that Agent.save wrote; several are shown side by side."""
    best: bool = False
    """Use the agent as of the run's best evaluation instead of the last agent."""
    checkpoint: Annotated[int | None, tyro.conf.arg(metavar="STEP")] = None
    """Use the checkpoint of this step; a run keeps the last two."""
    env: Annotated[str | None, tyro.conf.arg(metavar="ID")] = None
    """Environment to play in; needed only for ids of the form 'package.module:Env-v0', which import your code."""
    imports: Annotated[tuple[str, ...], IMPORTS, tyro.conf.UseAppendAction] = ()
    """Module with parts or environments of your own that the agents need; can be repeated."""
    seed: int = 0
    """Seed of the first episode; each further episode takes the next one."""
    epsilon: Annotated[float | None, tyro.conf.arg(metavar="NUMBER")] = None
    """Probability of a random action; by default that of the run's evaluations."""
    speed: int = 20
    """Steps per second."""
    risk: Annotated[str, tyro.conf.arg(metavar=f"{{{','.join(RISKS)}}}")] = "mean"
    """Risk measure to act on; the page can change it."""
    alpha: Annotated[float | None, tyro.conf.arg(metavar="SHARE")] = None
    """Share of returns that --risk cvar or upper-cvar averages, in (0, 1]; by default 0.1."""
    eta: Annotated[float | None, tyro.conf.arg(metavar="NUMBER")] = None
    """Strength of --risk wang or power: negative avoids risk, positive seeks it; by default -0.75 and -2."""
    host: str = "127.0.0.1"
    """Address to listen on. Any other than this machine's own lets others watch and control, without encryption."""
    port: int = 0
    """Port to listen on; 0 takes a free one."""
    open: bool = True
    """Open the page in the browser, if this machine has a screen."""


@dataclass(frozen=True, kw_only=True)
class VideoCommand:
    """Film an agent: the environment beside the return distribution of every action, and print the name of the file."""

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """A run directory, or one that Agent.save wrote. An unfinished run is filmed at its last checkpoint."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """File to write; its ending decides the format: .mp4, .webm or .gif."""
    episodes: int = 1
    """Episodes to film."""
    seed: int = 0
    """Seed of the first episode; each further episode takes the next one."""
    best: bool = False
    """Use the agent as of the run's best evaluation instead of the last agent."""
    checkpoint: Annotated[int | None, tyro.conf.arg(metavar="STEP")] = None
    """Use the checkpoint of this step; a run keeps the last two."""
    env: Annotated[str | None, tyro.conf.arg(metavar="ID")] = None
    """Environment to play in; needed only for ids of the form 'package.module:Env-v0', which import your code."""
    imports: Annotated[tuple[str, ...], IMPORTS, tyro.conf.UseAppendAction] = ()
    """Module with parts or environments of your own that the agent needs; can be repeated."""
    epsilon: Annotated[float | None, tyro.conf.arg(metavar="NUMBER")] = None
    """Probability of a random action; by default that of the run's evaluations."""
    risk: Annotated[str, tyro.conf.arg(metavar=f"{{{','.join(RISKS)}}}")] = "mean"
    """Risk measure to act on."""
    alpha: Annotated[float | None, tyro.conf.arg(metavar="SHARE")] = None
    """Share of returns that --risk cvar or upper-cvar averages, in (0, 1]; by default 0.1."""
    eta: Annotated[float | None, tyro.conf.arg(metavar="NUMBER")] = None
    """Strength of --risk wang or power: negative avoids risk, positive seeks it; by default -0.75 and -2."""
    most_steps: int = 2_000
    """An episode is cut after this many steps."""
    every_steps: int = 1
    """Show every n-th step only."""
    speed: int = 20
    """Frames per second."""
    width: int = 960
    """Width in pixels."""


def watch(given: WatchCommand, console: Console) -> None:
    """Serve the page until Ctrl-C."""
    require("watch", "starlette", "uvicorn", "websockets")
    from monotau.watch.server import bound_socket, serve  # needs the extra

    if not given.directories:
        raise ConfigError("monotau watch needs at least one run directory.")
    if not SLOWEST <= given.speed <= FASTEST:
        raise ConfigError(f"--speed is {given.speed}, but must be from {SLOWEST} to {FASTEST} steps per second.")
    check_play(given.seed, given.epsilon)
    import_parts(*given.imports)
    risk = Risk(given.risk, given.alpha, given.eta)
    sources = [Source(path, given.best, given.checkpoint, given.env) for path in given.directories]
    prepare_process()
    os.nice(POLITENESS)
    bound = bound_socket(given.host, given.port)
    try:
        sessions = [
            Session(source, seed=given.seed, speed=given.speed, risk=risk, epsilon=given.epsilon) for source in sources
        ]
        for session in sessions:
            session.load()
    except BaseException:
        bound.close()
        raise
    token, port = secrets.token_urlsafe(24), bound.getsockname()[1]
    host = reachable(given.host)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}/?token={token}"

    def ready() -> None:
        if not is_loopback(given.host):
            say(f"warning: --host {given.host} lets everybody who has the address watch and control, unencrypted")
        for session in sessions:
            status = session.status()
            waiting = "no checkpoint yet; waiting" if status["state"] == "waiting" else None
            for note in filter(None, (status["picture_note"], waiting, risk_note(session.agent, risk))):
                say(f"{session.source.name}: {note}")
        console.print(f"watch at {escape(address)}", highlight=False, soft_wrap=True)
        console.print("Ctrl-C ends it", highlight=False)
        if given.open and has_screen():
            webbrowser.open(address)

    with stoppable():
        serve(sessions, bound, given.host, token, ready)


def video(given: VideoCommand, console: Console) -> None:
    """Film an agent and print where the film is."""
    if given.out.suffix.lower() != ".gif":
        require("video", "imageio_ffmpeg")
    from monotau.watch.video import NARROWEST, WIDEST, Canvas, check_path, film, frames_of, write_film

    check_path(given.out)
    check_play(given.seed, given.epsilon)
    import_parts(*given.imports)
    for name in ("episodes", "most_steps", "every_steps"):
        if getattr(given, name) < 1:
            raise ConfigError(f"--{name.replace('_', '-')} is {getattr(given, name)}, but must be at least 1.")
    if not SLOWEST <= given.speed <= FASTEST:
        raise ConfigError(f"--speed is {given.speed}, but must be from {SLOWEST} to {FASTEST} frames per second.")
    if not NARROWEST <= given.width <= WIDEST:
        raise ConfigError(f"--width is {given.width}, but must be from {NARROWEST} to {WIDEST} pixels.")
    risk = Risk(given.risk, given.alpha, given.eta)
    source = Source(given.directory, given.best, given.checkpoint, given.env)
    prepare_process()
    agent = source.newer_agent()
    if agent is None:
        raise ConfigError(f"there is no agent in {given.directory}: the run has not saved a checkpoint yet.")
    if note := risk_note(agent, risk):
        say(note)
    player = Player(agent, epsilon=given.epsilon, risk=risk)
    screen = Console(stderr=True)
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with stoppable(), Progress(*columns, console=screen, disable=not screen.is_terminal) as bar:
        playing = bar.add_task("playing", total=None)
        takes = film(
            player,
            episodes=given.episodes,
            seed=given.seed,
            most_steps=given.most_steps,
            every_steps=given.every_steps,
            report=lambda done, total: bar.update(playing, completed=done),
        )
        bar.update(playing, total=bar.tasks[playing].completed)
        player.close()
        drawing = bar.add_task("drawing", total=len(takes))
        title = f"{agent.config.preset} on {agent.config.env.title}" + (f", {risk.kind}" if risk != MEAN else "")
        canvas = Canvas(takes, player.action_names, title, risk, given.width)
        frames = frames_of(canvas, takes, given.speed, lambda done, total: bar.update(drawing, completed=done))
        write_film(given.out, frames, given.speed, canvas.samples(), canvas.thin_colours())
    if player.world.picture_note:
        say(f"{player.world.picture_note}: only its distributions are shown")
    console.print(str(given.out), markup=False, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """Print a line on standard error."""
    Console(stderr=True).print(escape(text), highlight=False, soft_wrap=True)


def require(extra: str, *modules: str) -> None:
    """Raise MissingExtra, in one line, if a module of an extra is not installed."""
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise MissingExtra(
                f"monotau {extra} needs {module}, which cannot be imported ({error}); pip install 'monotau[{extra}]'"
            ) from error


def check_play(seed: int, epsilon: float | None) -> None:
    """Raise for a seed or an epsilon that cannot be played with."""
    if not 0 <= seed <= LARGEST_SEED:
        raise ConfigError(f"--seed is {seed}, but must be from 0 to {LARGEST_SEED}.")
    if epsilon is not None and not 0 <= epsilon <= 1:
        raise ConfigError(f"--epsilon is {epsilon}, but must be from 0 to 1: it is a probability.")


def risk_note(agent: Agent | None, risk: Risk) -> str | None:
    """Return a warning if the agent has no distributions that a risk measure could distinguish."""
    if agent is None or risk.kind == MEAN.kind or agent.config.head.has_spread:
        return None
    return f"warning: --risk {risk.kind} acts like mean, because {agent.config.preset} learns mean returns only"


def reachable(host: str) -> str:
    """Return an address for the browser: a host, or one of this machine's addresses if the host stands for all."""
    try:
        given = ipaddress.ip_address(host)
    except ValueError:
        return host
    if not given.is_unspecified:
        return host
    family, remote, local = (
        (socket.AF_INET, "192.0.2.1", "127.0.0.1") if given.version == 4 else (socket.AF_INET6, "2001:db8::1", "::1")
    )
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((remote, 9))  # finds the network; a datagram socket sends nothing yet
            return str(probe.getsockname()[0])
    except OSError:  # there is no network
        return local


def prepare_process() -> None:
    """Take one thread, which is fastest for single states, and keep pygame from looking for a screen or a speaker."""
    torch.set_num_threads(1)
    for name in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        os.environ.setdefault(name, "dummy")


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def has_screen() -> bool:
    """Whether a browser would open in a window, instead of in this terminal."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
