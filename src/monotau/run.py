"""The run directory, the unit of work: training into it is idempotent, and it says what it holds."""

import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape

from monotau.agent import Agent
from monotau.configs import Config
from monotau.errors import ConfigError
from monotau.evaluate import Evaluation
from monotau.log import Log
from monotau.presets import Resolved
from monotau.progress import Display
from monotau.report import draw_learning_curve, draw_quantile_functions
from monotau.storage import read_json, unfinished, write_json
from monotau.train import Training, torch_threads

FILES = {
    "config.json": "every setting",
    "metrics.jsonl": "one line for each measurement",
    "events.out.tfevents.*": "the same for TensorBoard",
    "learning_curve.png": "returns over training",
    "quantile_functions.png": "return distributions of all actions in one state",
    "agent": "networks and settings, for `monotau evaluate` and Agent.load",
    "result.json": "the outcome",
}


def default_directory(config: Config) -> Path:
    """Return where a run goes if not told otherwise."""
    env = config.env.id.replace("/", "-").replace(":", "-")
    return Path("runs") / f"{config.preset}_{env}_seed{config.seed}"


def state_of(directory: Path, config: Config) -> str:
    """Say whether a directory is `new`, holds this run `unfinished` or `finished`; another run in it is refused."""
    try:
        if not directory.exists():
            return "new"
        if not directory.is_dir():
            raise ConfigError(f"--out is {directory}, which is a file; a directory is needed.")
        names = {path.name for path in directory.iterdir()}
    except OSError as error:
        raise ConfigError(f"--out is {directory}, which cannot be used: {error}.") from None
    if "config.json" not in names:
        if names - {unfinished(directory / "config.json").name}:
            raise ConfigError(f"--out is {directory}, which is not empty and holds no run; name another directory.")
        return "new"
    held, wanted = read_json(directory / "config.json"), config.to_plain()
    if held != wanted:
        settings = _differences(held, wanted)
        raise ConfigError(
            f"--out is {directory}, which holds another run: it differs in {', '.join(settings[:5])}"
            f"{' and more' if len(settings) > 5 else ''}; name another directory."
        )
    return "finished" if "result.json" in names else "unfinished"


def _differences(held: Any, wanted: Any, path: str = "") -> list[str]:
    """Paths of the settings in which two configurations differ, with both values."""
    if isinstance(held, dict) and isinstance(wanted, dict):
        names = sorted(held.keys() | wanted.keys())
        inner = (_differences(held.get(n), wanted.get(n), f"{path}.{n}" if path else n) for n in names)
        return [difference for differences in inner for difference in differences]
    return [] if held == wanted else [f"{path} ({held} there, {wanted} here)"]


def train_into(directory: Path, resolved: Resolved, console: Console) -> None:
    """Train as configured and leave everything in the directory; a finished run is only reported."""
    config, display = resolved.config, Display(console)
    state = state_of(directory, config)
    if state == "finished":
        display.say(
            f"[bold]{escape(str(directory))}[/] is finished already; give another --out or --seed to train anew."
        )
        _report(directory, display)
        return
    agent = Agent.of(resolved)
    training = Training(resolved, agent.brain, Log(), display)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for old in directory.glob("events.out.tfevents.*"):
            old.unlink()  # of this same run, which was cut off before it ended and starts over
        write_json(directory / "config.json", config.to_plain())
    except OSError as error:
        raise ConfigError(f"--out is {directory}, which cannot be written to: {error}.") from None
    display.say(
        f"[bold]{config.preset}[/] on [bold]{config.env.id}[/] for {config.steps:,d} steps, seed {config.seed} "
        f"(profile {config.profile}, {agent.brain.device.type}) into {escape(str(directory))}"
    )
    if state == "unfinished":
        display.say("an earlier attempt at this run did not finish; starting over")
    start, training.log = time.perf_counter(), Log(directory)
    try:
        untrained = training.evaluate_random()
        random = untrained.line()
        display.say(f"random policy: return {random['return_mean']:.2f} ± {random['return_std']:.2f}")
        last = training.run(config.steps, evaluated=True) or untrained
        best = max(line["return_mean"] for line in training.log.lines if line.get("policy") == "greedy")
    finally:
        training.log.close()
    agent.save(directory / "agent")
    title = f"{config.preset} on {config.env.id}, seed {config.seed}"
    draw_learning_curve(training.log.lines, title, directory / "learning_curve.png")
    with torch_threads(config.threads):
        draw_most_telling_state(agent, last, title, directory / "quantile_functions.png")
    result = {"steps": training.step, "updates": training.updates, "seconds": time.perf_counter() - start}
    evals = {"random": random, "final": last.line(), "best_return_mean": best}
    write_json(directory / "result.json", result | evals)
    _report(directory, display)


def draw_most_telling_state(agent: Agent, evaluation: Evaluation, title: str, path: Path) -> None:
    """Draw the distributions in that state of the evaluation in which the actions' means differ most."""
    observations = torch.from_numpy(evaluation.states).to(agent.brain.device)
    network = agent.brain.learner.online
    taus = torch.linspace(0.001, 0.999, 500, device=agent.brain.device)
    curves = torch.cat([network.quantiles(row[None], taus) for row in observations])  # n A M
    means = curves.mean(dim=-1)
    number = int((means.max(dim=1).values - means.min(dim=1).values).argmax())
    draw_quantile_functions(
        taus.cpu().numpy(),
        curves[number].cpu().numpy(),
        means[number].cpu().numpy(),
        f"{title}\nthe state, of {len(observations)} visited, in which the actions differ most",
        path,
    )


def _report(directory: Path, display: Display) -> None:
    """Print the outcome and name what was written."""
    result = read_json(directory / "result.json")
    random, final = result["random"], result["final"]
    display.say(
        f"\nfinal evaluation: return [bold]{final['return_mean']:.2f}[/] ± {final['return_std']:.2f} over "
        f"{final['episodes']} episodes (best {result['best_return_mean']:.2f}), random policy "
        f"{random['return_mean']:.2f} ± {random['return_std']:.2f}; {result['seconds']:.0f} s"
    )
    display.say(f"in [bold]{escape(str(directory))}[/]:")
    for name, about in FILES.items():
        display.say(f"  {name:24s} {about}")
