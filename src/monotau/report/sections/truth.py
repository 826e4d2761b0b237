"""The distance of learned return distributions to the true ones, in probe environments that know them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from monotau.agent import Agent
from monotau.envs.catalog import own_class
from monotau.envs.probes import Grid, Outcomes, Probe, Truth
from monotau.errors import ConfigError, EnvironmentFault
from monotau.report.agents import load_agent
from monotau.report.comparison import RunComparison, RunsByEnv, group_by_env
from monotau.report.formatting import method_list
from monotau.report.page import Notify, Picture, Section, Table
from monotau.report.plotting import COLOURS, label, panel_columns, panel_figure
from monotau.results.read import RunRecord

TAUS = (torch.arange(1000) + 0.5) / 1000
"""Fractions at which learned and true quantiles are compared."""
MAX_ENVS = 6


@dataclass(frozen=True, kw_only=True)
class Distance:
    """Means over all states and actions of an environment."""

    w1: float
    """1-Wasserstein distance between true quantiles and the estimates that the agent acts on."""
    w1_sorted: float
    """The same with the estimates sorted first, which ignores crossing."""
    crossing: float
    """Fraction of neighbouring quantiles that decrease."""


def true_quantiles(outcomes: Outcomes) -> Float[Tensor, " M"]:
    """Return the quantile function of outcomes with their probabilities, at `TAUS`."""
    pairs = sorted((value, probability) for probability, value in outcomes)
    ends = torch.tensor([probability for _, probability in pairs]).cumsum(0)
    index = torch.searchsorted(ends, TAUS).clamp_max(len(pairs) - 1)
    return torch.tensor([value for value, _ in pairs])[index]


def distance_to(truth: Truth, agent: Agent) -> Distance:
    """Compare the learned distributions of an agent with the true ones in every state, for every allowed action."""
    plain, ordered, crossing = [], [], []
    for state in dict.fromkeys(state for state, _ in truth):
        learned = agent.distribution(state).quantile(TAUS.to(agent.networks.device)).cpu()
        curves = agent.quantiles(state, TAUS).cpu()
        for action in (action for action in range(agent.actions) if (state, action) in truth):
            true = true_quantiles(truth[state, action])
            plain.append(float((learned[action] - true).abs().mean()))
            ordered.append(float((learned[action].sort().values - true).abs().mean()))
            crossing.append(float((curves[action].diff() < 0).float().mean()))
    return Distance(w1=float(np.mean(plain)), w1_sorted=float(np.mean(ordered)), crossing=float(np.mean(crossing)))


def truth_sections(comparison: RunComparison, notify: Notify) -> list[Section]:
    """Return the section on the distance of every finished run in a probe environment to the truth."""
    runs = group_by_env([run for run in comparison.started if run.state == "finished" and knows_truth(run)])
    found, failed = _measure_runs(runs, notify)
    if not found and not failed:
        return []
    text = (
        "These environments know the distribution of every return. The distance is the 1-Wasserstein distance between "
        "learned and true quantile functions, averaged over all states and actions, in units of return; 0 is exact. "
        "Unfinished runs are not measured."
    )
    if failed:
        text += f" Could not be measured: {method_list(failed)}."
    if not found:
        return [Section(title="Distance to the truth", text=text)]
    if len(found) > MAX_ENVS:
        rest = method_list([*found][MAX_ENVS:])
        text += f" Only the {MAX_ENVS} environments with most methods are shown, not {rest}."
    shown = {env: found[env] for env in [*found][:MAX_ENVS]}
    return [Section(title="Distance to the truth", text=text, pictures=[_draw(shown)], tables=[_table(shown)])]


def knows_truth(run: RunRecord) -> bool:
    """Whether an environment knows its return distributions; Grid, where all returns are 0, has no state numbers."""
    world = own_class(run.settings.get("env.id", run.env))
    return world is not None and issubclass(world, Probe) and world is not Grid


Distances = Mapping[str, Mapping[str, Sequence[float]]]
"""Distances of the seeds by environment and method."""


def _measure_runs(runs: RunsByEnv, notify: Notify) -> tuple[Distances, list[str]]:
    found: dict[str, dict[str, list[float]]] = {}
    failed = []
    for env, methods in runs.items():
        for method, some in methods.items():
            notify(f"distance to the truth: {method} on {env}")
            for run in some:
                try:
                    w1 = _measure(run)
                except (ConfigError, EnvironmentFault, OSError) as error:
                    failed.append(f"{run.directory.name} ({str(error).rstrip('.')})")
                else:
                    found.setdefault(env, {}).setdefault(method, []).append(w1)
    return found, failed


def _measure(run: RunRecord) -> float:
    agent = load_agent(run)
    config = agent.config
    if config.replay.reward_clip:
        raise ConfigError(f"its rewards were clipped to {config.replay.reward_clip:g}, so its returns differ")
    kwargs: dict[str, Any] = dict(config.env.kwargs)
    world: Any = gym.make(config.env.id, disable_env_checker=True, **kwargs).unwrapped
    try:
        truth = world.truth(config.gamma)
    except ZeroDivisionError:
        raise ConfigError(f"its returns are unbounded with gamma {config.gamma:g}") from None
    return distance_to(truth, agent).w1


def _table(found: Distances) -> Table:
    return Table(
        caption="Distance to the truth: mean over seeds, and range.",
        columns=("method", *found),
        rows=[(method, *(_cell(found[env].get(method, ())) for env in found)) for method in _closest_first(found)],
    )


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    spread = f" ({min(values):.3f} to {max(values):.3f})" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"


def _closest_first(found: Distances) -> list[str]:
    """Order methods by their distance, averaged over the environments they were measured in."""
    means: dict[str, list[float]] = {}
    for methods in found.values():
        for method, values in methods.items():
            means.setdefault(method, []).append(float(np.mean(values)))
    return sorted(means, key=lambda method: float(np.mean(means[method])))


def _draw(found: Distances) -> Picture:
    methods = _closest_first(found)[::-1]
    columns = panel_columns(len(found))
    figure, axes = panel_figure(len(found), 1.1 + 0.28 * len(methods))
    for place, (ax, (env, distances)) in enumerate(zip(axes, found.items(), strict=True)):
        for row, method in enumerate(methods):
            values = distances.get(method, ())
            ax.plot(values, [row] * len(values), "o", color=COLOURS[0], markersize=4, alpha=0.6)
            if values:
                ax.plot(np.mean(values), row, "|", color=COLOURS[1], markersize=13, markeredgewidth=2)
        names = [label(method, 30) for method in methods] if place % columns == 0 else [""] * len(methods)
        ax.set_yticks(range(len(methods)), names)
        ax.set_title(label(env, 34), fontsize="medium")
        ax.set(xlabel="distance $W_1$, in units of return", ylim=(-0.6, len(methods) - 0.4))
        ax.set_xlim(left=0)
    caption = "Distance of learned to true return distributions. Dots are seeds, bars are means."
    return Picture(name="distance-to-truth", figure=figure, caption=caption)
