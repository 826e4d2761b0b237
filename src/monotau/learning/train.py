"""Training, readable top to bottom: iterations of acting, storing and learning, with an evaluation after each."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from rich.markup import escape

from monotau.config.schema import Config
from monotau.envs.config import EnvMaker
from monotau.envs.spec import ObservationSpec
from monotau.errors import Divergence
from monotau.learning.agent_networks import AgentNetworks
from monotau.learning.collector import Collector
from monotau.learning.evaluate import Evaluation, evaluate, fine_crossing
from monotau.learning.health import findings
from monotau.networks.devices import torch_threads
from monotau.replay import Batch, Layout
from monotau.seeding import numpy_stream, stream_seed, torch_stream

IN_UNITS = {"q_mean", "q_std", "bonus_mean", "bonus_taken", "bonus_other"}
"""Numbers that networks work out in the unit of returns, and that are logged in raw rewards."""


def layout_of(config: Config, spec: ObservationSpec) -> Layout:
    """Return what the replay of a run must know."""
    return Layout(
        lanes=config.lanes,
        frame_shape=spec.shape,
        frame_dtype=spec.dtype,
        stack=config.env.frame_stack,
        n_step=config.n_step,
        gamma=config.gamma,
    )


@runtime_checkable
class Log(Protocol):
    """Takes the lines of a run; `monotau.runs.metrics` writes them to files."""

    lines: list[dict[str, Any]]
    """All lines so far."""

    def write(self, kind: str, step: int, values: Mapping[str, float | int | str | None]) -> None:
        """Add a line of kind train, eval or warning."""

    def of(self, kind: str) -> Sequence[Mapping[str, Any]]:
        """Return the lines of a kind."""

    def sync(self) -> Mapping[str, Any]:
        """Force the lines to disk, and return a record of the files."""

    def close(self) -> None:
        """Finish the files."""


@runtime_checkable
class Display(Protocol):
    """Shows progress; `monotau.runs.progress` draws a bar on a terminal."""

    def bar(self, total_steps: int, done_steps: int) -> AbstractContextManager[None]:
        """Show a bar while the block runs."""

    def advance(self, step: int, numbers: Mapping[str, float | None] = {}, stage: str = "training") -> None:
        """Move the bar to a step and show new numbers."""

    def say(self, text: str) -> None:
        """Print a line above the bar."""


class Training:
    """One run: networks, replay and progress. The unit of progress is the iteration."""

    def __init__(
        self,
        config: Config,
        envs: EnvMaker,
        networks: AgentNetworks,
        collector: Collector,
        log: Log,
        display: Display,
    ) -> None:
        self.config, self.envs, self.networks, self.collector = config, envs, networks, collector
        self.log, self.display = log, display
        self.replay = config.replay.build(layout_of(config, envs.observation_spec), horizon_steps=config.steps)
        self.step, self.iteration, self.updates = 0, 0, 0
        self.batch: Batch | None = None  # the last batch, for a diagnosis if learning diverges

    @contextmanager
    def session(self, total_steps: int) -> Iterator[None]:
        """Hold torch's threads, the collector's resources and the progress bar while training to `total_steps`."""
        with ExitStack() as stack:
            stack.enter_context(torch_threads(self.config.threads))
            if self.step < total_steps:
                stack.enter_context(self.collector.session(self.updates))
            stack.enter_context(self.display.bar(total_steps, self.step))
            yield

    def iterate(self, total_steps: int) -> bool:
        """Act, store and learn for an iteration, from fresh environments to the cut of the episodes in flight.

        Does nothing, and says so, when `total_steps` are done.
        """
        steps = min(self.config.iteration_steps, total_steps - self.step)
        if steps <= 0:
            return False
        config, learner, explorer = self.config, self.networks.learner, self.networks.explorer
        drawing = numpy_stream(config.seed, "replay", self.iteration)
        learning = torch_stream(config.seed, "learn", self.iteration)
        optimisers, averaged = tuple(self.networks.optimisers().values()), config.update.sync == "average"
        window = _Window(self.step, self.updates)
        explorer.metrics()  # what it has averaged since the last line is left behind, as the window's numbers are
        try:
            with closing(self.collector.collect(self.iteration, self.step, steps)) as batches:
                for collected in batches:
                    if collected.truncated_at is not None:
                        self.replay.cut(collected.truncated_at, collected.lanes)
                    self.replay.add(collected.steps, collected.lanes)
                    window.returns += collected.returns
                    before, self.step = self.step, self.step + len(collected.steps.actions)
                    if self.replay.ready:
                        self.networks.measure_returns(self.replay, self.step)
                        for optimiser in optimisers:
                            optimiser.set_progress(self.step / config.steps)
                        for _ in range(passed(before, self.step, config.update.every_steps)):
                            batch = self.replay.sample(config.update.batch_size, drawing, self.networks.unit.value)
                            batch = batch.to(self.networks.device)
                            self.batch = batch
                            update = learner.update(
                                batch, learning, with_current=explorer.wants_target, priority=self.replay.priority
                            )
                            explorer.learn(batch, update.current, learning)
                            if self.replay.priority is not None:
                                self.replay.update(batch.index, update.priorities.cpu().numpy())
                            if averaged:
                                learner.sync(config.update.average_share)
                            window.losses.append(update.losses.mean())
                            self.updates += 1
                        if not averaged and passed(before, self.step, config.update.sync_every_steps):
                            learner.sync()
                        self.collector.learned(self.updates)
                    if passed(before, self.step, config.log_every_steps):
                        self._log(window, collected.epsilon)
                        window = _Window(self.step, self.updates)
            self.replay.cut(self.collector.newest)
            if not learner.finite():
                raise Divergence("weights are no longer finite numbers")
        except Divergence as divergence:
            rate = config.optimiser.learning_rate
            raise Divergence(
                f"{config.preset} on {self.envs.name}, step {self.step}: {divergence}; a lower optimiser.learning_rate "
                f"(now {rate:g}) or smaller rewards may help."
            ) from None
        self.iteration += 1
        return True

    def evaluation_due(self, total_steps: int) -> bool:
        """Whether the iteration just done is followed by an evaluation, as the last one always is."""
        return self.iteration % self.config.evaluation.every_iterations == 0 or self.step >= total_steps

    def evaluate(self) -> Evaluation:
        """Evaluate the greedy policy and log it."""
        config, start = self.config, time.perf_counter()
        rng = numpy_stream(config.seed, "evaluation", self.iteration)
        fractions = torch_stream(config.seed, "evaluation", self.iteration)
        self.display.advance(self.step, stage="evaluating")
        evaluation = evaluate(
            self.envs,
            lambda observations: self.networks.evaluation_policy.act(
                observations, config.evaluation.epsilon, rng, fractions
            ),
            config.evaluation,
            stack=config.env.frame_stack,
            seed=stream_seed(config.seed, "evaluation environments", self.iteration),
        )
        crossing = fine_crossing(self.networks.evaluated, evaluation.states)
        line = evaluation.line() | {"policy": "greedy", "crossing": crossing}
        self._write("eval", line | {"seconds": time.perf_counter() - start})
        self.display.advance(self.step)
        self.display.say(
            f"step {self.step:>9,d}  evaluation: return {line['return_mean']:8.2f} ± {line['return_std']:.2f} "
            f"over {line['episodes']} episodes"
        )
        return evaluation

    def evaluate_random(self) -> Evaluation:
        """Evaluate uniformly random actions, for comparison; logged at step 0."""
        config, start = self.config, time.perf_counter()
        rng = numpy_stream(config.seed, "random policy")
        evaluation = evaluate(
            self.envs,
            lambda observations: rng.integers(self.envs.num_actions, size=len(observations)),
            config.evaluation,
            stack=config.env.frame_stack,
            seed=stream_seed(config.seed, "evaluation environments"),
        )
        line = evaluation.line() | {"policy": "random", "crossing": None}
        self._write("eval", line | {"seconds": time.perf_counter() - start})
        return evaluation

    def _write(self, kind: str, values: Mapping[str, float | int | str | None]) -> None:
        """Write a line; a score of Atari says under which protocol."""
        protocol = self.config.env.protocol
        self.log.write(kind, self.step, values if protocol == "none" else {"protocol": protocol} | dict(values))

    def _log(self, window: "_Window", epsilon: float) -> None:
        """Write a line of kind train, show it, and say what is wrong with it."""
        seconds = time.perf_counter() - window.start
        numbers: dict[str, float | int | None] = {
            "iteration": self.iteration,
            "updates": self.updates,
            "epsilon": epsilon,
            "learning_rate": self.config.optimiser.rate(self.step / self.config.steps),
            "episodes": len(window.returns),
            "return_mean": float(np.mean(window.returns)) if window.returns else None,
            "loss": torch.stack(window.losses).mean().item() if window.losses else None,
            "bonus_mean": None,
            "crossing": None,
            "dead_increments": None,
            "dead_features": None,
            "q_contrast": None,
        }
        numbers |= self.networks.explorer.metrics() | self.collector.metrics()
        if window.losses:
            # Streams of its own: how often is logged must not change what is learned.
            seed = self.config.seed
            diagnosis = numpy_stream(seed, "diagnosis", self.step)
            rows = self.replay.sample(self.config.update.batch_size, diagnosis, self.networks.unit.value)
            fractions = torch_stream(seed, "diagnosis", self.step)
            rows = rows.to(self.networks.device)
            numbers |= self.networks.learner.diagnose(rows, fractions) | self.networks.explorer.diagnose(
                rows, fractions
            )
        for name in IN_UNITS & numbers.keys():
            if (number := numbers[name]) is not None:
                numbers[name] = number * self.networks.unit.value
        numbers["return_unit"] = self.networks.unit.value
        numbers["updates_per_second"] = (self.updates - window.updates) / seconds
        numbers["steps_per_second"] = (self.step - window.step) / seconds
        self._write("train", numbers)
        shown = {"return": numbers["return_mean"], "bonus": numbers["bonus_mean"], "loss": numbers["loss"]}
        self.display.advance(self.step, shown)
        said = {line.get("rule", "") for line in self.log.of("warning")}
        for finding in findings(self.config, self.log.of("train"), said):
            self._write("warning", finding._asdict())
            self.display.say(f"step {self.step:>9,d}  [yellow]warning:[/] {escape(finding.text)}")


class _Window:
    """What happened since the last line of kind train."""

    def __init__(self, step: int, updates: int) -> None:
        self.step, self.updates, self.start = step, updates, time.perf_counter()
        self.returns: list[float] = []
        self.losses: list[torch.Tensor] = []


def passed(before: int, after: int, period: int) -> int:
    """How many multiples of `period` lie in (before, after]."""
    return after // period - before // period
