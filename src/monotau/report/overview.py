"""What was run: states, budgets, versions, machines and settings."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from monotau.report.cells import hours, listed, several, span
from monotau.report.reading import ReportedRun, State
from monotau.report.sections import Section, Table, Tell
from monotau.report.study import Study

NAMED_ELSEWHERE = ("preset", "seed", "env.id", "env.protocol", "env.kwargs")
"""Settings that the other tables already tell."""

FACTS = ("commit", "python", "system", "processor", "cores", "memory_gb", "device")
"""Of each start of a run, beside the versions of packages."""


def summary_sections(study: Study, tell: Tell) -> list[Section]:
    """Return the section that says what was run, and what of it does not count."""
    tell("summary")
    states = Counter(run.state for run in study.runs)
    text = (
        f"{several(len(study.runs), 'run')}: "
        + ", ".join(f"{states[state]} {state}" for state in get_args(State) if states[state])
        + f". {several(len(study.methods), 'method')} in {several(len(study.envs), 'environment')} can be shown. "
        "Unfinished runs count with what they have so far; damaged and repeated ones and those without an evaluation "
        "do not count, and are listed below."
    )
    tables = [_methods(study), *_unfinished(study), *_warned(study)]
    return [Section(title="Summary", text=text, warnings=cautions(study), tables=tables)]


def cautions(study: Study) -> list[str]:
    """Say what makes the numbers of a report less than they seem."""
    found = []
    for env in study.envs:
        budgets = {method: study.budgets(study.cells[method, env]) for method in study.methods_in(env)}
        if len({steps for each in budgets.values() for steps in each}) > 1:
            told = "; ".join(f"{method}: {span(steps)} steps" for method, steps in budgets.items())
            found.append(f"Budgets differ in {env}. {told}. Scores there compare agents of different training.")
        if (reasons := study.departures(env)) and env.startswith("ALE/"):
            found.append(f"{env} is not human-normalised, as of some run {'; '.join(reasons)}.")
    for family in study.families:
        sets = {
            method: [env for env in family.scales if (method, env) in study.cells]
            for method in study.methods
            if any((method, env) in study.cells for env in family.scales)
        }
        if len({*map(tuple, sets.values())}) > 1:
            shared = [env for env in family.scales if all(env in envs for envs in sets.values())]
            told = f"all have {listed(shared)} only" if shared else "none is common to all"
            found.append(
                f"{family.name}: methods have different environments, and {told}. Aggregates of all methods are over "
                f"those; methods with the same larger set have tables of their own."
            )
        found += [f"{env} is in no aggregate: {reason}." for env, reason in family.unscaled.items()]
    cut = [run for run in study.runs if run.counts and run.state == "unfinished"]
    if cut:
        found.append(f"{several(len(cut), 'run')} of those that count did not finish: the scores are of less training.")
    warned = [run for run in study.runs if run.counts and run.warnings()]
    if warned:
        found.append(
            f"{several(len(warned), 'run')} of those that count warned while training that something is wrong with the "
            f"network or its settings, as is listed below: {_by_method(warned)}."
        )
    single = [key for key, runs in study.cells.items() if len(runs) == 1]
    if single:
        found.append(
            f"Of {several(len(study.cells), 'pair')} of method and environment, {len(single)} with a single seed: "
            f"chance alone can make such differences, and there is no interval."
        )
    short = [run for run in study.runs if run.counts and len(run.evaluations()) < 2 * study.smooth]
    if short:
        found.append(
            f"{several(len(short), 'run')} with fewer than {2 * study.smooth} evaluations, so that the mean of the "
            f"last {study.smooth} reaches back over more than half of the training; --smooth takes fewer."
        )
    return found


def _methods(study: Study) -> Table:
    rows = []
    for method in dict.fromkeys(run.method for run in study.runs):
        runs = [run for run in study.runs if run.method == method]
        states = Counter(run.state for run in runs)
        steps = [run.settings["steps"] for run in runs if run.settings]
        seeds = {run.seed for run in runs if run.seed >= 0}
        envs = {run.env for run in runs if run.env != "unknown"}
        counts = [f"{states[state]}" if states[state] else "" for state in get_args(State)]
        rows.append([method, f"{len(envs)}", f"{len(seeds)}", span(steps) if steps else "-", *counts])
    return Table(caption="Runs by method.", columns=("method", "envs", "seeds", "steps", *get_args(State)), rows=rows)


def _unfinished(study: Study) -> list[Table]:
    rows = [
        [
            str(run.directory),
            run.method,
            run.env,
            f"{run.seed}" if run.seed >= 0 else "-",
            run.state,
            f"{run.step:,d} of {run.settings['steps']:,d}" if run.settings else "-",
            _reason(run),
        ]
        for run in study.runs
        if run.state != "finished" or not run.counts
    ]
    columns = ("directory", "method", "environment", "seed", "state", "step", "reason")
    caption = "Runs that did not finish, or do not count."
    return [Table(caption=caption, columns=columns, rows=rows)] if rows else []


def _warned(study: Study) -> list[Table]:
    rows = [
        [
            str(run.directory),
            run.method,
            run.env,
            f"{run.seed}",
            f"{line['step']:,d} of {run.settings['steps']:,d}",
            line["text"],
        ]
        for run in study.runs
        for line in run.warnings()
    ]
    columns = ("directory", "method", "environment", "seed", "step", "warning")
    return [Table(caption="What runs have warned of.", columns=columns, rows=rows)] if rows else []


def _reason(run: ReportedRun) -> str:
    empty = "no evaluation yet" if run.state == "unfinished" and not run.counts else ""
    return ", ".join(part for part in (run.reason, empty) if part)


def provenance_sections(study: Study, tell: Tell) -> list[Section]:
    """Return the section on versions, commits, machines and time."""
    tell("provenance")
    runs = [run for run in study.runs if run.settings]
    if not runs:
        return []
    facts: dict[str, dict[str, list[ReportedRun]]] = {}
    for run in runs:
        for name, value in _facts(run.starts):
            facts.setdefault(name, {}).setdefault(value, []).append(run)
    rows = [[name, value, _by_method(found)] for name, values in facts.items() for value, found in values.items()]
    without = [run for run in runs if not run.starts]
    resumed = sum(len(run.starts) > 1 for run in runs)
    text = f"{several(resumed, 'run')} went on after having been cut off." if resumed else ""
    if without:
        text += f" {several(len(without), 'run')} wrote down nothing of this: {_by_method(without)}."
    made = Table(caption="By what runs were made.", columns=("what", "value", "runs"), rows=rows)
    return [Section(title="Provenance", text=text.strip(), tables=[*([made] if rows else []), _times(runs)])]


def _facts(starts: Sequence[Mapping[str, Any]]) -> Iterable[tuple[str, str]]:
    """Return each fact of a run once, whatever stands in its file."""
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


def _by_method(runs: Sequence[ReportedRun]) -> str:
    counts = Counter(run.method for run in runs)
    return ", ".join(f"{method} ({count})" for method, count in sorted(counts.items()))


def _times(runs: Sequence[ReportedRun]) -> Table:
    groups: dict[str, list[ReportedRun]] = {}
    for run in runs:
        if run.seconds:
            groups.setdefault(run.method, []).append(run)
    rows = []
    for method, finished in groups.items():
        seconds = [run.seconds or 0.0 for run in finished]
        speed = sum(run.step for run in finished) / sum(seconds)
        mean, most = hours(sum(seconds) / len(seconds)), hours(max(seconds))
        rows.append([method, f"{len(finished)}", mean, most, hours(sum(seconds)), f"{speed:,.0f}"])
    columns = ("method", "runs", "mean", "longest", "sum", "steps per second")
    return Table(caption="Run time of finished runs, evaluations included.", columns=columns, rows=rows)


def settings_sections(study: Study, tell: Tell) -> list[Section]:
    """Return the section on settings: those that differ between runs, and those of all."""
    tell("settings")
    runs = [run for run in study.runs if run.settings]
    if not runs:
        return []
    between, by_env, common = [], [], []
    for path in sorted({path for run in runs for path in run.settings} - {*NAMED_ELSEWHERE}):
        values: dict[str, list[ReportedRun]] = {}
        for run in runs:
            values.setdefault(_written(run, path), []).append(run)
        if len(values) == 1:
            common.append([path, *values])
        elif all(len({_written(run, path) for run in runs if run.env == env}) == 1 for env in {r.env for r in runs}):
            by_env += [[path, value, listed(sorted({run.env for run in of}))] for value, of in values.items()]
        else:
            between += [[path, value, _by_method(of)] for value, of in values.items()]
    tables = [
        Table(
            caption="Settings that differ between runs in the same environment; - is a setting that a run does not "
            "have.",
            columns=("setting", "value", "methods (runs)"),
            rows=between,
        ),
        Table(
            caption="Settings that differ between environments only.",
            columns=("setting", "value", "environments"),
            rows=by_env,
        ),
        Table(caption="Settings common to all runs.", columns=("setting", "value"), rows=common),
    ]
    return [Section(title="Settings", tables=[table for table in tables if table.rows])]


def _written(run: ReportedRun, path: str) -> str:
    if path not in run.settings:
        return "-"
    value = run.settings[path]
    return value if isinstance(value, str) else json.dumps(value)
