"""Comparisons between methods: improvement over a baseline, performance profiles, probability of improvement."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from monotau.report.comparison import RunComparison
from monotau.report.formatting import (
    batches,
    format_estimate,
    format_number,
    method_list,
    name_list,
)
from monotau.report.page import Notify, Picture, Section, Table
from monotau.report.plotting import (
    COLOURS,
    MAX_INTERVALS,
    NARROW,
    REFERENCE,
    WIDE,
    LineStyle,
    add_legend,
    label,
    method_entries,
    method_styles,
    new_figure,
)
from monotau.report.sections.curves import MAX_PANELS, interval_note, scale_label
from monotau.results.statistics import Sample, interval, performance_profile, probability_of_improvement
from monotau.results.summary import TAUS, Estimate, estimate

MAX_SHARED_BARS = 12
"""The bars of several methods share a figure for up to this many environments."""

MAX_PAIRS = 15
"""More pairs of methods are drawn as a matrix."""

BETTER, WORSE = COLOURS[0], COLOURS[1]

Profile = tuple[Float[np.ndarray, " T"], Float[np.ndarray, "2 T"] | None]
"""Fraction of runs above each score, and its interval."""


def improvement_sections(comparison: RunComparison, notify: Notify) -> list[Section]:
    """Return the section of relative improvement over the baseline, in environments where both have runs."""
    base, others = comparison.baseline, [method for method in comparison.methods if method != comparison.baseline]
    if base is None or not others:
        return []
    notify(f"improvement over {base}")
    gains = {method: improvements(comparison, method, base) for method in others}
    pictures = []
    known = {method: found for method, (found, _) in gains.items() if found}
    most = max((len(found) for found in known.values()), default=0)
    for page, some in enumerate(batches(known.items(), MAX_PANELS if most <= MAX_SHARED_BARS else 1), start=1):
        figure = draw_bars({f"{method} over {base}": found for method, found in some})
        caption = (
            f"Relative improvement over {base} in each environment: (A - random) / (B - random) - 1, of mean scores "
            "over seeds. Bars that would dwarf the others are cut off, with an arrow; their numbers are exact."
        )
        pictures.append(Picture(name=f"improvement-{page}", figure=figure, caption=caption))
    rows = [
        [env, method, f"{100 * gain:+,.1f}"] for method, (found, _) in gains.items() for env, gain in found.items()
    ] + [[env, method, f"- ({reason})"] for method, (_, none) in gains.items() for env, reason in none.items()]
    table = Table(
        caption=f"Relative improvement over {base} in percent.",
        columns=("environment", "method", "improvement, %"),
        rows=sorted(rows, key=lambda row: row[0]),
    )
    apart = [method for method, (found, none) in gains.items() if not found and not none]
    text = f"{method_list(apart)}: no environment in common with {base}." if apart else ""
    return [Section(title=f"Improvement over {base}", text=text, pictures=pictures, tables=[table] if rows else [])]


def improvements(comparison: RunComparison, method: str, base: str) -> tuple[dict[str, float], dict[str, str]]:
    """Return (A - random) / (B - random) - 1 by environment, and the reason where it is undefined."""
    found, undefined = {}, {}
    for env in comparison.envs:
        if (method, env) in comparison.cells and (base, env) in comparison.cells:
            scale = next((group.scales[env] for group in comparison.groups if env in group.scales), None)
            random = scale.random if scale else comparison.random_return(env)
            ours, theirs = (float(np.mean(comparison.scores(each, env))) for each in (method, base))
            if random is None:
                undefined[env] = "no run has measured random play"
            elif theirs <= random:
                undefined[env] = (
                    f"{base} scores {format_number(theirs)}, not more than random play with {format_number(random)}"
                )
            else:
                found[env] = (ours - random) / (theirs - random) - 1
    return found, undefined


def draw_bars(panels: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draw a labelled bar for each environment in each panel, the largest on top; very long bars are cut off."""
    columns = 1 if len(panels) == 1 else 2
    rows, most = -(-len(panels) // columns), max(len(bars) for bars in panels.values())
    width = NARROW if columns == 1 else WIDE
    figure, axes = new_figure(width, rows * (0.9 + 0.21 * most) + 0.3, len(panels), columns)
    for number, (ax, (title, bars)) in enumerate(zip(axes, panels.items(), strict=True)):
        names = sorted(bars, key=lambda name: bars[name])
        values = np.array([100 * bars[name] for name in names])
        limit = longest_bar(values)
        drawn = values.clip(-limit, limit)
        ax.barh(range(len(names)), drawn, color=[BETTER if value > 0 else WORSE for value in values], height=0.7)
        for place, (value, length) in enumerate(zip(values, drawn, strict=True)):
            arrow = "" if value == length else (" ▸" if value > 0 else "◂ ")
            text = f"{value:+,.0f} %" if abs(value) >= 10 else f"{value:+.1f} %"
            ax.annotate(
                text + arrow if value > 0 else arrow + text, (length, place), (3 if value >= 0 else -3, 0),
                textcoords="offset points", ha="left" if value >= 0 else "right", va="center", fontsize=7,
            )  # fmt: skip
        ax.set_yticks(range(len(names)), [label(name, 40, 1) for name in names], fontsize=8)
        low, high = min(0.0, drawn.min()), max(0.0, drawn.max())
        margin = 0.24 * max(high - low, 1.0)  # for the numbers at the ends of the bars
        ax.set_xlim(low - (margin if low < 0 else 0.05 * margin), high + (margin if high > 0 else 0.05 * margin))
        ax.set_ylim(-0.6, len(names) - 0.4)
        ax.xaxis.set_major_locator(MaxNLocator(6))
        ax.axvline(0, color="0.2", linewidth=0.8)
        ax.grid(visible=False, axis="y")
        ax.set_title(label(title, 60), fontsize="medium")
        if number + columns >= len(panels):
            ax.set_xlabel("relative improvement (%)")
    return figure


def longest_bar(values: Float[np.ndarray, " N"]) -> float:
    """Return the length at which bars are cut off, so that one outlier does not hide all others."""
    longest, usual = float(np.abs(values).max()), max(100.0, 4 * float(np.median(np.abs(values))))
    return longest if longest <= 2 * usual else usual


def profile_sections(comparison: RunComparison, notify: Notify) -> list[Section]:
    """Return the section of performance profiles, one figure for each comparable set."""
    pictures = []
    for place, chosen in enumerate(comparison.drawn_sets, start=1):
        notify(f"performance profiles of {chosen.title}")
        samples = {method: comparison.sample(chosen, method) for method in chosen.methods}
        highest = max(float(sample.values.max()) for sample in samples.values())
        taus = np.linspace(0.0, min(float(TAUS[-1]), max(1.0, 1.02 * highest)), 101)
        profiles = {
            method: (
                performance_profile(sample, taus),
                interval(lambda drawn: performance_profile(drawn, taus), sample),  # noqa: B023  # called immediately
            )
            for method, sample in samples.items()
        }
        styles = method_styles(comparison.styled_methods)
        figure = draw_profiles(profiles, 100 * taus, styles, f"normalised score (%), {scale_label(chosen)}")
        caption = (
            f"{chosen.title}: fraction of runs that score above the value on the axis; environments have equal weight. "
            f"{interval_note(chosen)} Environments: {name_list(chosen.envs)}."
        )
        pictures.append(Picture(name=f"profile-{chosen.group.slug}-{place}", figure=figure, caption=caption))
    return [Section(title="Performance profiles", pictures=pictures)] if pictures else []


def draw_profiles(
    profiles: Mapping[str, Profile], scores: Float[np.ndarray, " T"], styles: Mapping[str, LineStyle], xlabel: str
) -> Figure:
    """Draw the fraction of runs above each score."""
    figure, (ax,) = new_figure(NARROW, 4.2)
    for method, (fractions, ends) in profiles.items():
        if ends is not None and len(profiles) <= MAX_INTERVALS:
            ax.fill_between(scores, *(100 * ends), color=styles[method]["color"], alpha=0.16, linewidth=0)
        ax.plot(scores, 100 * fractions, linewidth=1.8, **styles[method])
    ax.set(xlabel=xlabel, ylabel="runs with a higher score (%)", ylim=(-2, 102))
    ax.set_xlim(scores[0], scores[-1])
    add_legend(figure, method_entries([*profiles], styles))
    return figure


def probability_sections(comparison: RunComparison, notify: Notify) -> list[Section]:
    """Return the section of probabilities of improvement between all pairs of methods of a comparable set."""
    pictures, tables = [], []
    for place, chosen in enumerate(comparison.drawn_sets, start=1):
        if len(chosen.methods) < 2:
            continue
        notify(f"probability of improvement in {chosen.title}")
        samples = {method: comparison.sample(chosen, method) for method in chosen.methods}
        pairs = [*combinations(chosen.methods, 2)]
        caption = (
            f"{chosen.title}: probability that a run of one method scores above a run of another in a random "
            f"environment; a tie counts half. Environments: {name_list(chosen.envs)}."
        )
        if len(pairs) <= MAX_PAIRS:
            found = [_better_first(samples, *pair) for pair in pairs]
            figure = draw_probabilities(found)
            caption += " Lines are 95 % bootstrap intervals; they require several seeds in every environment."
            rows = [[one, other, format_estimate(each, 100.0)] for one, other, each in found]
            tables.append(Table(caption=caption, columns=("method", "over", "probability, %"), rows=rows))
        else:
            figure = draw_matrix(chosen.methods, _matrix(samples))
            caption += " Each row is a method, compared with the method of the column."
        pictures.append(Picture(name=f"probability-{chosen.group.slug}-{place}", figure=figure, caption=caption))
    return [Section(title="Probability of improvement", pictures=pictures, tables=tables)] if pictures else []


def _better_first(samples: Mapping[str, Sample], one: str, other: str) -> tuple[str, str, Estimate]:
    """Compare two methods; the one with a probability of at least one half comes first."""
    if probability_of_improvement(samples[one], samples[other]) < 0.5:
        one, other = other, one
    return one, other, estimate(probability_of_improvement, samples[one], samples[other])


def _matrix(samples: Mapping[str, Sample]) -> Float[np.ndarray, "N N"]:
    return np.array(
        [[float(probability_of_improvement(one, other)) for other in samples.values()] for one in samples.values()]
    )


def draw_probabilities(rows: Sequence[tuple[str, str, Estimate]]) -> Figure:
    """Draw the probability of improvement of each pair of methods as a dot with its interval."""
    labels = [f"{label(one, 36, 2)}\nover {label(other, 36, 2)}" for one, other, _ in rows]
    heights = [0.2 + 0.14 * text.count("\n") for text in labels]
    figure, (ax,) = new_figure(NARROW, 1.0 + sum(heights))
    places = -np.cumsum(heights)
    for place, (_, _, found) in zip(places, rows, strict=True):
        if found.interval is not None:
            ends = 100 * np.array(found.interval)
            ax.plot(ends, [place, place], color=COLOURS[0], linewidth=2.2, solid_capstyle="butt")
        ax.plot(100 * found.value, place, "o", color=COLOURS[0], markersize=6, clip_on=False, zorder=3)
    ax.axvline(50, **REFERENCE)
    ax.set_yticks(places, labels, fontsize=8)
    ax.set(xlabel="probability of improvement (%)", xlim=(0, 100), ylim=(places[-1] - 0.25, places[0] + 0.25))
    return figure


def draw_matrix(methods: Sequence[str], values: Float[np.ndarray, "N N"]) -> Figure:
    """Draw the probability that the method of a row beats that of a column."""
    size = 2.6 + 0.27 * len(methods)
    figure, (ax,) = new_figure(max(NARROW, size + 2.4), size)
    image = ax.imshow(100 * values, cmap="PuOr", vmin=0, vmax=100)
    for row, column in np.ndindex(values.shape):
        if row != column:
            share = 100 * values[row, column]
            ax.text(
                column, row, f"{share:.0f}", ha="center", va="center", fontsize=6.5,
                color="white" if abs(share - 50) > 35 else "black",
            )  # fmt: skip
    numbers = range(len(methods))
    ax.set_yticks(numbers, [f"{label(name, 40, 1)}  {place + 1}" for place, name in enumerate(methods)], fontsize=8)
    ax.set_xticks(numbers, [str(place + 1) for place in numbers], fontsize=7)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.set_xlabel("over the method with this number")
    figure.colorbar(image, ax=ax, shrink=0.6, label="probability of improvement (%)")
    return figure
