"""Audits of runs: learned return distributions compared with returns measured in the agent's own states."""

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from monotau.audit.summary import AuditSummary, read_summaries
from monotau.errors import ConfigError
from monotau.report.comparison import RunComparison
from monotau.report.formatting import format_estimate, format_number, method_list
from monotau.report.page import Notify, Picture, Section, Table
from monotau.report.plotting import (
    REFERENCE,
    add_legend,
    label,
    method_entries,
    method_styles,
    panel_columns,
    panel_figure,
)
from monotau.results.summary import Estimate
from monotau.runs.layout import AUDIT

MAX_PANELS = 12

ERRORS = {
    "w1_excess": "W1 above chance",
    "w1_relative": "in spreads",
    "bias": "bias of the mean",
    "cvar_excess": "error of CVaR(0.1)",
    "spread_excess": "error of the spread",
    "crossing": "crossing, %",
}
CALIBRATION_AND_CLAIMS = {
    "calibration_error": "calibration error",
    "inconsistent": "inconsistent actions, %",
    "refuted": "claims refuted, %",
    "reversed": "claims reversed, %",
    "confirmed": "claims confirmed, %",
}
"""Measures of the two tables, each of which fits on the page."""
SHARES = ("inconsistent", "crossing", "refuted", "reversed", "confirmed")

EXPLANATION = (
    "States are visited with the agent's policy. In each, every audited action is taken many times from a snapshot, "
    "and the agent then plays on greedily with new randomness. The discounted returns, clipped as in training, are "
    "compared with the learned distribution. W1 above chance is the 1-Wasserstein distance minus what sampling "
    "noise alone would give: 0 for an exact distribution. Errors of CVaR and spread are absolute, minus the same. "
    "An action is inconsistent if its returns are unlikely to be drawn from the learned distribution. A claim says "
    "that one action is better (mean) or safer (CVaR) than another; the strongest quarter is tested, and a claim is "
    "refuted if the true difference is significantly below half of what is claimed. False discoveries are limited to 5 "
    "%. Intervals are 95 % bootstrap intervals over episodes; they do not cover the variation between training seeds."
)


def audit_sections(comparison: RunComparison, notify: Notify) -> list[Section]:
    """Return the section on runs that `monotau audit` has audited."""
    found: list[AuditSummary] = []
    failed = []
    for run in comparison.started:
        path = run.directory / AUDIT
        if path.exists():
            notify(f"audit of {run.directory.name}")
            try:
                found += read_summaries(path)
            except ConfigError as error:
                failed.append(str(error).rstrip("."))
    if not found and not failed:
        return []
    text = EXPLANATION + (f" Could not be read: {method_list(failed)}." if failed else "")
    pictures = [calibration_picture(found), histogram_picture(found)] if found else []
    return [Section(title="Audit", text=text, pictures=pictures, tables=audit_tables(found) if found else [])]


def name_of(summary: AuditSummary) -> str:
    """Return the name of an audited agent."""
    return f"{summary.method}, seed {summary.seed}"


def cell(name: str, estimate: Estimate | None) -> str:
    """Return a measure with its interval, if it has one."""
    if estimate is None:
        return "-"
    factor = 100.0 if name in SHARES else 1.0
    return format_estimate(estimate, factor) if estimate.interval else format_number(factor * estimate.value)


def audit_tables(summaries: Sequence[AuditSummary]) -> list[Table]:
    """Return two tables with one row for each agent."""

    def cells(each: AuditSummary, names: Iterable[str]) -> list[str]:
        return [cell(name, each.estimate(name) if name in each.measures else None) for name in names]

    agents = [(each, (name_of(each), each.env)) for each in summaries]
    return [
        Table(
            caption="Errors of learned distributions, in units of return or in standard deviations of all returns of "
            "the audit (spreads; - if it is negligible): value and, from 5 episodes on, 95 % interval over episodes.",
            columns=("agent", "environment", "states x rollouts", *ERRORS.values()),
            rows=[(*name, f"{each.states} x {each.rollouts}", *cells(each, ERRORS)) for each, name in agents],
        ),
        Table(
            caption="Calibration and claims.",
            columns=("agent", "environment", "strong claims", *CALIBRATION_AND_CLAIMS.values(), "not measured"),
            rows=[
                (
                    *name,
                    str(each.claims),
                    *cells(each, CALIBRATION_AND_CLAIMS),
                    f"{each.unmeasured} of {each.pairs}" if each.unmeasured else "-",
                )
                for each, name in agents
            ],
        ),
    ]


def _by_env(summaries: Sequence[AuditSummary]) -> dict[str, list[AuditSummary]]:
    envs: dict[str, list[AuditSummary]] = {}
    for each in summaries:
        envs.setdefault(each.env, []).append(each)
    return envs


def calibration_picture(summaries: Sequence[AuditSummary]) -> Picture:
    """Draw the share of returns below each learned quantile, one panel for each environment."""
    envs = dict([*_by_env(summaries).items()][:MAX_PANELS])
    methods = [*dict.fromkeys(each.method for some in envs.values() for each in some)]
    styles = method_styles(methods)
    figure, axes = panel_figure(len(envs), 3.4)
    for number, (ax, (env, some)) in enumerate(zip(axes, envs.items(), strict=True)):
        ax.plot([0, 1], [0, 1], **REFERENCE)
        for each in some:
            style = styles[each.method]
            ax.fill_between(
                each.levels, each.shares_low, each.shares_high, color=style["color"], alpha=0.12, linewidth=0
            )
            ax.plot(each.levels, each.shares, linewidth=1.6, **style)
        ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="learned fraction $\\tau$")
        ax.set_title(label(env, 34), fontsize="medium")
        if number % panel_columns(len(envs)) == 0:
            ax.set_ylabel("share of returns below")
    add_legend(figure, [*method_entries(methods, styles), ("exact", Line2D([], [], **REFERENCE))])
    caption = (
        "Calibration: share of the measured returns below each learned quantile, with 95 % intervals over episodes. "
        "Above the diagonal the learned quantile is too high."
    )
    return Picture(name="audit-calibration", figure=figure, caption=caption)


def histogram_picture(summaries: Sequence[AuditSummary]) -> Picture:
    """Draw the histogram of learned fractions at which returns lie, one panel for each agent."""
    shown = summaries[:MAX_PANELS]
    figure, axes = panel_figure(len(shown), 2.3)
    for number, (ax, each) in enumerate(zip(axes, shown, strict=True)):
        _histogram(ax, each)
        ax.set_title(label(f"{name_of(each)}, {each.env}", 34), fontsize="small")
        if number % panel_columns(len(shown)) == 0:
            ax.set_ylabel("share of returns")
    caption = (
        "Histograms of the learned fraction at which each return lies. They are flat if the distributions are exact, "
        "high at both ends if the learned spread is too small, and high in the middle if it is too large. The band "
        "holds 95 % of the bars of an exact agent."
    )
    if len(summaries) > MAX_PANELS:
        caption += f" Shown are the first {MAX_PANELS} of {len(summaries)} agents."
    return Picture(name="audit-histograms", figure=figure, caption=caption)


def _histogram(ax: Axes, summary: AuditSummary) -> None:
    bins = len(summary.pit)
    even = 1 / bins
    error = 1.96 * np.sqrt(even * (1 - even) / summary.pit_count)
    ax.axhspan(even - error, even + error, color="0.6", alpha=0.5, linewidth=0)
    ax.bar((np.arange(bins) + 0.5) * even, summary.pit, width=0.92 * even, color="#0072B2", alpha=0.8)
    ax.set(xlim=(0, 1), xlabel="learned fraction $\\tau$")
