"""The table of profiles: settings for a kind of environment, shared by all algorithms."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from monotau.envs.spec import ObservationSpec
from monotau.networks import default_torso
from monotau.replay import Prioritized, ReplayConfig, Uniform


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Settings for a kind of environment."""

    replay: ReplayConfig = field(default_factory=Uniform)
    """Replay of presets that do not specify one."""
    n_step: int = 3
    """n of the n-step return of presets that do not specify one."""
    settings: Mapping[str, Any]
    """Settings of a part apply to every kind of that part, so they must not name a `kind`."""
    decay_share: float = 0.0
    """Fraction of the run's steps over which epsilon decays, unless `epsilon.decay_steps` is set."""
    warmup_share: float = 0.0
    """Fraction of the run's steps that are random, before learning starts; at most `replay.warmup_steps`."""
    proportional_evaluation: bool = False
    """Whether evaluations shrink in proportion if less is trained between them than with the profile's own steps."""
    torsos: Mapping[str, str] = field(default_factory=dict)
    """Replaces the default torso of the observations (key) by another (value)."""
    torso_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings for one kind of torso, by kind."""
    heads: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings for one kind of head, by kind."""
    explorers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings for one kind of explorer, by kind."""

    def of_run(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings that depend on the length of the run; invalid values are refused elsewhere."""
        steps, replay = settings.get("steps"), settings.get("replay")
        found: dict[str, Any] = {}
        if not isinstance(steps, int):
            return found
        if self.decay_share:
            found["epsilon"] = {"decay_steps": int(self.decay_share * steps)}
        if self.warmup_share and isinstance(replay, Mapping):
            most = [
                number for name in ("warmup_steps", "capacity_steps") if isinstance(number := replay.get(name), int)
            ]
            found["replay"] = {"warmup_steps": max(1, min([int(self.warmup_share * steps), *most]))}
        between, usual = _between_evaluations(settings), _between_evaluations(self.settings)
        if self.proportional_evaluation and between and usual and between < usual:
            own = self.settings["evaluation"]
            names = [name for name in ("episodes", "steps") if name in own]
            found["evaluation"] = {name: math.ceil(own[name] * between / usual) for name in names}
        return found


def _between_evaluations(settings: Mapping[str, Any]) -> int | None:
    """Return the steps that are trained between evaluations; None if the settings are invalid."""
    evaluation = settings.get("evaluation")
    every = evaluation.get("every_iterations", 1) if isinstance(evaluation, Mapping) else None
    steps, iteration = settings.get("steps"), settings.get("iteration_steps")
    if not (isinstance(steps, int) and isinstance(iteration, int) and isinstance(every, int)):
        return None
    return max(0, min(steps, iteration * every))


PROFILES: Mapping[str, Profile] = {
    "atari": Profile(
        proportional_evaluation=True,
        settings={
            "steps": 50_000_000,
            # Evaluated every 250,000 steps as in the paper, but checkpointed every 50,000.
            "iteration_steps": 50_000,
            "log_every_steps": 5_000,
            "threads": 0,
            "return_scale": 1.0,
            "env": {"frame_stack": 4},
            "epsilon": {"end": 0.01, "decay_steps": 250_000},
            "replay": {"capacity_steps": 1_000_000, "warmup_steps": 20_000, "reward_clip": 1.0},
            "optimiser": {"learning_rate": 5e-5, "epsilon": 0.01 / 32},
            "update": {"batch_size": 32, "every_steps": 4, "sync_every_steps": 8_000},
            "evaluation": {"every_iterations": 5, "episodes": 1, "steps": 125_000},
        },
    ),
    "atari-fast": Profile(
        proportional_evaluation=True,
        settings={
            "steps": 4_000_000,
            "iteration_steps": 40_000,
            "log_every_steps": 5_000,
            "threads": 1,
            "precision": "auto",
            "return_scale": 1.0,
            "env": {"frame_stack": 4, "num_envs": 8},
            "head": {"hidden": 128},
            "epsilon": {"end": 0.01, "decay_steps": 150_000},
            "replay": {"capacity_steps": 400_000, "warmup_steps": 10_000, "reward_clip": 1.0},
            "optimiser": {"learning_rate": 1e-4, "epsilon": 1.5e-4},
            "update": {"batch_size": 32, "every_steps": 4, "sync_every_steps": 2_000},
            "evaluation": {"every_iterations": 2, "episodes": 10, "num_envs": 10},
        },
        torsos={"nature": "compact"},
    ),
    "minatar": Profile(
        decay_share=0.1,
        warmup_share=0.1,
        settings={
            "steps": 1_000_000,
            "iteration_steps": 50_000,
            "log_every_steps": 2_500,
            "head": {"hidden": 128},
            "epsilon": {"end": 0.01},
            "replay": {"capacity_steps": 100_000, "warmup_steps": 5_000},
            "optimiser": {"learning_rate": 5e-4, "anneal": 0.1, "epsilon": 1e-5},
            "update": {"batch_size": 32, "every_steps": 2, "sync_every_steps": 1_000, "average": 0.15},
            "evaluation": {"episodes": 20, "num_envs": 10},
        },
    ),
    "classic": Profile(
        # Uniform batches hardly ever contain rare events that matter, such as reaching MountainCar's goal.
        replay=Prioritized(),
        # Returns end before random actions, so they need a larger n to spread values as fast.
        n_step=10,
        # Shorter exploration leaves some of Taxi's destinations undiscovered.
        decay_share=0.4,
        # With long action repeats this is enough to reach MountainCar's goal, which single random actions do not.
        warmup_share=0.1,
        torso_settings={"mlp": {"width": 128, "norm": True}},
        settings={
            "steps": 28_000,
            # Otherwise n-step returns include the falls of random actions: on CliffWalking, the detour looks better.
            "cut_at_random": True,
            "iteration_steps": 4_000,
            "log_every_steps": 1_000,
            "head": {"hidden": 64},
            "epsilon": {"end": 0.05, "longest_repeat": 30},
            "replay": {"capacity_steps": 100_000, "warmup_steps": 10_000},
            "optimiser": {"learning_rate": 5e-4, "anneal": 0.1, "epsilon": 0.01 / 32},
            # Averages are steadier than copies as targets, and than the last weights as the policy: docs/ndqfn.md.
            "update": {"batch_size": 32, "every_steps": 2, "sync": "average", "sync_every_steps": 200, "average": 0.15},
            "evaluation": {"episodes": 20, "num_envs": 10},
        },
        # The return unit is at least 1/40 of the size of the returns, so the atoms reach twice as far as usual returns.
        # 50 quantiles are enough, and their loss costs 1/16 as much as that of 200.
        heads={
            "c51": {"atoms": 101, "low": -80.0, "high": 80.0},
            "hl-gauss": {"bins": 101, "low": -80.0, "high": 80.0},
            "qr": {"quantiles": 50},
            "nc-qr": {"quantiles": 50},
            "nq": {"quantiles": 50},
        },
        explorers={"dpe": {"c": 0.1}, "pqr": {"delta": 5e3}},
    ),
}


def default_profile(spec: ObservationSpec) -> str:
    """Return the name of the profile for these observations."""
    torsos = {default_torso(part.spec) for part in spec.parts if part.image} or {default_torso(spec)}
    return "atari" if "nature" in torsos else "minatar" if "small" in torsos else "classic"
