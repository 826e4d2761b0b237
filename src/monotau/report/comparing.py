"""Sections that show methods against each other: curves, improvement, profiles and probabilities."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Float

from monotau.report.cells import estimated, listed, number, pages, several
from monotau.report.curves import Curve, aggregate_curve, by_share, curve_of
from monotau.report.drawing import (
    MOST_BANDS,
    Panel,
    draw_bars,
    draw_matrix,
    draw_panels,
    draw_probabilities,
    draw_profiles,
    looks,
)
from monotau.report.sections import Picture, Section, Table, Tell
from monotau.report.study import Block, Study
from monotau.results.statistics import Sample, interval, performance_profile, probability_of_improvement
from monotau.results.summary import TAUS, Estimate, estimate

MOST_PANELS = 12
"""Of one figure."""

FEW_BARS = 12
"""Environments up to which the bars of several methods share a figure."""

MOST_PAIRS = 15
"""Drawn one by one; more make a matrix."""

STEPS = "training steps (agent decisions)"


def curve_sections(study: Study, tell: Tell) -> list[Section]:
    """Return the section of learning curves, a panel for each environment."""
    panels, notes = [], []
    for env in study.envs:
        tell(f"learning curve of {env}")
        found = {method: curve_of(study.cells[method, env], study.smooth) for method in study.methods_in(env)}
        curves = {method: curve for method, curve in found.items() if curve}
        notes += [
            f"{method} in {env} ends at step {curve.steps[-1]:,.0f}, where its shortest run does."
            for method, curve in curves.items()
            if curve.shortened
        ]
        notes += [
            f"{method} in {env} has no curve: its seeds were never evaluated at the same step."
            for method in found
            if method not in curves
        ]
        random = study.random_return(env)
        panels.append(Panel(title=env, curves=curves, level=None if random is None else ("random play", random)))
    pictures = []
    for page, some in enumerate(pages(panels, MOST_PANELS), start=1):
        figure = draw_panels(some, looks(study.methods), xlabel=STEPS, ylabel="return of an episode")
        seeds = {len(study.cells[method, panel.title]) for panel in some for method in panel.curves}
        pictures.append(Picture(name=f"curves-{page}", figure=figure, caption=_curves_caption(study, some, seeds)))
    return [Section(title="Learning curves", text=" ".join(notes), pictures=pictures)] if pictures else []


def _curves_caption(study: Study, panels: Sequence[Panel], seeds: set[int]) -> str:
    counted = f"{min(seeds)} to {max(seeds)} seeds" if len(seeds) > 1 else several(max(seeds, default=0), "seed")
    bands = "bands are 95 % bootstrap intervals of the mean over seeds"
    if max(seeds, default=0) < 2:
        bands = "with a single seed there is no interval"
    elif len(study.methods) > MOST_BANDS:
        bands = f"intervals are drawn for up to {MOST_BANDS} methods"
    atari = " On Atari a step is four frames." if any(panel.title.startswith("ALE/") for panel in panels) else ""
    return (
        f"Mean evaluation return over {counted}, each smoothed over its last {study.smooth} evaluations (fewer at the "
        f"start); {bands}. A line ends where its shortest run does.{atari}"
    )


def aggregate_curve_sections(study: Study, tell: Tell) -> list[Section]:
    """Return the section of interquartile means against steps, a figure for each block."""
    pictures = []
    for place, block in enumerate(study.compared, start=1):
        found: dict[str, Curve | None] = {}
        for method in block.methods:
            tell(f"aggregate curve of {method}")
            found[method] = aggregate_curve(study, block, method)
        curves = {method: _in_percent(curve) for method, curve in found.items() if curve}
        if not curves:
            continue
        share = by_share(study, block)
        figure = draw_panels(
            [Panel(title=block.title, curves=curves)],
            looks(study.methods),
            xlabel="share of the training budget (%)" if share else STEPS,
            ylabel=f"IQM of normalised scores (%)\n{_scale(block)}",
        )
        missing = [method for method, curve in found.items() if curve is None]
        caption = (
            f"Interquartile mean over runs and environments ({listed(block.envs)}) of scores normalised and smoothed "
            f"over {study.smooth} evaluations. {_bands(block)} A line ends where its shortest run does."
            + (" Budgets differ between environments, so steps are told as a share of them." if share else "")
            + (f" Runs of {listed(missing)} have no step in common." if missing else "")
        )
        pictures.append(Picture(name=f"iqm-{block.family.slug}-{place}", figure=figure, caption=caption))
    return [Section(title="Aggregate learning curves", pictures=pictures)] if pictures else []


def _in_percent(curve: Curve) -> Curve:
    return Curve(
        steps=curve.steps,
        values=100 * curve.values,
        ends=None if curve.ends is None else 100 * curve.ends,
        seeds=curve.seeds,
        shortened=curve.shortened,
    )


def _bands(block: Block) -> str:
    if len(block.methods) > MOST_BANDS:
        return f"Intervals are drawn for up to {MOST_BANDS} methods."
    return "Bands are pointwise 95 % bootstrap intervals, where every environment has several seeds."


def _scale(block: Block) -> str:
    return f"random play 0, {block.family.reference} 100"


def improvement_sections(study: Study, tell: Tell) -> list[Section]:
    """Return the section of relative improvement over the baseline, where both have runs."""
    base, others = study.baseline, [method for method in study.methods if method != study.baseline]
    if base is None or not others:
        return []
    tell(f"improvement over {base}")
    gains = {method: improvements(study, method, base) for method in others}
    pictures = []
    known = {method: found for method, (found, _) in gains.items() if found}
    most = max((len(found) for found in known.values()), default=0)
    for page, some in enumerate(pages(known.items(), MOST_PANELS if most <= FEW_BARS else 1), start=1):
        panels = {f"{method} over {base}": found for method, found in some}
        figure = draw_bars(panels, xlabel="relative improvement (%)")
        caption = (
            f"Relative improvement over {base} in each environment: (A - random) / (B - random) - 1, of mean scores "
            f"over seeds. Bars that would dwarf the others are cut, with an arrow; their numbers are true."
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
    missing = [method for method, (found, none) in gains.items() if not found and not none]
    text = f"{listed(missing)}: no environment in common with {base}." if missing else ""
    return [Section(title=f"Improvement over {base}", text=text, pictures=pictures, tables=[table] if rows else [])]


def improvements(study: Study, method: str, base: str) -> tuple[dict[str, float], dict[str, str]]:
    """Return (A - random) / (B - random) - 1 by environment, and why there is none in others that both have."""
    found, none = {}, {}
    for env in study.envs:
        if (method, env) in study.cells and (base, env) in study.cells:
            scale = next((family.scales[env] for family in study.families if env in family.scales), None)
            random = scale.random if scale else study.random_return(env)
            ours, theirs = (float(np.mean(study.scores(each, env))) for each in (method, base))
            if random is None:
                none[env] = "no run has measured random play"
            elif theirs <= random:
                none[env] = f"{base} scores {number(theirs)}, no more than random play with {number(random)}"
            else:
                found[env] = (ours - random) / (theirs - random) - 1
    return found, none


def profile_sections(study: Study, tell: Tell) -> list[Section]:
    """Return the section of performance profiles, a figure for each block."""
    pictures = []
    for place, block in enumerate(study.compared, start=1):
        tell(f"performance profiles of {block.title}")
        samples = {method: study.sample(block, method) for method in block.methods}
        highest = max(float(sample.values.max()) for sample in samples.values())
        taus = np.linspace(0.0, min(float(TAUS[-1]), max(1.0, 1.02 * highest)), 101)
        profiles = {
            method: (
                performance_profile(sample, taus),
                interval(lambda drawn: performance_profile(drawn, taus), sample),  # noqa: B023  # called at once
            )
            for method, sample in samples.items()
        }
        figure = draw_profiles(
            profiles, 100 * taus, looks(study.methods), xlabel=f"normalised score (%), {_scale(block)}"
        )
        caption = (
            f"{block.title}: share of runs whose score is above the one on the axis; environments weigh the same. "
            f"{_bands(block)} Environments: {listed(block.envs)}."
        )
        pictures.append(Picture(name=f"profile-{block.family.slug}-{place}", figure=figure, caption=caption))
    return [Section(title="Performance profiles", pictures=pictures)] if pictures else []


def probability_sections(study: Study, tell: Tell) -> list[Section]:
    """Return the section of probabilities of improvement, for all pairs of each block."""
    pictures, tables = [], []
    for place, block in enumerate(study.compared, start=1):
        if len(block.methods) < 2:
            continue
        tell(f"probability of improvement in {block.title}")
        samples = {method: study.sample(block, method) for method in block.methods}
        pairs = [*combinations(block.methods, 2)]
        caption = (
            f"{block.title}: probability that a run of one method scores above a run of another in an environment "
            f"drawn at random; a tie is half. Environments: {listed(block.envs)}."
        )
        if len(pairs) <= MOST_PAIRS:
            found = [_likelier(samples, *pair) for pair in pairs]
            figure = draw_probabilities([(one, other, each.value, each.interval) for one, other, each in found])
            caption += " Lines are 95 % bootstrap intervals, where every environment has several seeds."
            rows = [[one, other, estimated(each, 100.0)] for one, other, each in found]
            tables.append(Table(caption=caption, columns=("method", "over", "probability, %"), rows=rows))
        else:
            figure = draw_matrix(block.methods, _matrix(samples))
            caption += " Each row is a method over that of the column."
        pictures.append(Picture(name=f"probability-{block.family.slug}-{place}", figure=figure, caption=caption))
    return [Section(title="Probability of improvement", pictures=pictures, tables=tables)] if pictures else []


def _likelier(samples: Mapping[str, Sample], one: str, other: str) -> tuple[str, str, Estimate]:
    """Compare two methods, and name the one first that is the likelier to score above the other."""
    if probability_of_improvement(samples[one], samples[other]) < 0.5:
        one, other = other, one
    return one, other, estimate(probability_of_improvement, samples[one], samples[other])


def _matrix(samples: Mapping[str, Sample]) -> Float[np.ndarray, "N N"]:
    return np.array(
        [[float(probability_of_improvement(one, other)) for other in samples.values()] for one in samples.values()]
    )
