"""Trains into a run directory: idempotent, resumable, with evaluations, checkpoints and figures."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from monotau.agent import Agent, Hooks, OnLog
from monotau.config.resolve import Resolved, shortened_evaluation, usual_profile
from monotau.config.schema import LOCAL
from monotau.errors import ConfigError, Divergence, EnvironmentFault, StorageFault, brief
from monotau.learning.evaluate import Evaluation
from monotau.learning.hooks import hook_errors_unchanged
from monotau.learning.train import Training
from monotau.networks.devices import torch_threads
from monotau.runs.checkpoint import Checkpoints
from monotau.runs.diagnosis import diagnosis
from monotau.runs.extend import earlier_ends, extend, state_for
from monotau.runs.files import read_json, write_json
from monotau.runs.layout import (
    AGENT,
    BEST_AGENT,
    CONFIG,
    CONTENTS,
    DIAGNOSIS,
    METRICS,
    RESULT,
    directory_name,
)
from monotau.runs.memory import plan_memory
from monotau.runs.metrics import Line, Log, best_evaluation
from monotau.runs.process import Stopped, locked
from monotau.runs.progress import Display
from monotau.runs.provenance import record_start, was_compiled
from monotau.runs.trackers import TrackedRun, check_tracker, tracked

DrawFigures = Callable[[Path, Sequence[Line], Agent, Evaluation], None]
"""Draws the figures of a run into its directory, from its metrics, its agent and its last evaluation."""

NO_HOOKS = Hooks()


def default_directory(resolved: Resolved) -> Path:
    """Return the default run directory; its name includes a profile other than the default one."""
    config = resolved.config
    usual = config.profile == usual_profile(config.preset, resolved.envs.observation_spec)
    method = config.preset if usual else f"{config.preset}-{config.profile}"
    return Path("runs") / directory_name(method, config.env.title, config.seed)


@hook_errors_unchanged
def train_into(
    directory: Path,
    resolved: Resolved,
    console: Console,
    force: bool = False,
    ray: str = LOCAL,
    draw: DrawFigures | None = None,
    hooks: Hooks = NO_HOOKS,
    track: str | None = None,
) -> None:
    """Train as configured and leave everything in the directory.

    A finished run is only reported; if it had fewer steps, it goes on. An interrupted run resumes from its last
    checkpoint and ends as if it had never stopped. No other process can use the directory meanwhile. A run that needs
    more memory than the machine has is refused unless `force` is set. `draw` draws the figures of the run before its
    result is written, because a run with a result counts as finished; without it there are no figures. `track` names a
    tracker that receives the log.
    """
    config, display = resolved.config, Display(console)
    if track is not None:
        check_tracker(track)
    if state_for(directory, resolved) == "finished":
        display.say(
            f"[bold]{escape(str(directory))}[/] is finished already; use another --out or --seed to train again."
        )
    else:
        plan_memory(resolved, display.say, force=force, ray=ray)
        if shorter := shortened_evaluation(resolved):
            display.say(shorter)
        with _connected_to_ray(resolved, ray):
            agent = Agent.of(resolved)
            training = agent.start_training(Log(), display, ray)
            with _locked_directory(directory, resolved, display):
                _train(Checkpoints(directory, config), agent, training, directory, draw, hooks, track)
    _report(directory, display)


def _connected_to_ray(resolved: Resolved, ray: str) -> AbstractContextManager[None]:
    """Connect to Ray if there are actors, before anything is written; without actors do nothing."""
    if not resolved.config.actors:
        return nullcontext()
    from monotau.distributed.collector import connected_for_actors  # not needed without actors

    return connected_for_actors(resolved.config, resolved.envs, ray)


@contextmanager
def _locked_directory(directory: Path, resolved: Resolved, display: Display) -> Iterator[None]:
    """Lock the run directory for this process, write the settings into it, and extend a run that has fewer steps."""
    with ExitStack() as stack:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(directory))
            state = state_for(directory, resolved)
            if state == "new":
                write_json(directory / CONFIG, resolved.config.to_plain())
            elif state == "shorter":
                display.say(extend(directory, resolved))
        except OSError as error:
            raise ConfigError(f"the run directory {directory} cannot be written to: {error}.") from None
        yield


def _train(
    checkpoints: Checkpoints,
    agent: Agent,
    training: Training,
    directory: Path,
    draw: DrawFigures | None,
    hooks: Hooks,
    track: str | None,
) -> None:
    """Train to the end; if the run stops early, the message names the checkpoint to resume from."""
    config, say = training.config, training.display.say
    say(
        f"[bold]{config.preset}[/] on [bold]{config.env.title}[/] for {config.steps:,d} steps, seed {config.seed} "
        f"(profile {config.profile}, {agent.networks.device.type}) into {escape(str(directory))}"
    )
    try:
        _resume(checkpoints, agent, training, directory)
        compiler = agent.networks.compiler
        if training.step and config.compile == "auto" and (before := was_compiled(directory)) is not None:
            compiler.on = before  # so that the run ends bit for bit as without the interruption
        record_start(directory, training.step, agent.networks.device, compiled=compiler.on)
        if compiler.on:
            say("compiling the update, which takes up to a minute (--compile off goes without)")
        with _log_sent(training, directory, hooks.on_log, track):
            _train_to_end(checkpoints, agent, training, directory, draw, hooks)
    except OSError as error:
        raise StorageFault(f"{directory} cannot be written to: {error}; {checkpoints.last_good}.") from None
    except Divergence as divergence:
        with suppress(OSError):
            write_json(directory / DIAGNOSIS, diagnosis(training, str(divergence)))
        raise Divergence(
            f"{divergence} See {directory / DIAGNOSIS}; {checkpoints.last_good}, but the same command would diverge "
            "again: change a setting and use another directory."
        ) from None
    except EnvironmentFault as fault:
        raise EnvironmentFault(f"{fault} ({checkpoints.last_good})") from fault
    except (Stopped, KeyboardInterrupt):
        then = "resumes the run" if checkpoints.manifest else "starts over"
        say(f"stopped at step {training.step:,d}; {escape(checkpoints.last_good)}; the same command {then}")
        raise
    finally:
        training.log.close()


@contextmanager
def _log_sent(training: Training, directory: Path, on_log: OnLog | None, track: str | None) -> Iterator[None]:
    """Send the new lines of the log to the user's hook and to a tracker while the block runs."""
    if track is None:
        training.log.on_line = on_log
        yield
        return

    def warn(text: str) -> None:
        training.display.say(f"[yellow]warning:[/] {escape(text)}")

    with tracked(track, TrackedRun.of(directory, training.config), warn) as send:

        def send_to_both(line: Line) -> None:
            send(line)
            if on_log is not None:
                on_log(line)

        training.log.on_line = send_to_both
        yield


def _resume(checkpoints: Checkpoints, agent: Agent, training: Training, directory: Path) -> None:
    """Restore the newest checkpoint, if there is one, and truncate the log to its step."""
    for warning in checkpoints.find():
        training.display.say(f"[yellow]warning:[/] {escape(warning)}")
    manifest = checkpoints.manifest
    if manifest is None:
        if (directory / METRICS).exists():
            training.display.say("an earlier attempt at this run left no checkpoint; starting over")
        training.log = Log(directory)
        return
    checkpoints.restore(agent, training)
    training.log = Log(directory, manifest.logs)
    training.display.say(f"resuming from step {training.step:,d}")
    if manifest.package != (here := version("monotau")):
        training.display.say(
            f"[yellow]warning:[/] monotau {manifest.package} wrote the checkpoint and this is {here}: the results may "
            "differ from those of a run with a single version"
        )


def _train_to_end(
    checkpoints: Checkpoints,
    agent: Agent,
    training: Training,
    directory: Path,
    draw: DrawFigures | None,
    hooks: Hooks,
) -> None:
    """Train, with a checkpoint and an evaluation after each iteration, and write down what came of it."""
    config, start = training.config, time.perf_counter()
    before = checkpoints.manifest.seconds if checkpoints.manifest else 0.0
    last = None
    if not training.iteration:
        with training.display.bar(config.steps, 0):
            last = training.evaluate_random()
    lines = training.log.lines
    random = next((line for line in lines if line.get("policy") == "random"), None)
    if random is None:
        raise StorageFault(f"{directory / METRICS} lacks the line of the random policy that every run starts with.")
    training.display.say(f"random policy: return {random['return_mean']:.2f} ± {random['return_std']:.2f}")

    def goes_on(*, ended_here: bool = False) -> bool:
        """Evaluate if it is time to, and return whether the hook lets the training go on."""
        nonlocal last
        if not (ended_here or training.evaluation_due(config.steps)):
            return True
        last = _evaluate(agent, training, directory)
        return not hooks.stops(agent, config.steps, before + time.perf_counter() - start, directory)

    with training.session(config.steps):
        # The checkpoint is written before the evaluation, so that a resumed run repeats only the evaluation.
        going = not training.iteration or goes_on(ended_here=training.step in earlier_ends(directory))
        while going and training.iterate(config.steps):
            checkpoints.save(agent, training, before + time.perf_counter() - start)
            going = goes_on()
    assert last is not None  # noqa: S101  # for the type checker
    agent.write(directory / AGENT)
    if draw is not None:
        with torch_threads(config.threads):
            draw(directory, lines, agent, last)
    write_json(
        directory / RESULT,
        {
            "preset": config.preset,
            "env": config.env.id,
            "protocol": config.env.protocol,
            "seed": config.seed,
            "steps": training.step,
            "updates": training.updates,
            "stopped": "on_evaluation" if training.step < config.steps else None,
            "seconds": before + time.perf_counter() - start,
            "random": {name: random[name] for name in last.line()},
            "final": last.line(),
            "best": _best(lines),
            "warnings": [line["text"] for line in training.log.of("warning")],
        },
    )


def _evaluate(agent: Agent, training: Training, directory: Path) -> Evaluation:
    """Evaluate, and save the agent if this is its best evaluation."""
    evaluation = training.evaluate()
    if _best(training.log.lines)["step"] == training.step:
        agent.write(directory / BEST_AGENT)
    return evaluation


def _best(lines: Sequence[Line]) -> Line:
    """Return step, return and standard deviation of the best evaluation, the earliest if there are several."""
    best = best_evaluation(line for line in lines if line.get("policy") == "greedy")
    return {name: best[name] for name in ("step", "return_mean", "return_std", "episodes")}


def _report(directory: Path, display: Display) -> None:
    """Print the result and list the files of the run."""
    path = directory / RESULT
    try:
        result = read_json(path)
        random, final, best = result["random"], result["final"], result["best"]
        display.say(
            f"\nfinal evaluation: return [bold]{final['return_mean']:.2f}[/] ± {final['return_std']:.2f} over "
            f"{final['episodes']:d} episode{'s' * (final['episodes'] > 1)} (best {best['return_mean']:.2f} at step "
            f"{best['step']:,d}), random policy {random['return_mean']:.2f} ± {random['return_std']:.2f}; "
            f"{result['seconds']:.0f} s"
        )
        if result.get("stopped") is not None:
            display.say(f"stopped early by {escape(str(result['stopped']))} after {result['steps']:,d} steps")
        for text in result.get("warnings", ()):
            display.say(f"[yellow]warning:[/] {escape(text)}")
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{path} is not what a run wrote ({brief(str(error))}); remove it, and the same command writes it again."
        ) from None
    display.say(f"files in [bold]{escape(str(directory))}[/]:")
    width = max(map(len, CONTENTS))
    for name, about in CONTENTS.items():
        if (directory / name).exists():
            display.say(f"  {name:{width}s}  {about}")
