"""A report as one page of HTML that needs nothing else, and its tables as Markdown."""

import base64
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files

from monotau.report.sections import Picture, Section, Table

GENERATOR = '<meta name="generator" content="monotau report">'
"""By which a report is known."""

FIGURES = "figures"
"""Directory of the pictures as files."""

_NUMERIC = re.compile(r"([\d.,+%\[\]() -]|\bto\b|\bof\b)+")


def to_html(title: str, about: str, sections: Sequence[Section], svgs: Mapping[str, bytes]) -> str:
    """Return the page; everything that stands in sections is text, and never becomes HTML."""
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
    parts += [f'<p class="loud">{escape(caution)}</p>' for caution in section.warnings]
    parts += [f"<p>{escape(paragraph)}</p>" for paragraph in section.text.split("\n\n") if paragraph.strip()]
    parts += [_picture(picture, svgs[picture.name]) for picture in section.pictures]
    parts += [_table(table) for table in section.tables]
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
        f"<tr>{''.join(f'<td{kind}>{escape(cell)}</td>' for kind, cell in zip(kinds, row, strict=True))}</tr>"
        for row in table.rows
    )
    return (
        # Not a caption element: on a narrow screen that would scroll away with the table.
        f'<p class="caption">{escape(table.caption)}</p>\n'
        f'<div class="scroll"><table aria-label="{escape(table.caption)}">\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _is_numeric(table: Table, column: int) -> bool:
    """Whether half the cells of a column are numbers, which stand to the right."""
    cells = [row[column] for row in table.rows if row[column]]
    return 2 * sum(_NUMERIC.fullmatch(cell) is not None for cell in cells) >= len(cells)


def to_markdown(title: str, sections: Sequence[Section]) -> str:
    """Return the tables under the titles of their sections, with what must not be overlooked."""
    blocks = [f"# {_plain(title)}"]
    for section in sections:
        if section.tables:
            blocks.append(f"## {_plain(section.title)}")
            blocks += [f"> {_plain(caution)}" for caution in section.warnings]
            blocks += [_plain(paragraph) for paragraph in section.text.split("\n\n") if paragraph.strip()]
            blocks += [block for table in section.tables for block in (_plain(table.caption), _lines(table))]
    return "\n\n".join(blocks) + "\n"


def _lines(table: Table) -> str:
    rules = ["---:" if _is_numeric(table, column) else "---" for column in range(len(table.columns))]
    rows = [table.columns, rules, *table.rows]
    return "\n".join(f"| {' | '.join(_plain(cell) for cell in row)} |" for row in rows)


def _plain(text: str) -> str:
    """Return text that Markdown, and the HTML in it, shows as it stands."""
    escaped = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    marked = "".join(f"\\{letter}" if letter in "\\|`*" else letter for letter in escaped)
    return marked.replace("](", "]\\(")  # a link; brackets alone are intervals
