"""The training loop: iterations of acting, storing and learning, each followed by an evaluation."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from rich.markup import escape

from monotau.config.schema import Config
from monotau.envs.config import EnvMaker
from monotau.errors import Divergence
from monotau.learning.agent_networks import AgentNetworks
from monotau.learning.collector import Collector
from monotau.learning.evaluate import Evaluation, evaluate, fine_crossing
from monotau.learning.health import findings
from monotau.learning.policy import random_actions
from monotau.machine import keep_freed_memory
from monotau.networks.devices import torch_threads
from monotau.replay import Batch, Layout
from monotau.seeding import numpy_stream, stream_seed, torch_stream

IN_UNITS = {"q_mean", "q_std", "bonus_mean", "bonus_taken", "bonus_other"}
"""Metrics that networks compute in the unit of returns and that are logged in raw rewards."""

ESTIMATE_AFTER, LONG_EVALUATION = 2.0, 60.0
"""Seconds after which an evaluation can be estimated, and seconds left from which it is worth a message."""


def layout_of(config: Config, envs: EnvMaker) -> Layout:
    """Return the layout of a run's replay."""
    spec = envs.observation_spec
    return Layout(
        lanes=config.lanes,
        frame_shape=spec.shape,
        frame_dtype=spec.dtype,
        stack=config.env.frame_stack,
        n_step=config.n_step,
        gamma=config.gamma,
        cut_at_random=config.cut_at_random,
        masked_actions=envs.num_actions if envs.masked else 0,
    )


@runtime_checkable
class Log(Protocol):
    """Receives the log lines of a run; `monotau.runs.metrics` writes them to files."""

    lines: list[dict[str, Any]]
    """All lines so far."""
    on_line: Callable[[dict[str, Any]], object] | None
    """The user's hook, which is called with a copy of each new line."""

    def write(self, kind: str, step: int, values: Mapping[str, float | int | str | None]) -> None:
        """Add a line of kind train, eval or warning."""

    def of(self, kind: str) -> Sequence[Mapping[str, Any]]:
        """Return all lines of a kind."""

    def sync(self) -> Mapping[str, Any]:
        """Flush the lines to disk, and return a record of the files."""

    def close(self) -> None:
        """Close the files."""


@runtime_checkable
class Display(Protocol):
    """Shows progress; `monotau.runs.progress` draws a bar on a terminal."""

    def bar(self, total_steps: int, done_steps: int) -> AbstractContextManager[None]:
        """Show a progress bar while the block runs."""

    def advance(self, step: int, numbers: Mapping[str, float | None] = {}, stage: str = "training") -> None:
        """Move the bar to a step and show new numbers."""

    def say(self, text: str) -> None:
        """Print a line above the bar."""


class Training:
    """One run: its networks, replay and progress, which is counted in iterations."""

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
        self.replay = config.replay.build(layout_of(config, envs), horizon_steps=config.steps)
        self.step, self.iteration, self.updates = 0, 0, 0
        self.batch: Batch | None = None  # the last batch, for a diagnosis if learning diverges

    @contextmanager
    def session(self, total_steps: int) -> Iterator[None]:
        """Hold torch's threads, the collector's resources and the progress bar while training to `total_steps`."""
        keep_freed_memory()
        with ExitStack() as stack:
            stack.enter_context(torch_threads(self.config.threads))
            if self.step < total_steps:
                stack.enter_context(self.collector.session(self.updates))
            stack.enter_context(self.display.bar(total_steps, self.step))
            yield

    def iterate(self, total_steps: int) -> bool:
        """Act, store and learn for one iteration, which starts with new environments and truncates open episodes.

        Return False without doing anything if `total_steps` are done.
        """
        steps = min(self.config.iteration_steps, total_steps - self.step)
        if steps <= 0:
            return False
        config, learner, explorer = self.config, self.networks.learner, self.networks.explorer
        sampling_rng = numpy_stream(config.seed, "replay", self.iteration)
        learning_rng = torch_stream(config.seed, "learn", self.iteration)
        optimisers, polyak = self.networks.optimisers(), config.update.sync == "average"
        window = _Window(self.step, self.updates)
        explorer.metrics()  # discard averages from before this window
        if not self.iteration and self.envs.lacks_masks:
            self._warn(
                "no_masks",
                f"env.action_masks is 'use', but {self.envs.name} has neither a method action_masks nor an action_mask "
                "in the info of its reset: every action counts as allowed.",
            )
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
                            batch = self._sample(sampling_rng)
                            self.batch = batch
                            update = learner.update(batch, learning_rng, priority=self.replay.priority)
                            if self.replay.priority is not None:
                                self.replay.update(batch.index, update.priorities.cpu().numpy())
                            if polyak:
                                learner.sync(config.update.sync_share)
                            learner.update_average(config.update.average_share(self.updates))
                            window.losses.append(update.losses.mean())
                            self.updates += 1
                        if not polyak and passed(before, self.step, config.update.sync_every_steps):
                            learner.sync()
                        self.collector.learned(self.updates)
                    if passed(before, self.step, config.log_every_steps):
                        self._log(window, collected.epsilon)
                        window = _Window(self.step, self.updates)
            self.replay.cut(self.collector.newest)
            if not learner.finite():
                raise Divergence("the weights became NaN or infinite")
        except Divergence as divergence:
            rate = config.optimiser.learning_rate
            raise Divergence(
                f"{config.preset} on {self.envs.name}, step {self.step}: {divergence}; a lower optimiser.learning_rate "
                f"(now {rate:g}) or another return_scale may help."
            ) from None
        self.iteration += 1
        if self.step >= total_steps and not self.updates:
            self._warn(
                "no_updates",
                f"learning never started: {self.step:,d} steps are too few for replay.warmup_steps "
                f"({config.replay.warmup_steps:,d}), n_step ({config.n_step}) and update.every_steps "
                f"({config.update.every_steps}); train for longer, or lower them.",
            )
        return True

    def _sample(self, rng: np.random.Generator) -> Batch:
        """Sample a batch in the current unit of returns, on the device of the networks."""
        batch = self.replay.sample(self.config.update.batch_size, rng, self.networks.unit.value)
        return batch.to(self.networks.device)

    def evaluation_due(self, total_steps: int) -> bool:
        """Whether an evaluation follows the last iteration, as it always does at the end of training."""
        return self.iteration % self.config.evaluation.every_iterations == 0 or self.step >= total_steps

    def evaluate(self) -> Evaluation:
        """Evaluate the greedy policy and log it."""
        config, start = self.config, time.perf_counter()
        rng = numpy_stream(config.seed, "evaluation", self.iteration)
        fractions = torch_stream(config.seed, "evaluation", self.iteration)
        evaluation = evaluate(
            self.envs,
            lambda observations, masks: self.networks.evaluation_policy.act(
                observations, config.evaluation.epsilon, rng, fractions, masks
            ),
            config.evaluation,
            stack=config.env.frame_stack,
            seed=stream_seed(config.seed, "evaluation environments", self.iteration),
            on_episode=self._evaluating(),
        )
        crossing = fine_crossing(self.networks.evaluated, evaluation.states)
        line = evaluation.line() | {"policy": "greedy", "crossing": crossing}
        self._write("eval", line | {"seconds": time.perf_counter() - start})
        self.display.advance(self.step)
        self.display.say(
            f"step {self.step:>9,d}  evaluation: return {line['return_mean']:8.2f} ± {line['return_std']:.2f} "
            f"over {line['episodes']} {'episode' if line['episodes'] == 1 else 'episodes'}"
        )
        return evaluation

    def evaluate_random(self) -> Evaluation:
        """Evaluate random choices among the allowed actions as a baseline, logged at step 0."""
        config, start = self.config, time.perf_counter()
        rng = numpy_stream(config.seed, "random policy")
        evaluation = evaluate(
            self.envs,
            lambda observations, masks: random_actions(rng, len(observations), self.envs.num_actions, masks),
            config.evaluation,
            stack=config.env.frame_stack,
            seed=stream_seed(config.seed, "evaluation environments"),
            on_episode=self._evaluating(),
        )
        line = evaluation.line() | {"policy": "random", "crossing": None}
        self._write("eval", line | {"seconds": time.perf_counter() - start})
        return evaluation

    def _evaluating(self) -> Callable[[int, float], None]:
        """Return a function that shows the progress of an evaluation, and says once how long it takes if it is long."""
        start, said = time.perf_counter(), False

        def show(episodes: int, share: float) -> None:
            nonlocal said
            self.display.advance(self.step, stage=f"evaluating {share:.0%}")
            seconds = time.perf_counter() - start
            left = seconds / share - seconds if share else 0.0
            if not said and seconds > ESTIMATE_AFTER and left > LONG_EVALUATION:
                said = True
                self.display.say(f"step {self.step:>9,d}  evaluating, about {left / 60:.0f} min more")

        self.display.advance(self.step, stage="evaluating")
        return show

    def _write(self, kind: str, values: Mapping[str, float | int | str | None]) -> None:
        """Write a log line, on Atari with the evaluation protocol."""
        protocol = self.config.env.protocol
        self.log.write(kind, self.step, values if protocol == "none" else {"protocol": protocol} | dict(values))

    def _log(self, window: "_Window", epsilon: float) -> None:
        """Write and display a train line, and warn about problems that it shows."""
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
            # Separate random streams: the logging interval must not change what is learned.
            seed = self.config.seed
            diagnosis = numpy_stream(seed, "diagnosis", self.step)
            batch, fractions = self._sample(diagnosis), torch_stream(seed, "diagnosis", self.step)
            numbers |= self.networks.learner.diagnose(batch, fractions) | self.networks.explorer.diagnose(
                batch, fractions
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
        reported = {line.get("rule", "") for line in self.log.of("warning")}
        for finding in findings(self.config, self.log.of("train"), reported):
            self._warn(finding.rule, finding.text)

    def _warn(self, rule: str, text: str) -> None:
        """Log a warning and show it."""
        self._write("warning", {"rule": rule, "text": text})
        self.display.say(f"step {self.step:>9,d}  [yellow]warning:[/] {escape(text)}")


class _Window:
    """Returns and losses since the last train line."""

    def __init__(self, step: int, updates: int) -> None:
        self.step, self.updates, self.start = step, updates, time.perf_counter()
        self.returns: list[float] = []
        self.losses: list[torch.Tensor] = []


def passed(before: int, after: int, period: int) -> int:
    """Return how many multiples of `period` lie in (before, after]."""
    return after // period - before // period
