"""The run directory, the unit of work: training into it is idempotent, and it says what it holds."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from monotau.agent import Agent, resolve_for
from monotau.runs.checkpoint import Checkpoints
from monotau.distributed.collector import connected_for_actors
from monotau.distributed.connect import LOCAL
from monotau.config.schema import Config
from monotau.networks.devices import torch_threads
from monotau.runs.diagnosis import diagnosis
from monotau.envs import EnvSource
from monotau.errors import ConfigError, Divergence, EnvironmentFault, StorageFault
from monotau.learning.evaluate import Evaluation
from monotau.runs.metrics import METRICS, Line, Log
from monotau.runs.memory import plan_memory
from monotau.config.presets import DEFAULT_PRESET, Resolved, usual_profile
from monotau.runs.process import LOCK, Stopped, locked
from monotau.runs.progress import Display
from monotau.runs.provenance import FILE_NAME as PROVENANCE
from monotau.runs.provenance import record_start
from monotau.report.figures import draw_learning_curve
from monotau.report.telling import draw_most_telling_state
from monotau.errors import brief
from monotau.runs.files import read_json, unfinished, write_json
from monotau.learning.train import Training

FILES = {
    "config.json": "every setting",
    PROVENANCE: "versions, commit and machine, for every start",
    "metrics.jsonl": "one line for each measurement",
    "events.out.tfevents.*": "the same for TensorBoard",
    "learning_curve.png": "returns over training",
    "quantile_functions.png": "return distributions of all actions in one state",
    "agent": "networks and settings, for `monotau evaluate` and Agent.load",
    "best_agent": "the same as of the best evaluation",
    "checkpoints": "to go on from when cut off; of no more use in a finished run",
    "result.json": "the outcome",
}


def default_directory(resolved: Resolved) -> Path:
    """Return where a run goes if not told otherwise; what is unusual and tells scores apart is in the name."""
    config = resolved.config
    usual = config.profile == usual_profile(config.preset, resolved.envs.observation_spec)
    method = config.preset if usual else f"{config.preset}-{config.profile}"
    return Path("runs") / directory_name(method, config.env.title, config.seed)


def directory_name(method: str, env: str, seed: int) -> str:
    """Return how the directory of a run is called."""
    return "_".join(re.sub("[/: ]", "-", part) for part in (method, env, f"seed{seed}"))


def state_of(directory: Path, config: Config) -> str:
    """Say whether a directory is `new`, holds this run `unfinished` or `finished`; another run in it is refused."""
    try:
        if not directory.exists():
            return "new"
        if not directory.is_dir():
            raise ConfigError(f"the run directory {directory} is a file; a directory is needed.")
        names = {path.name for path in directory.iterdir()}
    except OSError as error:
        raise ConfigError(f"the run directory {directory} cannot be used: {error}.") from None
    if "config.json" not in names:
        if names - {unfinished(directory / "config.json").name, LOCK}:
            raise ConfigError(f"the run directory {directory} is not empty and holds no run; name another directory.")
        return "new"
    held, wanted = read_json(directory / "config.json"), config.to_plain()
    if held != wanted:
        settings = _differences(held, wanted)
        raise ConfigError(
            f"the run directory {directory} holds another run: it differs in {', '.join(settings[:5])}"
            f"{' and more' if len(settings) > 5 else ''}; name another directory."
        )
    return "finished" if "result.json" in names else "unfinished"


def _differences(held: Any, wanted: Any, path: str = "") -> list[str]:
    """Paths of the settings in which two configurations differ, with both values."""
    if isinstance(held, dict) and isinstance(wanted, dict):
        names = sorted(held.keys() | wanted.keys())
        inner = (_differences(held.get(n), wanted.get(n), f"{path}.{n}" if path else n) for n in names)
        return [difference for differences in inner for difference in differences]
    setting = " ".join(path.split())[:100]
    return [] if held == wanted else [f"{setting} ({brief(held)} there, {brief(wanted)} here)"]


def train_agent(
    env: str | EnvSource,
    out: str | Path,
    preset: str = DEFAULT_PRESET,
    seed: int = 0,
    *,
    profile: str | None = None,
    env_settings: Mapping[str, Any] | None = None,
    verbose: bool = True,
    force: bool = False,
    ray: str = LOCAL,
    **settings: Any,
) -> Agent:
    """Train an agent into a run directory, as `monotau train` does, and return it.

    The run directory holds the settings, the metrics, checkpoints, figures and the agent. Called again with the same
    arguments, the function resumes a run that was interrupted, and returns the agent of a run that has finished. The
    resumed run ends bit for bit as if it had not been interrupted, provided that `reset(seed=...)` determines
    everything the environment does afterwards.

    Args:
        env: A Gymnasium id, an environment, or a callable that makes a new environment at each call.
        out: The run directory.
        preset: The algorithm; `monotau list presets` prints them all.
        seed: Seed of every random number of the run.
        profile: Settings for a kind of environment; by default the observation space decides.
        env_settings: Settings of the section `env`.
        verbose: Report progress on standard error.
        force: Train even if the run does not fit into the machine's memory.
        ray: Where the processes of `actors` run: `local`, `auto` or `host:port`.
        **settings: Any other setting by name, such as `steps=100_000` or `head={"hidden": 64}`.

    Returns:
        The agent as of the end of the run.

    Raises:
        ConfigError: A setting is not allowed, or the directory holds another run.
        EnvironmentFault: The environment raised an exception or returned invalid data.
        Divergence: A loss, gradient or weight became NaN or infinite.
        StorageFault: The disk is full or cannot be written.

    Examples:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from monotau import train_agent
        >>> with TemporaryDirectory() as out:
        ...     agent = train_agent("CartPole-v1", out, "dqn", steps=100, evaluation={"episodes": 2}, verbose=False)
        ...     (Path(out) / "result.json").exists()
        True
        >>> agent.config.steps
        100
    """
    layer = settings | {"seed": seed, "env": dict(env_settings or {})}
    directory = Path(out)
    resolved = resolve_for(env, preset, layer, profile)
    train_into(directory, resolved, Console(stderr=True, quiet=not verbose), force, ray)
    return Agent.load(directory / "agent", env)


def train_into(directory: Path, resolved: Resolved, console: Console, force: bool = False, ray: str = LOCAL) -> None:
    """Train as configured and leave everything in the directory.

    A finished run is only reported, and one that was cut off goes on from its last checkpoint, to the end that it would
    have had. While it lasts, no other process gets in. What the machine has no memory for is refused, unless forced.
    """
    config, display = resolved.config, Display(console)
    if state_of(directory, config) == "finished":
        display.say(
            f"[bold]{escape(str(directory))}[/] is finished already; give another --out or --seed to train anew."
        )
    else:
        plan_memory(resolved, display.say, force=force, ray=ray)
        with connected_for_actors(config, resolved.envs, ray):
            agent = Agent.of(resolved)
            training = agent.start_training(Log(), display, ray)
            with _claimed(directory, config):
                _train(Checkpoints(directory, config), agent, training, directory)
    _report(directory, display)


@contextmanager
def _claimed(directory: Path, config: Config) -> Iterator[None]:
    """Hold the directory for this process, with the settings in it."""
    with ExitStack() as stack:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(directory))
            if state_of(directory, config) == "new":
                write_json(directory / "config.json", config.to_plain())
        except OSError as error:
            raise ConfigError(f"the run directory {directory} cannot be written to: {error}.") from None
        yield


def _train(checkpoints: Checkpoints, agent: Agent, training: Training, directory: Path) -> None:
    """Train to the end; what stops it before says from where the same command goes on."""
    config, say = training.config, training.display.say
    say(
        f"[bold]{config.preset}[/] on [bold]{config.env.title}[/] for {config.steps:,d} steps, seed {config.seed} "
        f"(profile {config.profile}, {agent.networks.device.type}) into {escape(str(directory))}"
    )
    try:
        _resume(checkpoints, agent, training, directory)
        record_start(directory, training.step, agent.networks.device)
        _go_on(checkpoints, agent, training, directory)
    except OSError as error:
        raise StorageFault(f"{directory} cannot be written to: {error}; {checkpoints.last_good}.") from None
    except Divergence as divergence:
        with suppress(OSError):
            write_json(directory / "diagnosis.json", diagnosis(training, str(divergence)))
        raise Divergence(
            f"{divergence} See {directory / 'diagnosis.json'}; {checkpoints.last_good}, and the same command would end "
            "here again: change a setting, and name another directory."
        ) from None
    except EnvironmentFault as fault:
        raise EnvironmentFault(f"{fault} ({checkpoints.last_good})") from fault
    except (Stopped, KeyboardInterrupt):
        then = "goes on" if checkpoints.manifest else "starts over"
        say(f"stopped at step {training.step:,d}; {escape(checkpoints.last_good)}; the same command {then}")
        raise
    finally:
        training.log.close()


def _resume(checkpoints: Checkpoints, agent: Agent, training: Training, directory: Path) -> None:
    """Take up the newest checkpoint, if there is one, and open the log where it was then."""
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
    training.display.say(f"going on from step {training.step:,d}")
    if manifest.package != (here := version("monotau")):
        training.display.say(
            f"[yellow]warning:[/] the checkpoint is of monotau {manifest.package}, this is {here}: the end may differ "
            "from that of a run by one version"
        )


def _go_on(checkpoints: Checkpoints, agent: Agent, training: Training, directory: Path) -> None:
    """Train, with a checkpoint and an evaluation after each iteration, and write down what came of it."""
    config, start = training.config, time.perf_counter()
    before = checkpoints.manifest.seconds if checkpoints.manifest else 0.0
    last = None if training.iteration else training.evaluate_random()
    lines = training.log.lines
    random = next((line for line in lines if line.get("policy") == "random"), None)
    if random is None:
        raise StorageFault(f"{directory / METRICS} has no line of the random policy, which every run begins with.")
    training.display.say(f"random policy: return {random['return_mean']:.2f} ± {random['return_std']:.2f}")
    with training.session(config.steps):
        # The checkpoint comes first: an evaluation that was cut off is done again, and training is not.
        if training.iteration and training.evaluation_due(config.steps):
            last = _evaluate(agent, training, directory)
        while training.iterate(config.steps):
            checkpoints.save(agent, training, before + time.perf_counter() - start)
            if training.evaluation_due(config.steps):
                last = _evaluate(agent, training, directory)
    assert last is not None  # noqa: S101  # for the type checker
    agent.write(directory / "agent")
    title = f"{config.preset} on {config.env.title}, seed {config.seed}"
    draw_learning_curve(lines, title, directory / "learning_curve.png")
    with torch_threads(config.threads):
        draw_most_telling_state(agent, last, title, directory / "quantile_functions.png")
    write_json(
        directory / "result.json",
        {
            "preset": config.preset,
            "env": config.env.id,
            "protocol": config.env.protocol,
            "seed": config.seed,
            "steps": training.step,
            "updates": training.updates,
            "seconds": before + time.perf_counter() - start,
            "random": {name: random[name] for name in last.line()},
            "final": last.line(),
            "best": _best(lines),
            "warnings": [line["text"] for line in training.log.of("warning")],
        },
    )


def _evaluate(agent: Agent, training: Training, directory: Path) -> Evaluation:
    """Evaluate, and keep the agent if it was never better."""
    evaluation = training.evaluate()
    if _best(training.log.lines)["step"] == training.step:
        agent.write(directory / "best_agent")
    return evaluation


def _best(lines: Sequence[Line]) -> Line:
    """Return step, return and spread of the best evaluation, the first of several."""
    best = max((line for line in lines if line.get("policy") == "greedy"), key=lambda line: line["return_mean"])
    return {name: best[name] for name in ("step", "return_mean", "return_std", "episodes")}


def _report(directory: Path, display: Display) -> None:
    """Print the outcome and name what was written."""
    path = directory / "result.json"
    try:
        result = read_json(path)
        random, final, best = result["random"], result["final"], result["best"]
        display.say(
            f"\nfinal evaluation: return [bold]{final['return_mean']:.2f}[/] ± {final['return_std']:.2f} over "
            f"{final['episodes']:d} episodes (best {best['return_mean']:.2f} at step {best['step']:,d}), random policy "
            f"{random['return_mean']:.2f} ± {random['return_std']:.2f}; {result['seconds']:.0f} s"
        )
        for text in result.get("warnings", ()):
            display.say(f"[yellow]warning:[/] {escape(text)}")
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{path} is not what a run wrote ({brief(str(error))}); remove it, and the same command ends the run anew."
        ) from None
    display.say(f"in [bold]{escape(str(directory))}[/]:")
    for name, about in FILES.items():
        if any(directory.glob(name)):
            display.say(f"  {name:24s} {about}")
