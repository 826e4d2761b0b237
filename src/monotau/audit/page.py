"""The output of an audit: a page with figures, and its numbers as JSON and CSV."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped
from matplotlib.figure import Figure

from monotau.audit.curves import Curve
from monotau.audit.summary import FORMAT, AgentAudit, AuditSummary, joined
from monotau.errors import ConfigError
from monotau.report.formatting import file_name, plural
from monotau.report.page import FIGURES, PAGE, TABLES, Picture, Section, Table, to_html, to_markdown
from monotau.report.plotting import COLOURS, WIDE, label, new_figure, render
from monotau.report.sections.audit import (
    CALIBRATION_AND_CLAIMS,
    ERRORS,
    EXPLANATION,
    audit_tables,
    calibration_picture,
    cell,
    histogram_picture,
    name_of,
)
from monotau.runs.files import write_bytes, write_json
from monotau.runs.layout import AUDIT, LOCK

CSV, PARTS = "audit.csv", "parts"
OWN = {AUDIT, CSV, PARTS, PAGE, TABLES, FIGURES, LOCK}
"""Everything that an audit writes into its directory."""
WORST = 3
"""Worst actions of each agent that are drawn."""
MAX_DRAWN = 24


@dataclass(frozen=True)
class Audited:
    """An agent's audit, the names of its actions, and the pictures of its states, by the number of the state."""

    audit: AgentAudit
    action_names: Sequence[str]
    pictures: Mapping[int, Shaped[np.ndarray, "H W 3"]]


def check_output(directory: Path) -> None:
    """Refuse an output directory that contains anything other than an audit."""
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"--out is {directory}, which is not a directory.")
    if directory.exists() and (others := sorted({path.name for path in directory.iterdir()} - OWN)):
        raise ConfigError(
            f"--out is {directory}, which contains {others[0]}, no part of an audit; name a new or an empty directory."
        )


def plain(summaries: Sequence[AuditSummary]) -> dict[str, Any]:
    """Return the contents of audit.json."""
    return {"format": FORMAT, "agents": [asdict(summary) for summary in summaries]}


def write_page(directory: Path, audited: Sequence[Audited], on_figure: Callable[[], None] = lambda: None) -> None:
    """Write the page, its figures and tables, the JSON and the CSV."""
    audits = [each.audit for each in audited]
    sections = sections_of(audited)
    title = f"Audit of {plural(len(audited), 'agent')}"
    whose = "the agent's" if len(audited) == 1 else "the agents'"
    about = f"Learned return distributions against returns measured in {whose} own states. Data: audit.json, audit.csv."
    write_json(directory / AUDIT, plain([audit.summary for audit in audits]))
    write_bytes(directory / CSV, to_csv(audits).encode())
    (directory / FIGURES).mkdir(exist_ok=True)
    stale = {path.name for path in (directory / FIGURES).iterdir()}
    svgs = {}
    for picture in (picture for section in sections for picture in section.pictures):
        for suffix in ("png", "svg"):
            data = render(picture.figure, suffix)
            write_bytes(directory / FIGURES / f"{picture.name}.{suffix}", data)
            stale.discard(f"{picture.name}.{suffix}")
        svgs[picture.name] = data
        on_figure()
    write_bytes(directory / TABLES, to_markdown(title, sections).encode())
    write_bytes(directory / PAGE, to_html(title, about, sections, svgs).encode())
    for name in stale:
        (directory / FIGURES / name).unlink(missing_ok=True)


def to_csv(audits: Sequence[AgentAudit]) -> str:
    """Return one line for each audited action of a state."""
    text = io.StringIO()
    writer = None
    for audit in audits:
        summary = audit.summary
        for pair, found in zip(audit.pairs, audit.found, strict=True):
            row = {
                "method": summary.method,
                "env": summary.env,
                "seed": summary.seed,
                "directory": summary.directory,
                "state": pair.state,
                "episode": pair.episode,
                "step": pair.step,
                "action": pair.action,
                "greedy": int(pair.greedy),
                "rollouts": len(pair.returns),
                "rollout_steps": float(pair.steps.mean()),
                "crossing": pair.crossing,
            } | asdict(found)
            if writer is None:
                writer = csv.DictWriter(text, [*row], lineterminator="\n")
                writer.writeheader()
            writer.writerow(row)
    return text.getvalue()


def sections_of(audited: Sequence[Audited]) -> list[Section]:
    """Return the sections of the page."""
    summaries = [each.audit.summary for each in audited]
    tables = [*methods_tables([each.audit for each in audited]), *audit_tables(summaries)]
    warnings = [
        f"{name_of(each)} in {each.env}: {each.unmeasured} of {each.pairs} audited actions are left out, because the "
        "environment truncated a rollout itself while rewards still counted."
        for each in summaries
        if each.unmeasured
    ]
    return [
        Section(title="Result", text=EXPLANATION, warnings=warnings, tables=tables),
        Section(title="Calibration", pictures=[calibration_picture(summaries), histogram_picture(summaries)]),
        Section(
            title="Claims",
            text="How the strong claims of each kind fared: better compares means, safer compares CVaR(0.1). A claim "
            "may be confirmed (the difference is there, and not significantly below half of the claim), refuted or "
            "undecided; reversed ones are refuted and significantly the other way round.",
            tables=[claims_table([each.audit for each in audited])],
        ),
        Section(
            title="Worst actions",
            text=f"The {WORST} actions of each agent with the largest W1 above chance, each in a different state: the "
            "state, and the learned quantile function beside that of the measured returns.",
            pictures=[picture for each in audited for picture in worst_pictures(each)][:MAX_DRAWN],
        ),
    ]


def methods_tables(audits: Sequence[AgentAudit]) -> list[Table]:
    """Return two tables with means over agents, one row for each method and environment, if any has several agents."""
    groups: dict[tuple[str, str], list[AgentAudit]] = {}
    for audit in audits:
        groups.setdefault((audit.summary.method, audit.summary.env), []).append(audit)
    if len(groups) == len(audits):
        return []
    return [
        Table(
            caption=f"{caption}: mean over agents, with the 95 % interval over the episodes of all of them.",
            columns=("method", "environment", "agents", *columns.values()),
            rows=[
                (*name, str(len(some)), *(cell(each, joined(some, each)) for each in columns))
                for name, some in groups.items()
            ],
        )
        for caption, columns in (
            ("Errors by method", ERRORS),
            ("Calibration and claims by method", CALIBRATION_AND_CLAIMS),
        )
    ]


def claims_table(audits: Sequence[AgentAudit]) -> Table:
    """Return one row for each agent and kind of claim."""
    rows = []
    for audit in audits:
        for kind in dict.fromkeys(verdict.claim.kind for verdict in audit.verdicts):
            some = [verdict for verdict in audit.verdicts if verdict.claim.kind == kind]
            counts = [
                sum(verdict.confirmed for verdict in some),
                sum(verdict.refuted for verdict in some),
                sum(verdict.reversed for verdict in some),
                sum(not verdict.confirmed and not verdict.refuted for verdict in some),
            ]
            rows.append((name_of(audit.summary), audit.summary.env, kind, str(len(some)), *map(str, counts)))
    return Table(
        caption="Strong claims by kind. Agents whose audit covers one action per state make no claims.",
        columns=("agent", "environment", "kind", "claims", "confirmed", "refuted", "of which reversed", "undecided"),
        rows=rows,
    )


def worst_pictures(audited: Audited) -> list[Picture]:
    """Draw the actions with the largest W1 above chance, at most one of each state."""
    audit = audited.audit
    order = np.argsort([-found.w1_excess for found in audit.found], kind="stable")
    chosen: dict[int, int] = {}
    for number in order:
        chosen.setdefault(audit.pairs[number].state, int(number))
    name = f"worst-{file_name(audit.summary.method)}-{file_name(audit.summary.env)}-seed{audit.summary.seed}"
    figures = []
    for rank, (state, number) in enumerate([*chosen.items()][:WORST], start=1):
        pair, found = audit.pairs[number], audit.found[number]
        action = audited.action_names[pair.action] + (" (its choice)" if pair.greedy else "")
        caption = (
            f"{name_of(audit.summary)} in {audit.summary.env}: {action} in step "
            f"{pair.step} of an episode. W1 {found.w1:.3g}, by chance {found.noise:.3g}; mean learned "
            f"{found.learned_mean:.3g}, measured {found.mean:.3g}; p = {found.p_value:.2g}."
        )
        figure = _draw(pair.curve, pair.returns, audited.pictures.get(state))
        figures.append(Picture(name=f"{name}-{rank}", figure=figure, caption=caption))
    return figures


def _draw(curve: Curve, returns: np.ndarray, picture: np.ndarray | None) -> Figure:
    if picture is None:
        figure, (ax,) = new_figure(WIDE * 0.6, 2.8)
    else:
        figure, (state, ax) = new_figure(WIDE * 0.85, 2.8, 2, ratios=(1, 2))
        state.imshow(picture, interpolation="nearest")
        state.set_axis_off()
    taus = np.repeat(curve.edges, 2)[1:-1]
    ax.plot(taus, np.stack([curve.left, curve.right], axis=1).ravel(), color=COLOURS[0], linewidth=1.8, label="learned")
    measured = np.sort(returns)
    ax.stairs(
        measured, np.linspace(0, 1, len(measured) + 1), color=COLOURS[1], linewidth=1.8, baseline=None, label="measured"
    )
    ax.set(xlim=(0, 1), xlabel="fraction $\\tau$", ylabel=label("discounted return"))
    ax.legend(frameon=False, fontsize="small")
    return figure
