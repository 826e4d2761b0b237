"""Writes a report: one HTML page without dependencies, its tables as Markdown, its figures and its data as files."""

import base64
import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib.resources import files
from pathlib import Path

from matplotlib.figure import Figure

from monotau.errors import ConfigError
from monotau.report.plotting import render
from monotau.results.read import RunRecord
from monotau.runs.files import write_bytes, writing

PAGE, RESULTS, TRAINING, TABLES, FIGURES = "index.html", "results.csv", "training.csv", "table.md", "figures"

GENERATOR = '<meta name="generator" content="monotau report">'
"""Identifies a page that may be overwritten."""

CSV_COLUMNS = ("method", "env", "protocol", "seed", "state", "step", "measure", "value")

_NUMERIC = re.compile(r"([\d.,+%\[\]() -]|\b(to|of|x)\b)+")
_INTERVAL = re.compile(r"([\d.,e+-]+) (\[[\d.,e+ -]+\])")

Notify = Callable[[str], None]
"""Called with a few words on the current work, for the progress display."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure with its caption."""

    name: str
    """Name of its files without suffix."""
    figure: Figure
    caption: str


@dataclass(frozen=True, kw_only=True)
class Table:
    """Formatted cells with a caption."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def without_empty_columns(self) -> "Table":
        """Leave out columns in which every cell is empty or a dash."""
        kept = [column for column in range(len(self.columns)) if any(row[column] not in ("", "-") for row in self.rows)]
        return replace(
            self,
            columns=[self.columns[column] for column in kept],
            rows=[[row[column] for column in kept] for row in self.rows],
        )


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page: text, then pictures, warnings and tables."""

    title: str
    text: str = ""
    pictures: Sequence[Picture] = ()
    warnings: Sequence[str] = ()
    """Highlighted paragraphs."""
    tables: Sequence[Table] = ()


def check_output(directory: Path) -> None:
    """Reject an output directory that contains anything other than a report."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise ConfigError(f"--out is {directory}, which is not a directory.")
    if any(directory.iterdir()) and GENERATOR not in _earlier_page(directory):
        raise ConfigError(
            f"--out is {directory}, which is not empty and contains no report; name a new or an empty directory."
        )


def _earlier_page(directory: Path) -> str:
    path = directory / PAGE
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def write_report_files(
    directory: Path,
    title: str,
    about: str,
    sections: Sequence[Section],
    runs: Sequence[RunRecord],
    on_figure: Callable[[], None],
) -> None:
    """Write the report, the page last, and delete figures of an earlier report; `on_figure` is called after each."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, kinds in ((RESULTS, ("random", "eval")), (TRAINING, ("train",))):
        with writing(directory / name) as writer:
            for text in to_csv(runs, kinds):
                writer.write(text.encode())
    write_bytes(directory / TABLES, to_markdown(title, sections).encode())
    write_page(directory, title, about, sections, on_figure)


def write_page(
    directory: Path, title: str, about: str, sections: Sequence[Section], on_figure: Callable[[], None] = lambda: None
) -> None:
    """Write the figures and then the page, and delete figures that only an earlier page shows."""
    stale = {*re.findall(rf'href="({FIGURES}/[\w-]+\.(?:png|svg))"', _earlier_page(directory))}
    (directory / FIGURES).mkdir(parents=True, exist_ok=True)
    svgs = {}
    for picture in (picture for section in sections for picture in section.pictures):
        for suffix in ("png", "svg"):
            name = f"{FIGURES}/{picture.name}.{suffix}"
            data = render(picture.figure, suffix)
            write_bytes(directory / name, data)
            stale.discard(name)
            picture.figure.set_layout_engine("none")  # the second file reuses the layout, which is slow to compute
        svgs[picture.name] = data
        on_figure()
    write_bytes(directory / PAGE, to_html(title, about, sections, svgs).encode())
    for name in stale:
        (directory / name).unlink(missing_ok=True)


def to_html(title: str, about: str, sections: Sequence[Section], svgs: Mapping[str, bytes]) -> str:
    """Return the page; all text of the sections is escaped."""
    style = (files("monotau.report") / "page.css").read_text(encoding="utf-8")
    contents = "".join(f'<li><a href="#s{place}">{escape(each.title)}</a></li>' for place, each in enumerate(sections))
    body = "\n".join(_section(place, section, svgs) for place, section in enumerate(sections))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{GENERATOR}\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{escape(title)}</h1>\n<p>{escape(about)}</p>\n</header>\n"
        f'<nav aria-label="Contents"><ol>{contents}</ol></nav>\n<main>\n{body}\n</main>\n</body>\n</html>\n'
    )


def _section(place: int, section: Section, svgs: Mapping[str, bytes]) -> str:
    parts = [f'<section id="s{place}">\n<h2>{escape(section.title)}</h2>']
    parts += [f"<p>{escape(paragraph)}</p>" for paragraph in section.text.split("\n\n") if paragraph.strip()]
    parts += [_picture(picture, svgs[picture.name]) for picture in section.pictures]
    parts += [f'<p class="loud">{escape(warning)}</p>' for warning in section.warnings]
    parts += [_table(table.without_empty_columns()) for table in section.tables]
    return "\n".join([*parts, "</section>"])


def _picture(picture: Picture, svg: bytes) -> str:
    name, caption = escape(picture.name), escape(picture.caption)
    width, height = (round(96 * inches) for inches in picture.figure.get_size_inches())
    data = base64.b64encode(svg).decode()
    return (
        f'<figure>\n<a href="{FIGURES}/{name}.svg"><img src="data:image/svg+xml;base64,{data}" alt="{caption}" '
        f'width="{width}" height="{height}"></a>\n<figcaption>{caption} '
        f'Files: <a href="{FIGURES}/{name}.png">PNG</a>, <a href="{FIGURES}/{name}.svg">SVG</a>.</figcaption>\n'
        "</figure>"
    )


def _table(table: Table) -> str:
    kinds = ["" if _is_numeric(table, column) else ' class="text"' for column in range(len(table.columns))]
    head = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, table.columns, strict=True))
    rows = "\n".join(
        f"<tr>{''.join(f'<td{kind}>{_cell(cell)}</td>' for kind, cell in zip(kinds, row, strict=True))}</tr>"
        for row in table.rows
    )
    return (
        # A caption element would scroll sideways with the table on a narrow screen.
        f'<p class="caption">{escape(table.caption)}</p>\n'
        f'<div class="scroll"><table aria-label="{escape(table.caption)}">\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _cell(text: str) -> str:
    """Return a cell in which an interval may move below its value, so that wide tables fit on the page."""
    if interval := _INTERVAL.fullmatch(text):
        value, ends = map(escape, interval.groups())
        return f'<span class="estimate">{value} <span>{ends}</span></span>'
    return escape(text)


def _is_numeric(table: Table, column: int) -> bool:
    """Whether at least half of the cells of a column are numbers, which are aligned to the right."""
    cells = [row[column] for row in table.rows if row[column]]
    return 2 * sum(_NUMERIC.fullmatch(cell) is not None for cell in cells) >= len(cells)


def to_markdown(title: str, sections: Sequence[Section]) -> str:
    """Return the tables under the titles of their sections, with text and warnings."""
    blocks = [f"# {_escape_markdown(title)}"]
    for section in sections:
        if section.tables:
            blocks.append(f"## {_escape_markdown(section.title)}")
            blocks += [_escape_markdown(paragraph) for paragraph in section.text.split("\n\n") if paragraph.strip()]
            blocks += [f"> {_escape_markdown(warning)}" for warning in section.warnings]
            for table in section.tables:
                blocks += [_escape_markdown(table.caption), _markdown_table(table.without_empty_columns())]
    return "\n\n".join(blocks) + "\n"


def _markdown_table(table: Table) -> str:
    rules = ["---:" if _is_numeric(table, column) else "---" for column in range(len(table.columns))]
    rows = [table.columns, rules, *table.rows]
    return "\n".join(f"| {' | '.join(_escape_markdown(cell) for cell in row)} |" for row in rows)


def _escape_markdown(text: str) -> str:
    """Return text that Markdown, and HTML within it, displays literally."""
    escaped = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    marked = "".join(f"\\{letter}" if letter in "\\|`*" else letter for letter in escaped)
    return marked.replace("](", "]\\(")  # a link; brackets alone are intervals


def to_csv(runs: Sequence[RunRecord], kinds: Sequence[str]) -> Iterator[str]:
    """Yield the header, then for each run one line for each number; a run without numbers gets one line."""
    yield ",".join(CSV_COLUMNS) + "\n"
    for run in runs:
        text = io.StringIO()
        own = (run.method, run.env, run.settings.get("env.protocol", ""), run.seed if run.seed >= 0 else "", run.state)
        numbers = [*_numbers(run, kinds)] or [("", "", "")]
        csv.writer(text, lineterminator="\n").writerows([*own, *rest] for rest in numbers)
        yield text.getvalue()


def _numbers(run: RunRecord, kinds: Sequence[str]) -> Iterator[tuple[object, str, object]]:
    for line in run.lines:
        kind = "random" if line.get("policy") == "random" else line["kind"]
        if kind not in kinds:
            continue
        for name, value in line.items():
            if name != "step" and type(value) in (int, float):
                yield line["step"], f"{kind}_{name}", value
