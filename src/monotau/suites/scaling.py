"""Scales a run down to a smaller budget: its length, schedules and replay, but not its updates."""

import math
from dataclasses import replace

from monotau.config.schema import Config
from monotau.errors import ConfigError, brief

LEAST_LANE_STEPS = 100
"""Minimum replay capacity per environment, so that frame stacks and n-step returns fit."""


def check_scale(scale: object) -> float:
    """Return the scale, and raise if it is not above 0 and at most 1."""
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale <= 1:
        raise ConfigError(f"the scale is {brief(scale)}, but must be above 0 and at most 1.")
    return float(scale)


def scaled(config: Config, scale: float) -> Config:
    """Return the settings with steps, schedules, replay and evaluation steps scaled down.

    Batch size, steps between updates and between target syncs, and episodes per evaluation are unchanged.
    """
    lanes, replay = config.env.num_envs, config.replay

    def steps(number: int, least: int = 1) -> int:
        """Scale a number of steps, and round it up to a multiple of the number of environments."""
        return max(math.ceil(scale * number / lanes), math.ceil(least / lanes)) * lanes

    total = steps(config.steps)
    warmup = max(round(scale * replay.warmup_steps), min(replay.warmup_steps, config.update.batch_size))
    capacity = min(
        replay.capacity_steps, max(round(scale * replay.capacity_steps), warmup, config.lanes * LEAST_LANE_STEPS)
    )
    return replace(
        config,
        steps=total,
        iteration_steps=min(steps(config.iteration_steps), total),
        log_every_steps=max(1, round(scale * config.log_every_steps)),
        epsilon=replace(config.epsilon, decay_steps=round(scale * config.epsilon.decay_steps)),
        replay=replace(replay, warmup_steps=warmup, capacity_steps=capacity),
        evaluation=replace(config.evaluation, steps=round(scale * config.evaluation.steps)),
    )
