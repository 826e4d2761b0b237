"""Training, readable top to bottom: iterations of acting, storing and learning, with an evaluation after each."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from monotau.configs import Config
from monotau.devices import torch_threads
from monotau.envs import ObservationSpec
from monotau.errors import ConfigError, Divergence
from monotau.evaluate import Evaluation, evaluate, fine_crossing
from monotau.learner import Learner
from monotau.log import Log
from monotau.networks.compiling import Compiler
from monotau.networks.factory import NetworkFactory, Trainer, prefixed, unprefixed
from monotau.networks.layers import Layers, settle_precision
from monotau.presets import Resolved
from monotau.progress import Display
from monotau.replay import Batch, Layout
from monotau.rollout import Policy, Rollout
from monotau.streams import numpy_stream, stream_seed, torch_stream


def pick_device(name: str) -> torch.device:
    """Return the device of that name; `auto` is a GPU if there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is 'cuda', but torch sees no CUDA device here; allowed: auto, cpu.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


class Brain:
    """The networks of an agent and how they choose: all that is needed to act, none of what is needed to train."""

    def __init__(self, config: Config, spec: ObservationSpec, actions: int, device: torch.device | None = None) -> None:
        device = device or pick_device(config.device)
        factory = NetworkFactory(
            spec,
            config.env.frame_stack,
            actions,
            config.torso,
            config.head,
            Layers(settle_precision(config.precision, device), config.noisy, config.dueling),
            config.optimiser,
            config.seed,
            device,
            Compiler(wanted=config.compile),
        )
        self.device = factory.device
        self.learner = Learner(factory, double_q=config.double_q)
        self.explorer = config.explorer.build(factory, self.learner.online, self.learner.target)
        self.curious = Policy(self.learner.online, actions, self.explorer)
        self.greedy = Policy(self.learner.online, actions)

    @classmethod
    def blank_state(cls, config: Config, spec: ObservationSpec, actions: int) -> dict[str, Tensor]:
        """Return what the `state` of such a brain looks like: names, types and shapes, without any memory."""
        return cls.blank(config, spec, actions).state()

    @classmethod
    def blank(cls, config: Config, spec: ObservationSpec, actions: int) -> "Brain":
        """Return a brain of sizes alone, without any memory."""
        try:
            with torch.device("meta") as nowhere:
                return cls(config, spec, actions, nowhere)
        except (RuntimeError, TypeError) as error:  # torch, for sizes whose product no 64 bits hold
            raise ConfigError(
                f"the sizes in the settings are no network's: {' '.join(str(error).split())[:200]}"
            ) from None

    def state(self) -> dict[str, Tensor]:
        """Everything learned, by name."""
        return self.learner.state() | prefixed("explorer", self.explorer.state())

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `state` returned."""
        self.learner.load_state(tensors)
        self.explorer.load_state(unprefixed("explorer", tensors))

    def memory(self) -> int:
        """Return the bytes of all weights, their gradients and what optimisers remember."""
        weights = sum(tensor.nbytes for tensor in self.state().values())
        return weights + sum(trainer.memory() for trainer in self.trainers().values())

    def trainers(self) -> dict[str, Trainer]:
        """Return all optimisers, by what they train."""
        return {"online": self.learner.trainer} | self.explorer.trainers()


def layout_of(config: Config, spec: ObservationSpec) -> Layout:
    """Return what the replay of a run must know."""
    return Layout(
        lanes=config.env.num_envs,
        frame_shape=spec.shape,
        frame_dtype=spec.dtype,
        stack=config.env.frame_stack,
        n_step=config.n_step,
        gamma=config.gamma,
    )


class Training:
    """A run: a brain, a replay and how far they have come. The unit of progress is the iteration."""

    def __init__(self, resolved: Resolved, brain: Brain, log: Log, display: Display) -> None:
        self.config, self.envs, self.brain, self.log, self.display = resolved.config, resolved.envs, brain, log, display
        layout = layout_of(self.config, self.envs.observation_spec)
        self.replay = self.config.replay.build(layout, horizon_steps=self.config.steps)
        self.step, self.iteration, self.updates = 0, 0, 0
        self.batch: Batch | None = None  # the last one learned from, for a look at it when learning fails

    @contextmanager
    def session(self, total_steps: int) -> Iterator[None]:
        """Hold torch's threads and the bar while the block trains up to `total_steps`."""
        with torch_threads(self.config.threads), self.display.bar(total_steps, self.step):
            yield

    def iterate(self, total_steps: int) -> bool:
        """Act, store and learn for an iteration, from fresh environments to the cut of the episodes in flight.

        Does nothing, and says so, when `total_steps` are done.
        """
        steps = min(self.config.iteration_steps, total_steps - self.step)
        if steps <= 0:
            return False
        config, learner, explorer = self.config, self.brain.learner, self.brain.explorer
        explore = numpy_stream(config.seed, "explore", self.iteration)
        explore_fractions = torch_stream(config.seed, "explore", self.iteration)
        drawing = numpy_stream(config.seed, "replay", self.iteration)
        learning = torch_stream(config.seed, "learn", self.iteration)
        seed = stream_seed(config.seed, "environments", self.iteration)
        rollout = Rollout(self.envs, config.env.num_envs, config.env.frame_stack, seed, self.step)
        window = _Window(self.step, self.updates)
        explorer.metrics()  # what it has averaged since the last line is left behind, as the window's numbers are
        try:
            for _ in range(steps // config.env.num_envs):
                epsilon = config.epsilon.at(self.step - config.replay.warmup_steps)
                actions = self.brain.curious.act(rollout.observations, epsilon, explore, explore_fractions)
                outcome = rollout.step(actions)
                self.replay.add(outcome.steps)
                window.returns += [episode_return for _, episode_return, _ in outcome.returns]
                before, self.step = self.step, self.step + config.env.num_envs
                if self.replay.ready:
                    for _ in range(passed(before, self.step, config.update.every_steps)):
                        batch = self.replay.sample(config.update.batch_size, drawing).to(self.brain.device)
                        self.batch = batch
                        update = learner.update(batch, learning, with_current=explorer.wants_target)
                        explorer.learn(batch, update.current, learning)
                        if self.replay.wants_losses:
                            self.replay.update(batch.index, update.losses.cpu().numpy())
                        window.losses.append(update.losses.mean())
                        self.updates += 1
                    if passed(before, self.step, config.update.sync_every_steps):
                        learner.sync()
                if passed(before, self.step, config.log_every_steps):
                    self._log(window, epsilon)
                    window = _Window(self.step, self.updates)
            self.replay.cut(rollout.observations[:, -1])
            if not learner.finite():
                raise Divergence("weights are no longer finite numbers")
        except Divergence as divergence:
            rate = config.optimiser.learning_rate
            raise Divergence(
                f"{config.preset} on {self.envs.name}, step {self.step}: {divergence}; a lower optimiser.learning_rate "
                f"(now {rate:g}) or smaller rewards may help."
            ) from None
        finally:
            rollout.close()
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
            lambda observations: self.brain.greedy.act(observations, config.evaluation.epsilon, rng, fractions),
            config.evaluation,
            stack=config.env.frame_stack,
            seed=stream_seed(config.seed, "evaluation environments", self.iteration),
        )
        crossing = fine_crossing(self.brain.learner.online, evaluation.states)
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
        """Write a line of kind train, and show it."""
        seconds = time.perf_counter() - window.start
        numbers: dict[str, float | int | None] = {
            "iteration": self.iteration,
            "updates": self.updates,
            "epsilon": epsilon,
            "episodes": len(window.returns),
            "return_mean": float(np.mean(window.returns)) if window.returns else None,
            "loss": torch.stack(window.losses).mean().item() if window.losses else None,
            "bonus_mean": None,
            "crossing": None,
            "dead_increments": None,
        }
        numbers |= self.brain.explorer.metrics()
        if window.losses:
            # Streams of its own: how often is logged must not change what is learned.
            seed = self.config.seed
            rows = self.replay.sample(self.config.update.batch_size, numpy_stream(seed, "diagnosis", self.step))
            fractions = torch_stream(seed, "diagnosis", self.step)
            numbers |= self.brain.learner.diagnose(rows.to(self.brain.device), fractions)
        numbers["updates_per_second"] = (self.updates - window.updates) / seconds
        numbers["steps_per_second"] = (self.step - window.step) / seconds
        self._write("train", numbers)
        shown = {"return": numbers["return_mean"], "bonus": numbers["bonus_mean"], "loss": numbers["loss"]}
        self.display.advance(self.step, shown)


class _Window:
    """What happened since the last line of kind train."""

    def __init__(self, step: int, updates: int) -> None:
        self.step, self.updates, self.start = step, updates, time.perf_counter()
        self.returns: list[float] = []
        self.losses: list[torch.Tensor] = []


def passed(before: int, after: int, period: int) -> int:
    """How many multiples of `period` lie in (before, after]."""
    return after // period - before // period
