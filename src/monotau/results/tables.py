"""Formats rows of scores as a text table, CSV or JSON."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from monotau.envs.atari import PROTOCOLS
from monotau.results.published import games_of, normalised, published, quoted, references
from monotau.results.summary import AGGREGATES, TAUS, Comparison, Estimate, Row, compare, profile_of

ENOUGH_GAMES = 5
"""Below this, the text table omits the probability of improvement; JSON always has it."""

HEADINGS = {"median": "median", "iqm": "IQM", "optimality_gap": "gap", "above_human": "> human", "mean": "mean"}

QUOTED = "Table 1 of the NDQFN paper as quoted (aggregates, not recomputed): 55 games, constants not stated"


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The rows to format, and how they were normalised."""

    rows: Sequence[Row]
    constants: str
    games: str
    per_game: bool


def warning() -> str:
    """Explain why means under the two sets of constants must not be compared."""
    iqn = next(source for source in published() if (source.algorithm, source.protocol) == ("IQN", "noop"))
    zoo, table1 = references("dqn_zoo")["video_pinball"].random, references("table1")["video_pinball"].random
    means = {}
    for constants in ("dqn_zoo", "table1"):
        scores = [normalised(game, score, constants) for game, score in iqn.scores.items()]
        means[constants] = 100 * sum(scores) / len(scores)
    return (
        f"Means under different constants must not be compared: the random score of Video Pinball is {zoo} in dqn_zoo "
        f"and {table1} in table1, and this one game changes the mean of IQN's published scores from "
        f"{means['table1']:.0f} to {means['dqn_zoo']:.0f} %. "
        "Medians and interquartile means of the published rows are the same under both."
    )


def to_table(selection: Selection) -> str:
    """Return text: one block for each protocol, the quoted table of the paper, and a warning about means."""
    random = references(selection.constants)["video_pinball"].random
    blocks = [
        f"Human-normalised scores in percent (random play 0, human 100) on {selection.games}, constants "
        f"{selection.constants} (Video Pinball's random score: {random}).\n"
        "In brackets: 95 % bootstrap intervals over the seeds of each game; - if a game has a single run.\n"
        "Published results have one score for each game, so they have no interval."
    ]
    for protocol, rules in PROTOCOLS.items():
        rows = [row for row in selection.rows if row.protocol == protocol]
        if rows:
            blocks.append("\n".join([f"Protocol {protocol}: {rules.about}", *_aggregates(rows), *_notes(rows)]))
        if comparisons := [pair for pair in compare(rows) if pair.games >= ENOUGH_GAMES]:
            title = f"Protocol {protocol}: probability of improvement in percent, on the games that both have"
            blocks.append("\n".join([title, *_comparisons(comparisons)]))
        if rows and selection.per_game:
            title = f"Protocol {protocol}, game by game: mean raw score (percent)"
            blocks.append("\n".join([title, *_per_game(rows, selection)]))
    lines = [["", "median", "> human", "mean"]]
    lines += [[row.method, f"{row.median}", f"{row.above_human}", f"{row.mean}"] for row in quoted()]
    blocks.append("\n".join([f"Protocol noop: {QUOTED}", *_aligned(lines)]))
    blocks.append(warning())
    return "\n\n".join(blocks) + "\n"


def _aggregates(rows: Sequence[Row]) -> list[str]:
    lines = [["", "score", *HEADINGS.values(), "games", "runs"]]
    for row in rows:
        published = row.measure == "published"
        cells = [_cell(key, row.aggregates[key], published=published) for key in AGGREGATES]
        games = f"{len(row.raw)} of {len(row.raw) + len(row.missing)}"
        lines.append([_name(row), row.measure, *cells, games, "-" if published else f"{sum(row.sample.runs)}"])
    return _aligned(lines)


def _name(row: Row) -> str:
    return f"{row.name} (partial)" if row.missing else row.name


def _notes(rows: Sequence[Row]) -> list[str]:
    """Name the origin of each row's scores and what is missing; rows with the same note share a line."""
    notes: dict[str, dict[str, None]] = {}
    for row in rows:
        parts = [row.origin]
        if row.unfinished:
            parts.append(f"{row.unfinished} of them unfinished, scored by their evaluations so far")
        if row.missing:
            few = f" ({', '.join(row.missing)})" if len(row.missing) <= 5 else ""
            parts.append(f"without {len(row.missing)} games{few}, so not comparable with aggregates over all")
        notes.setdefault("; ".join(parts), {})[row.name] = None
    return [f"  {', '.join(names)}: {note}" for note, names in notes.items()]


def _comparisons(comparisons: Sequence[Comparison]) -> list[str]:
    lines = [["", "over", "score", "P", "games"]]
    for pair in comparisons:
        cell = _cell("probability", pair.probability, published=pair.other.measure == "published")
        lines.append([pair.one.name, pair.other.name, pair.one.measure, cell, f"{pair.games}"])
    return _aligned(lines)


def _cell(key: str, estimate: Estimate, *, published: bool) -> str:
    value, low, high = ("-" if number is None else f"{number:.0f}" for number in _percent(key, estimate).values())
    if published:
        return value
    return f"{value} [{low}, {high}]" if estimate.interval else f"{value} -"


def _per_game(rows: Sequence[Row], selection: Selection) -> list[str]:
    lines = [["", *(f"{row.name} {row.measure}" for row in rows)]]
    for game in games_of(selection.games):
        cells = []
        for row in rows:
            raw = sum(row.raw[game]) / len(row.raw[game]) if game in row.raw else None
            percent = None if raw is None else 100 * normalised(game, raw, selection.constants)
            cells.append("missing" if raw is None else f"{raw:.1f} ({percent:.0f})")
        lines.append([game, *cells])
    return _aligned(lines)


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Align cells in columns: names to the left, numbers to the right."""
    first, *rest = ([*column] for column in zip(*lines, strict=True))
    names = [cell.ljust(max(map(len, first))) for cell in first]
    numbers = ([cell.rjust(max(map(len, column))) for cell in column] for column in rest)
    return ["  " + "  ".join(line) for line in zip(names, *numbers, strict=True)]


def to_csv(selection: Selection) -> str:
    """Return one line for each row, or for each game of each row, then the quoted rows; scores are in percent."""
    lines = _game_records(selection) if selection.per_game else _records(selection)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _records(selection: Selection) -> list[dict[str, Any]]:
    records = []
    for row in selection.rows:
        record = _head(row, selection) | {
            "games_present": len(row.raw),
            "games_wanted": len(games_of(selection.games)),
            "runs": sum(row.sample.runs) if row.measure != "published" else "",
            "unfinished": row.unfinished,
        }
        for key in AGGREGATES:
            record |= {f"{key}{end}": value for end, value in _percent(key, row.aggregates[key]).items()}
        records.append(record | {"origin": row.origin})
    for line in quoted():
        record = {"name": line.method, "score": "quoted", "protocol": "noop", "games": "atari55"}
        records.append(
            record | {"median": line.median, "above_human": line.above_human, "mean": line.mean, "origin": QUOTED}
        )
    return records


def _game_records(selection: Selection) -> list[dict[str, Any]]:
    return [
        _head(row, selection)
        | {"game": game, "run": run, "raw": raw, "percent": 100 * normalised(game, raw, selection.constants)}
        for row in selection.rows
        for game, values in row.raw.items()
        for run, raw in enumerate(values)
    ]


def _head(row: Row, selection: Selection) -> dict[str, Any]:
    return {
        "name": row.name,
        "score": row.measure,
        "protocol": row.protocol,
        "games": selection.games,
        "constants": selection.constants,
    }


def _percent(key: str, estimate: Estimate) -> dict[str, float | None]:
    factor = 1 if key == "above_human" else 100
    low, high = estimate.interval or (None, None)
    return {
        "": factor * estimate.value,
        "_low": None if low is None else factor * low,
        "_high": None if high is None else factor * high,
    }


def to_json(selection: Selection) -> str:
    """Return everything, including performance profiles; scores are fractions of the human's, not percent."""
    rows = []
    for row in selection.rows:
        shares, ends = profile_of(row)
        rows.append(
            _head(row, selection)
            | {
                "origin": row.origin,
                "runs": dict(zip(row.raw, row.sample.runs, strict=True)) if row.measure != "published" else None,
                "unfinished": row.unfinished,
                "missing": row.missing,
                "aggregates": {key: asdict(row.aggregates[key]) for key in AGGREGATES},
                "profile": {"shares": shares.tolist(), "interval": None if ends is None else ends.tolist()},
            }
            | ({"raw": row.raw} if selection.per_game else {})
        )
    comparisons = [
        {"one": c.one.name, "other": c.other.name, "score": c.one.measure, "protocol": c.one.protocol, "games": c.games}
        | asdict(c.probability)
        for c in compare(selection.rows)
    ]
    plain = {
        "scale": "random play 0, human 1",
        "taus": TAUS.tolist(),
        "rows": rows,
        "probability_of_improvement": comparisons,
        "quoted": {"protocol": "noop", "origin": QUOTED, "scale": "percent", "rows": [asdict(row) for row in quoted()]},
        "warning": warning(),
    }
    return json.dumps(plain, indent=2, allow_nan=False) + "\n"
