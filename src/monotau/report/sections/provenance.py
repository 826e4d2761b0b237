"""Where runs come from: versions, commits, machines, run times and settings."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from monotau.report.comparison import RunComparison
from monotau.report.formatting import format_duration, name_list, plural
from monotau.report.page import Notify, Section, Table
from monotau.report.sections.overview import count_by_method
from monotau.results.read import RunRecord

SHOWN_ELSEWHERE = ("preset", "seed", "env.id", "env.protocol", "env.kwargs")
"""Settings that other tables show."""

FACTS = ("commit", "python", "system", "processor", "cores", "memory_gb", "device")
"""Fields of each start of a run, besides the versions of packages."""


def provenance_sections(comparison: RunComparison, notify: Notify) -> list[Section]:
    """Return the section on versions, commits, machines and run times."""
    notify("provenance")
    runs = [run for run in comparison.runs if run.settings]
    if not runs:
        return []
    facts: dict[str, dict[str, list[RunRecord]]] = {}
    for run in runs:
        for name, value in _facts(run.starts):
            facts.setdefault(name, {}).setdefault(value, []).append(run)
    rows = [[name, value, count_by_method(found)] for name, values in facts.items() for value, found in values.items()]
    unrecorded = [run for run in runs if not run.starts]
    resumed = sum(len(run.starts) > 1 for run in runs)
    text = f"{plural(resumed, 'run')} resumed after an interruption." if resumed else ""
    if unrecorded:
        text += f" {plural(len(unrecorded), 'run')} recorded no provenance: {count_by_method(unrecorded)}."
    versions = Table(caption="Versions and machines.", columns=("field", "value", "runs"), rows=rows)
    times = _time_table(runs)
    return [Section(title="Provenance", text=text.strip(), tables=[table for table in (versions, times) if table.rows])]


def _facts(starts: Sequence[Mapping[str, Any]]) -> Iterable[tuple[str, str]]:
    """Return each fact about a run once, whatever its file contains."""
    found: dict[tuple[str, str], None] = {}
    for start in starts:
        packages = start.get("packages")
        for name, version in packages.items() if isinstance(packages, dict) else ():
            found[str(name), str(version)] = None
        for name in FACTS:
            if start.get(name) is not None:
                found[name.replace("_", " "), str(start[name])] = None
    times = sorted(str(start["time"])[:10] for start in starts if "time" in start)
    return [*found, *([("started", times[0])] if times else [])]


def _time_table(runs: Sequence[RunRecord]) -> Table:
    methods: dict[str, list[RunRecord]] = {}
    for run in runs:
        if run.seconds:
            methods.setdefault(run.method, []).append(run)
    rows = []
    for method, finished in methods.items():
        seconds = [run.seconds or 0.0 for run in finished]
        speed = sum(run.step for run in finished) / sum(seconds)
        mean, longest = format_duration(sum(seconds) / len(seconds)), format_duration(max(seconds))
        rows.append([method, f"{len(finished)}", mean, longest, format_duration(sum(seconds)), f"{speed:,.0f}"])
    columns = ("method", "runs", "mean", "longest", "total", "steps per second")
    return Table(caption="Run times of finished runs, including evaluations.", columns=columns, rows=rows)


def settings_sections(comparison: RunComparison, notify: Notify) -> list[Section]:
    """Return the section on settings: those that differ between runs, and those that all runs share."""
    notify("settings")
    runs = [run for run in comparison.runs if run.settings]
    if not runs:
        return []
    between, by_env, common = [], [], []
    for path in sorted({path for run in runs for path in run.settings} - {*SHOWN_ELSEWHERE}):
        values: dict[str, list[RunRecord]] = {}
        for run in runs:
            values.setdefault(_value(run, path), []).append(run)
        if len(values) == 1:
            common.append([path, *values])
        elif all(len({_value(run, path) for run in runs if run.env == env}) == 1 for env in {r.env for r in runs}):
            by_env += [[path, value, name_list(sorted({run.env for run in of}))] for value, of in values.items()]
        else:
            between += [[path, value, count_by_method(of)] for value, of in values.items()]
    tables = [
        Table(
            caption="Settings that differ between runs in the same environment; - if a run does not have the setting.",
            columns=("setting", "value", "methods (runs)"),
            rows=between,
        ),
        Table(
            caption="Settings that differ only between environments.",
            columns=("setting", "value", "environments"),
            rows=by_env,
        ),
        Table(caption="Settings that all runs share.", columns=("setting", "value"), rows=common),
    ]
    return [Section(title="Settings", tables=[table for table in tables if table.rows])]


def _value(run: RunRecord, path: str) -> str:
    if path not in run.settings:
        return "-"
    value = run.settings[path]
    return value if isinstance(value, str) else json.dumps(value)
