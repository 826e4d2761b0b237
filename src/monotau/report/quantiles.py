"""Quantile functions of several methods in one and the same state, with every stretch in which they fall."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from torch import Tensor

from monotau.errors import ConfigError, EnvironmentFault
from monotau.report.agents import load_agent, may_be_made
from monotau.report.choosing import (
    Grouped,
    add_legend,
    columns_of,
    grouped,
    has_curve,
    left_out,
    listed,
    one_of_each_head,
    panels,
    slug,
    wrapped,
)
from monotau.report.reading import ReportedRun
from monotau.report.sections import Picture, Section
from monotau.report.states import POINTS, SETS, Answers, ask

MOST_ENVS = 3
MOST_PANELS = 9
ACTION_COLOURS = ("#0072B2", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
FALL = "#D55E00"
"""Vermilion of the same palette, told from the others by its width too."""


def quantile_section(runs: Sequence[ReportedRun], tell: Callable[[str], None]) -> list[Section]:
    """Show, for a few environments, what each method has learned about one state."""
    groups = grouped([run for run in runs if has_curve(run)])
    foreign = [env for env, methods in groups.items() if not may_be_made(next(iter(methods.values()))[0])]
    own = [env for env in groups if env not in foreign]
    pictures, notes = [], ""
    for env in own[:MOST_ENVS]:
        answers, rest, failed = _ask_methods(env, groups, tell)
        if answers:
            pictures.append(_draw(env, answers))
        notes += left_out(f"in {env}, methods", rest)
        notes += f" In {env}, not loaded: {listed(failed)}." if failed else ""
    notes += left_out("environments", own[MOST_ENVS:])
    if foreign:
        notes += f" Not drawn, as their environments import code that files must not name: {listed(foreign)}."
    if not pictures and not notes:
        return []
    text = (
        "The agent that each method's lowest seed has left, asked in states that random play from a fixed seed visits, "
        f"the same ones for all, at {POINTS} fractions. Drawn is the state in which the curves fall most, summed over "
        "methods and actions; if none falls, the one in which the actions' means differ most. Titles give the share of "
        f"changes that are falls, over all those states and all actions. Dots: {SETS} sets of random fractions, asked "
        "for one after the other, of methods whose answer depends on the set; there, falls are those between "
        "neighbours of different sets. What the outermost hundredths of a curve do far off is not in view."
    )
    return [Section(title="Quantile functions", text=text + notes, pictures=pictures)]


def _ask_methods(
    env: str, groups: Grouped, tell: Callable[[str], None]
) -> tuple[dict[str, Answers], list[str], list[str]]:
    """Return answers of as many methods as there are panels, the methods left out, and those that failed with why."""
    first = {method: runs[0] for method, runs in groups[env].items()}
    answers: dict[str, Answers] = {}
    rest, failed = [], []
    for method in one_of_each_head(first):
        if len(answers) == MOST_PANELS:
            rest.append(method)
            continue
        tell(f"quantile functions: {method} on {env}")
        try:
            answers[method] = ask(load_agent(first[method]))
        except (ConfigError, EnvironmentFault, OSError) as error:
            failed.append(f"{method} ({str(error).rstrip('.')})")
    return {method: answers[method] for method in first if method in answers}, rest, failed


def telling_state(curves: Sequence[Float[Tensor, "n A M"]]) -> int:
    """Return the state in which the methods' curves fall most, or without any fall differ most in their means."""
    falls = sum((-one.diff(dim=-1)).clamp_min(0).nan_to_num().sum(dim=(1, 2)) for one in curves)
    means = [one.mean(dim=-1).nan_to_num() for one in curves]
    differences = sum(mean.amax(dim=1) - mean.amin(dim=1) for mean in means)
    scores = torch.as_tensor(falls if torch.as_tensor(falls).any() else differences)
    return int(scores.argmax())


def telling_actions(curves: Sequence[Float[Tensor, "A M"]], most: int) -> Int[np.ndarray, " n"]:
    """Return the actions that the methods rank highest by their means, in the order of their numbers."""
    ranks = torch.stack([(-one.mean(dim=-1)).argsort(stable=True).argsort() for one in curves])
    best = ranks.double().mean(dim=0).argsort(stable=True)[:most]
    return best.sort().values.numpy()


def _draw(env: str, answers: Mapping[str, Answers]) -> Picture:
    state = telling_state([one.curves for one in answers.values()])
    everything = [one.curves[state] for one in answers.values()]
    actions = telling_actions(everything, len(ACTION_COLOURS))
    figure, axes = panels(len(answers), 3.0)
    for ax, (method, one) in zip(axes, answers.items(), strict=True):
        pairs = zip(actions, ACTION_COLOURS, strict=False)
        curves = [_plot(ax, one, state, int(action), colour) for action, colour in pairs]
        ax.set(xlim=(0, 1), ylim=_limits(curves), xlabel="fraction $\\tau$")
        ax.set_title(f"{wrapped(method)}\n{_falls(one)}", fontsize="medium")
    for ax in axes[:: columns_of(len(answers))]:
        ax.set_ylabel("discounted return")
    handles = [Line2D([], [], color=colour) for _, colour in zip(actions, ACTION_COLOURS, strict=False)]
    handles.append(Line2D([], [], color=FALL, linewidth=2.6))
    add_legend(figure, handles, [*(f"action {action}" for action in actions), "falls"])
    total, states = len(everything[0]), len(next(iter(answers.values())).curves)
    chosen = "" if total == len(actions) else f" Of {total} actions, the {len(actions)} that methods rank highest."
    caption = f"Quantile functions in {env}, in state {state + 1} of {states}.{chosen}"
    return Picture(name=f"quantiles-{slug(env)}", figure=figure, caption=caption)


def _limits(curves: Sequence[Float[np.ndarray, " M"]]) -> tuple[float, float]:
    """Leave the outermost hundredths out of view if they are far off, as those of atoms can be."""
    inner = [np.nan_to_num(curve)[len(curve) // 100 : len(curve) - len(curve) // 100] for curve in curves]
    low, high = min(float(one.min()) for one in inner), max(float(one.max()) for one in inner)
    margin = 0.15 * (high - low) or 1.0
    return low - margin, high + margin


def _falls(answers: Answers) -> str:
    if answers.sets is None:
        return f"{answers.crossing:.1%} of changes fall"
    return f"{answers.crossing:.1%} fall within a set,\n{answers.crossing_between_sets:.1%} between {SETS} sets"


def _plot(ax: Axes, answers: Answers, state: int, action: int, colour: str) -> Float[np.ndarray, " M"]:
    """Draw one action's curve, or its sets as points, and where it falls; return what was drawn."""
    if answers.sets is None:
        taus, curve = np.linspace(0, 1, POINTS), answers.curves[state, action].numpy()
        ax.plot(taus, curve, color=colour, linewidth=1.4)
    else:
        ordered, together = answers.sets.together()
        taus, curve = ordered.numpy(), together[state, action].numpy()
        ax.plot(taus, curve, ".-", color=colour, markersize=4, linewidth=0.6)
    width = 2.6 if answers.sets is None else 1.2
    ax.plot(*falling_stretches(taus, curve), color=FALL, linewidth=width, solid_capstyle="round")
    return curve


def falling_stretches(
    taus: Float[np.ndarray, " M"], curve: Float[np.ndarray, " M"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Return the pieces between neighbours that fall, as one line with a gap after each."""
    falls = np.flatnonzero(np.diff(curve) < 0)
    gap = np.full(len(falls), np.nan)
    across, up = (np.stack([line[falls], line[falls + 1], gap], axis=1).ravel() for line in (taus, curve))
    return across, up
