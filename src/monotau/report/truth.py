"""How far learned return distributions are from the true ones, in worlds that know theirs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from monotau.agent import Agent
from monotau.envs import Grid, Probe
from monotau.envs.catalog import OWN
from monotau.envs.probes import Outcomes, Truth
from monotau.errors import ConfigError, EnvironmentFault
from monotau.report.agents import load_agent
from monotau.report.choosing import Grouped, columns_of, grouped, listed, panels, wrapped
from monotau.report.figures import COLOURS
from monotau.report.reading import ReportedRun
from monotau.report.sections import Picture, Section, Table

TAUS = (torch.arange(1000) + 0.5) / 1000
"""Fractions at which learned and true quantiles are compared."""
MOST_ENVS = 6


@dataclass(frozen=True, kw_only=True)
class Distance:
    """Means over all states and actions of a world."""

    w1: float
    """1-Wasserstein distance, fraction by fraction, at the estimates the agent acts on."""
    w1_sorted: float
    """The same with the estimates put in order first, which forgives crossing."""
    crossing: float
    """Share of neighbouring quantiles that fall."""


def true_quantiles(outcomes: Outcomes) -> Float[Tensor, " M"]:
    """Quantile function of outcomes with their probabilities, at all fractions."""
    pairs = sorted((value, probability) for probability, value in outcomes)
    ends = torch.tensor([probability for _, probability in pairs]).cumsum(0)
    index = torch.searchsorted(ends, TAUS).clamp_max(len(pairs) - 1)
    return torch.tensor([value for value, _ in pairs])[index]


def distance_to(truth: Truth, agent: Agent) -> Distance:
    """Compare what an agent has learned with the truth about every state and action."""
    plain, ordered, crossing = [], [], []
    for state in dict.fromkeys(state for state, _ in truth):
        learned = agent.distribution(state).quantile(TAUS.to(agent.networks.device)).cpu()
        curves = agent.quantiles(state, TAUS).cpu()
        for action in range(agent.actions):
            true = true_quantiles(truth[state, action])
            plain.append(float((learned[action] - true).abs().mean()))
            ordered.append(float((learned[action].sort().values - true).abs().mean()))
            crossing.append(float((curves[action].diff() < 0).float().mean()))
    return Distance(w1=float(np.mean(plain)), w1_sorted=float(np.mean(ordered)), crossing=float(np.mean(crossing)))


def truth_section(runs: Sequence[ReportedRun], tell: Callable[[str], None]) -> list[Section]:
    """Show the distance of every finished run in a probe world to the truth about that world."""
    groups = grouped([run for run in runs if run.state == "finished" and knows_truth(run)])
    found, failed = _distances(groups, tell)
    if not found and not failed:
        return []
    text = (
        "These worlds know the distribution of every return. The distance is the 1-Wasserstein distance, fraction by "
        "fraction, averaged over all states and actions, in units of return; 0 is the truth. Runs that have not "
        "finished are not measured."
    )
    if failed:
        text += f" Could not be measured: {listed(failed)}."
    if not found:
        return [Section(title="Distance to the truth", text=text)]
    if len(found) > MOST_ENVS:
        text += f" Of the worlds, the {MOST_ENVS} with most methods are shown, not {listed([*found][MOST_ENVS:])}."
    shown = {env: found[env] for env in [*found][:MOST_ENVS]}
    return [Section(title="Distance to the truth", text=text, pictures=[_draw(shown)], tables=[_table(shown)])]


def knows_truth(run: ReportedRun) -> bool:
    """Whether a run's world knows its returns; Grid, where every return is 0, does not show its states by number."""
    world, _ = OWN.get(run.settings.get("env.id", run.env), (object, ""))
    return issubclass(world, Probe) and world is not Grid


Distances = Mapping[str, Mapping[str, Sequence[float]]]
"""By environment and method, of each seed."""


def _distances(groups: Grouped, tell: Callable[[str], None]) -> tuple[Distances, list[str]]:
    found: dict[str, dict[str, list[float]]] = {}
    failed = []
    for env, methods in groups.items():
        for method, runs in methods.items():
            tell(f"distance to the truth: {method} on {env}")
            for run in runs:
                try:
                    w1 = _measure(run)
                except (ConfigError, EnvironmentFault, OSError) as error:
                    failed.append(f"{run.directory.name} ({str(error).rstrip('.')})")
                else:
                    found.setdefault(env, {}).setdefault(method, []).append(w1)
    return found, failed


def _measure(run: ReportedRun) -> float:
    agent = load_agent(run)
    config = agent.config
    if config.replay.reward_clip:
        raise ConfigError(f"its rewards were clipped to {config.replay.reward_clip:g}, and so are its returns")
    kwargs: dict[str, Any] = dict(config.env.kwargs)
    world: Any = gym.make(config.env.id, disable_env_checker=True, **kwargs).unwrapped
    try:
        truth = world.truth(config.gamma)
    except ZeroDivisionError:
        raise ConfigError(f"with gamma {config.gamma:g} its returns have no bound") from None
    return distance_to(truth, agent).w1


def _table(found: Distances) -> Table:
    """Method by world, the mean over seeds and their range."""
    methods = _by_distance(found)
    return Table(
        caption="Distance to the truth: mean over seeds, and their range.",
        columns=("method", *found),
        rows=[(method, *(_cell(found[env].get(method, ())) for env in found)) for method in methods],
    )


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    spread = f" ({min(values):.3f} to {max(values):.3f})" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"


def _by_distance(found: Distances) -> list[str]:
    """Order methods by their distance, averaged over the worlds they were measured in; the nearest first."""
    means: dict[str, list[float]] = {}
    for methods in found.values():
        for method, values in methods.items():
            means.setdefault(method, []).append(float(np.mean(values)))
    return sorted(means, key=lambda method: float(np.mean(means[method])))


def _draw(found: Distances) -> Picture:
    methods = _by_distance(found)[::-1]
    figure, axes = panels(len(found), 1.1 + 0.28 * len(methods))
    for place, (ax, (env, distances)) in enumerate(zip(axes, found.items(), strict=True)):
        for row, method in enumerate(methods):
            values = distances.get(method, ())
            ax.plot(values, [row] * len(values), "o", color=COLOURS[0], markersize=4, alpha=0.6)
            if values:
                ax.plot(np.mean(values), row, "|", color=COLOURS[1], markersize=13, markeredgewidth=2)
        names = (
            [wrapped(method, 30) for method in methods] if place % columns_of(len(found)) == 0 else [""] * len(methods)
        )
        ax.set_yticks(range(len(methods)), names)
        ax.set_title(wrapped(env), fontsize="medium")
        ax.set(xlabel="distance $W_1$, in units of return", ylim=(-0.6, len(methods) - 0.4))
        ax.set_xlim(left=0)
    caption = "Distance of learned to true return distributions. Dots: seeds; bars: means."
    return Picture(name="distance-to-truth", figure=figure, caption=caption)
