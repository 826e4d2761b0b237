"""A report on disk: the page, its figures, and what was measured as a table in long form."""

import csv
import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from monotau.errors import ConfigError
from monotau.report.page import FIGURES, GENERATOR, to_html, to_markdown
from monotau.report.reading import ReportedRun
from monotau.report.sections import Section
from monotau.runs.files import write_bytes, writing

PAGE, RESULTS, TRAINING, TABLES = "index.html", "results.csv", "training.csv", "table.md"

COLUMNS = ("method", "env", "protocol", "seed", "state", "step", "measure", "value")

NOTHING: list[tuple[object, str, object]] = [("", "", "")]
"""Step, measure and value of a run that has measured nothing."""

DPI = 150


def check_place(directory: Path) -> None:
    """Refuse a directory that holds something else than a report."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise ConfigError(f"--out is {directory}, which is no directory.")
    if any(directory.iterdir()) and GENERATOR not in _earlier_page(directory):
        raise ConfigError(f"--out is {directory}, which holds something, but no report; name another, or an empty one.")


def _earlier_page(directory: Path) -> str:
    path = directory / PAGE
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def write_files(
    directory: Path,
    title: str,
    about: str,
    sections: Sequence[Section],
    runs: Sequence[ReportedRun],
    drawn: Callable[[], None],
) -> None:
    """Write the report, the page last, and drop figures that only an earlier one had; `drawn` is called after each."""
    stale = {*re.findall(rf'href="({FIGURES}/[\w-]+\.(?:png|svg))"', _earlier_page(directory))}
    (directory / FIGURES).mkdir(parents=True, exist_ok=True)
    svgs = {}
    for picture in (picture for section in sections for picture in section.pictures):
        for ending in ("png", "svg"):
            name = f"{FIGURES}/{picture.name}.{ending}"
            data = render(picture.figure, ending)
            write_bytes(directory / name, data)
            stale.discard(name)
            picture.figure.set_layout_engine("none")  # it is laid out now, which takes half of the time
        svgs[picture.name] = data
        drawn()
    for name, kinds in ((RESULTS, ("random", "eval")), (TRAINING, ("train",))):
        with writing(directory / name) as writer:
            for text in to_csv(runs, kinds):
                writer.write(text.encode())
    write_bytes(directory / TABLES, to_markdown(title, sections).encode())
    write_bytes(directory / PAGE, to_html(title, about, sections, svgs).encode())
    for name in stale:
        (directory / name).unlink(missing_ok=True)


def render(figure: Figure, ending: str) -> bytes:
    """Return a figure as a file, always the same for the same figure."""
    data = io.BytesIO()
    # Letters as paths: the picture is the same on a machine with other fonts.
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "monotau"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name in letters that the font lacks: boxes
        metadata = {"Date": None} if ending == "svg" else {}
        figure.savefig(data, format=ending, dpi=DPI, metadata=metadata)
    return data.getvalue()


def to_csv(runs: Sequence[ReportedRun], kinds: Sequence[str]) -> Iterator[str]:
    """Return the header, then run by run a line for each number of these kinds; without any, one with its state."""
    yield ",".join(COLUMNS) + "\n"
    for run in runs:
        text = io.StringIO()
        own = (run.method, run.env, run.settings.get("env.protocol", ""), run.seed if run.seed >= 0 else "", run.state)
        csv.writer(text, lineterminator="\n").writerows([*own, *rest] for rest in [*_numbers(run, kinds)] or NOTHING)
        yield text.getvalue()


def _numbers(run: ReportedRun, kinds: Sequence[str]) -> Iterator[tuple[object, str, object]]:
    for line in run.lines:
        kind = "random" if line.get("policy") == "random" else line["kind"]
        if kind not in kinds:
            continue
        for name, value in line.items():
            if name != "step" and type(value) in (int, float):
                yield line["step"], f"{kind}_{name}", value
