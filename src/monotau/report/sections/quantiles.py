"""Quantile functions of several methods in the same state, and where they decrease."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from torch import Tensor

from monotau.agent import Agent
from monotau.envs import EnvFactory
from monotau.errors import ConfigError, EnvironmentFault
from monotau.learning.evaluate import falls_and_changes
from monotau.learning.policy import random_actions
from monotau.learning.rollout import Rollout
from monotau.networks import Network, Role
from monotau.networks.devices import torch_threads
from monotau.report.agents import load_agent, may_create_env
from monotau.report.comparison import RunComparison, RunsByEnv, alternate_heads, group_by_env, learns_distribution
from monotau.report.formatting import file_name, method_list, omitted
from monotau.report.page import Notify, Picture, Section
from monotau.report.plotting import COLOURS, LINE_COLOURS, add_legend, label, panel_columns, panel_figure
from monotau.seeding import numpy_stream, stream_seed, torch_stream

MAX_ENVS = 3
MAX_PANELS = 9
MAX_ACTIONS = 6
BEST_ACTIONS = 3
"""With more than MAX_ACTIONS actions, whose curves would cover each other, only this many are drawn."""
DECREASE = COLOURS[1]
ACTION_COLOURS = tuple(colour for colour in LINE_COLOURS if colour != DECREASE)

STATES = 32
STEPS_BETWEEN_STATES = 5
"""Random steps between two of the states."""
POINTS = 1001
"""Fractions of a curve; evaluations measure crossing at as many."""
MAX_CURVES = 2_000
"""Curves held for a method; environments with very many actions use fewer states."""
SETS = 4
"""Independent sets of fractions for heads whose quantiles depend on the other fractions of a set."""


@dataclass(frozen=True, kw_only=True)
class FractionSets:
    """Quantiles at several sets of fractions, computed one set at a time."""

    taus: Float[Tensor, "R K"]
    """Increasing in each set."""
    values: Float[Tensor, "n A R K"]

    def merged(self) -> tuple[Float[Tensor, " RK"], Float[Tensor, "n A RK"]]:
        """Return the fractions of all sets in increasing order, and the quantiles at them."""
        order = self.taus.flatten().sort()
        return order.values, self.values.flatten(2)[..., order.indices]


@dataclass(frozen=True, kw_only=True)
class StateQuantiles:
    """Quantile functions of an agent in several states."""

    curves: Float[Tensor, "n A M"]
    """Quantiles at evenly spaced fractions from 0 to 1, computed as one set."""
    sets: FractionSets | None = None
    """Only for heads whose quantiles depend on the other fractions of a set."""

    @property
    def crossing(self) -> float:
        """Fraction of decreases among the changes of the curves."""
        return _decreases(self.curves)

    @property
    def crossing_between_sets(self) -> float:
        """The same between neighbouring fractions of all sets together."""
        return 0.0 if self.sets is None else _decreases(self.sets.merged()[1])


def _decreases(curves: Tensor) -> float:
    falls, changes = falls_and_changes(curves)
    return falls / max(changes, 1)


def random_states(agent: Agent) -> Shaped[np.ndarray, "n S *frame"]:
    """Return states visited by random play from a fixed seed, the same for all agents of an environment.

    The agent's own time limit and number of parallel environments are ignored.
    """
    config = replace(agent.config.env, num_envs=1, max_episode_steps=0)
    count = max(1, min(STATES, MAX_CURVES // agent.actions))
    rng = numpy_stream(0, "states of a report")
    rollout = Rollout(EnvFactory(config), 1, config.frame_stack, stream_seed(0, "environment of a report"))
    kept: dict[bytes, np.ndarray] = {}
    try:
        for step in range(count * STEPS_BETWEEN_STATES):
            if step % STEPS_BETWEEN_STATES == 0:
                state = rollout.observations[0].copy()
                kept.setdefault(state[-1].tobytes(), state)  # by the last frame: methods may stack different numbers
            rollout.step(random_actions(rng, 1, agent.actions, rollout.masks))
    finally:
        rollout.close()
    return np.stack([*kept.values()])


def predict_quantiles(agent: Agent) -> StateQuantiles:
    """Compute the quantile functions of an agent in the random states of its environment."""
    network, device = agent.networks.evaluated, agent.networks.device
    taus = torch.linspace(0, 1, POINTS, device=device)
    states = torch.from_numpy(random_states(agent)).to(device)
    with torch_threads(agent.config.threads):
        # One state at a time: a sampling head computes POINTS samples for each.
        curves = torch.cat([network.quantiles(state[None], taus) for state in states])
        depends = depends_on_set(network, states[:1], taus, curves[:1])
        sets = _predict_sets(network, states, agent.unit) if depends else None
        return StateQuantiles(curves=curves.cpu() * agent.unit, sets=sets)


def depends_on_set(
    network: Network, state: Shaped[Tensor, "1 S *frame"], taus: Float[Tensor, " M"], curves: Float[Tensor, "1 A M"]
) -> bool:
    """Whether quantiles change by more than rounding if they are computed for a smaller set of fractions."""
    alone = network.quantiles(state, taus[::50])
    span = (curves.max() - curves.min()).item()
    return not torch.allclose(alone, curves[..., ::50], rtol=1e-3, atol=1e-3 * span + 1e-6)


def _predict_sets(network: Network, states: Shaped[Tensor, "n S *frame"], unit: float) -> FractionSets:
    """Compute quantiles at several random sets, each as large as the set used for choosing actions."""
    taus = network.fractions(Role.ACT, SETS, torch_stream(0, "fractions of a report")).sort(dim=-1).values
    values = torch.stack([network.quantiles(states, fractions) for fractions in taus], dim=-2)
    return FractionSets(taus=taus.cpu(), values=values.cpu() * unit)


def quantile_sections(comparison: RunComparison, notify: Notify) -> list[Section]:
    """Return the section that shows what each method has learned about one state, for a few environments."""
    runs = group_by_env([run for run in comparison.started if learns_distribution(run)])
    unsafe = [env for env, methods in runs.items() if not may_create_env(next(iter(methods.values()))[0])]
    safe = [env for env in runs if env not in unsafe]
    pictures, notes = [], ""
    for env in safe[:MAX_ENVS]:
        found, rest, failed = _predict_methods(env, runs, notify)
        if found:
            pictures.append(_draw(env, found))
        notes += omitted(f"in {env}, methods", rest)
        notes += f" In {env}, not loaded: {method_list(failed)}." if failed else ""
    notes += omitted("environments", safe[MAX_ENVS:])
    if unsafe:
        notes += f" Not shown, because their ids import code, which --import MODULE allows: {method_list(unsafe)}."
    if not pictures and not notes:
        return []
    text = (
        f"Each method is represented by the agent of its lowest seed, evaluated at {POINTS} fractions in states that "
        "random play visits from a fixed seed, the same for all methods. The figure shows the state in which the "
        "curves decrease most, summed over methods and actions; if none decreases, the state in which the means of the "
        "actions differ most. Titles give the fraction of changes that are decreases, over all states and actions. "
        f"Dots are {SETS} sets of random fractions, computed one after the other, for methods whose quantiles depend "
        "on the set; their decreases are those between neighbours of different sets. The outermost hundredths of a "
        "curve may lie outside the axes."
    )
    return [Section(title="Quantile functions", text=text + notes, pictures=pictures)]


def _predict_methods(
    env: str, runs: RunsByEnv, notify: Notify
) -> tuple[dict[str, StateQuantiles], list[str], list[str]]:
    """Return the quantiles of as many methods as fit, the methods left out, and those that failed with the reason."""
    first = {method: some[0] for method, some in runs[env].items()}
    found: dict[str, StateQuantiles] = {}
    rest, failed = [], []
    for method in alternate_heads(first):
        if len(found) == MAX_PANELS:
            rest.append(method)
            continue
        notify(f"quantile functions: {method} on {env}")
        try:
            found[method] = predict_quantiles(load_agent(first[method]))
        except (ConfigError, EnvironmentFault, OSError) as error:
            failed.append(f"{method} ({str(error).rstrip('.')})")
    return {method: found[method] for method in first if method in found}, rest, failed


def choose_state(curves: Sequence[Float[Tensor, "n A M"]]) -> int:
    """Return the state in which curves decrease most, or if none does, in which the actions' means differ most."""
    decreases = sum((-one.diff(dim=-1)).clamp_min(0).nan_to_num().sum(dim=(1, 2)) for one in curves)
    means = [one.mean(dim=-1).nan_to_num() for one in curves]
    differences = sum(mean.amax(dim=1) - mean.amin(dim=1) for mean in means)
    scores = torch.as_tensor(decreases if torch.as_tensor(decreases).any() else differences)
    return int(scores.argmax())


def choose_actions(curves: Sequence[Float[Tensor, "A M"]], most: int) -> Int[np.ndarray, " n"]:
    """Return the actions with the highest mean rank over methods, in order of their numbers."""
    ranks = torch.stack([(-one.mean(dim=-1)).argsort(stable=True).argsort() for one in curves])
    best = ranks.double().mean(dim=0).argsort(stable=True)[:most]
    return best.sort().values.numpy()


def _draw(env: str, found: Mapping[str, StateQuantiles]) -> Picture:
    state = choose_state([one.curves for one in found.values()])
    curves = [one.curves[state] for one in found.values()]
    total = len(curves[0])
    actions = choose_actions(curves, MAX_ACTIONS if total <= MAX_ACTIONS else BEST_ACTIONS)
    figure, axes = panel_figure(len(found), 3.0)
    for ax, (method, one) in zip(axes, found.items(), strict=True):
        pairs = zip(actions, ACTION_COLOURS, strict=False)
        drawn = [_plot(ax, one, state, int(action), colour) for action, colour in pairs]
        ax.set(xlim=(0, 1), ylim=_limits(drawn), xlabel="fraction $\\tau$")
        ax.set_title(f"{label(method, 34)}\n{_describe(one)}", fontsize="medium")
    for ax in axes[:: panel_columns(len(found))]:
        ax.set_ylabel("discounted return")
    entries = [
        (f"action {action}", Line2D([], [], color=colour))
        for action, colour in zip(actions, ACTION_COLOURS, strict=False)
    ]
    add_legend(figure, [*entries, ("decreases", Line2D([], [], color=DECREASE, linewidth=2.6))])
    states = len(next(iter(found.values())).curves)
    chosen = "" if total == len(actions) else f" Of {total} actions, the {len(actions)} that methods rank highest."
    caption = f"Quantile functions in {env}, in state {state + 1} of {states}.{chosen}"
    return Picture(name=f"quantiles-{file_name(env)}", figure=figure, caption=caption)


def _limits(curves: Sequence[Float[np.ndarray, " M"]]) -> tuple[float, float]:
    """Return the range of the curves without their outermost hundredths, which can be far off."""
    inner = [np.nan_to_num(curve)[len(curve) // 100 : len(curve) - len(curve) // 100] for curve in curves]
    low, high = min(float(one.min()) for one in inner), max(float(one.max()) for one in inner)
    margin = 0.15 * (high - low) or 1.0
    return low - margin, high + margin


def _describe(found: StateQuantiles) -> str:
    if found.sets is None:
        return f"{found.crossing:.1%} of changes decrease"
    return f"{found.crossing:.1%} decrease within a set,\n{found.crossing_between_sets:.1%} between {SETS} sets"


def _plot(ax: Axes, found: StateQuantiles, state: int, action: int, colour: str) -> Float[np.ndarray, " M"]:
    """Plot the curve of one action, or its sets as dots, with its decreases; return the plotted values."""
    if found.sets is None:
        taus, curve = np.linspace(0, 1, POINTS), found.curves[state, action].numpy()
        ax.plot(taus, curve, color=colour, linewidth=1.4)
    else:
        ordered, merged = found.sets.merged()
        taus, curve = ordered.numpy(), merged[state, action].numpy()
        ax.plot(taus, curve, ".-", color=colour, markersize=4, linewidth=0.6)
    width = 2.6 if found.sets is None else 1.2
    ax.plot(*decreasing_pieces(taus, curve), color=DECREASE, linewidth=width, solid_capstyle="round")
    return curve


def decreasing_pieces(
    taus: Float[np.ndarray, " M"], curve: Float[np.ndarray, " M"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Return the pieces between neighbours that decrease, as one line with gaps."""
    places = np.flatnonzero(np.diff(curve) < 0)
    gap = np.full(len(places), np.nan)
    across, up = (np.stack([line[places], line[places + 1], gap], axis=1).ravel() for line in (taus, curve))
    return across, up
