"""Estimates the cost of a suite: time from a short trial of each method, RAM and disk from array sizes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from monotau.agent import Agent
from monotau.config.resolve import Resolved
from monotau.config.schema import ActorConfig, Config
from monotau.learning.agent_networks import AgentNetworks
from monotau.learning.rollout import Rollout
from monotau.runs.memory import MemoryPlan
from monotau.runs.metrics import Log
from monotau.runs.progress import Display
from monotau.suites.grid import Cell, Method, Suite

TRIAL_UPDATES = 12
TRIAL_ROLLOUT_STEPS = 30

OTHER_FILES_BYTES = 1_500_000
"""Bytes of a finished run's figures, metrics and settings, without its two agents; measured, plus a margin."""


@final
@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The cost of each run of a method."""

    method: Method
    runs: int
    """Number of missing runs."""
    steps: int
    seconds: float
    """Duration of one run: training at the rate of the trial, and evaluations if `evaluation.steps` is set."""
    steps_per_second: float
    memory: int
    disk_running: int
    """Bytes on disk during the run, with a full replay."""
    disk_finished: int


def estimate_method(suite: Suite, method: Method, missing: Sequence[Cell], threads: int) -> Estimate:
    """Estimate a method by a trial in the environment of its first missing cell."""
    resolved = suite.resolve(missing[0], threads)
    config, plan = resolved.config, MemoryPlan.of(resolved, None)
    training, acting = _trial(resolved)
    evaluations = config.steps / config.iteration_steps / config.evaluation.every_iterations
    seconds = training * config.steps + acting * evaluations * config.evaluation.steps
    agent = sum(tensor.nbytes for tensor in _blank(resolved).state().values())
    return Estimate(
        method=method,
        runs=len(missing),
        steps=config.steps,
        seconds=seconds,
        steps_per_second=1 / training,
        memory=plan.total,
        # Two checkpoint generations, which include the optimiser states, and the best agent so far.
        disk_running=plan.replay.total + 2 * plan.networks + agent + OTHER_FILES_BYTES,
        disk_finished=2 * agent + OTHER_FILES_BYTES,
    )


def _blank(resolved: Resolved) -> AgentNetworks:
    return AgentNetworks.blank(resolved.config, resolved.envs.observation_spec, resolved.envs.num_actions)


def _trial(resolved: Resolved) -> tuple[float, float]:
    """Return the seconds per training step and per evaluation step."""
    config = _short(resolved.config)
    agent = Agent.of(Resolved(config, resolved.envs))
    training = agent.start_training(Log(), Display(None))
    with training.session(config.steps):
        training.iterate(config.steps)  # warm-up: the first updates allocate buffers that later ones reuse
        learning = _timed(lambda: training.iterate(config.steps)) / config.iteration_steps
        lanes = min(config.evaluation.num_envs, config.evaluation.episodes)
        rollout = Rollout(resolved.envs, lanes, config.env.frame_stack, config.seed)
        try:
            rng = np.random.default_rng(config.seed)
            acting = _timed(
                lambda: [
                    rollout.step(
                        agent.networks.evaluation_policy.act(rollout.observations, 0.0, rng, None, rollout.masks)
                    )
                    for _ in range(TRIAL_ROLLOUT_STEPS)
                ]
            )
        finally:
            rollout.close()
    return learning, acting / (TRIAL_ROLLOUT_STEPS * lanes)


def _short(config: Config) -> Config:
    """Return a short version of the run, which learns early, at the final epsilon and with a small replay.

    It has no actors, because their speed depends on the nodes they run on.
    """
    lanes, every = config.env.num_envs, config.update.every_steps
    iteration = -(-max(TRIAL_UPDATES * every, 4 * lanes) // lanes) * lanes
    kept = max(2 * iteration, lanes * 100, config.update.batch_size)
    return replace(
        config,
        actors=0,
        actor=ActorConfig(),
        steps=2 * iteration,
        iteration_steps=iteration,
        log_every_steps=2 * iteration + 1,
        epsilon=replace(config.epsilon, start=config.epsilon.end, decay_steps=0),
        replay=replace(config.replay, warmup_steps=min(config.update.batch_size, iteration // 2), capacity_steps=kept),
    )


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
