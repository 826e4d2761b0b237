"""The page and the tables: what comes from files stays text, and figures are the same each time."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from monotau.report.comparison import RunComparison
from monotau.report.formatting import (
    batches,
    format_duration,
    format_estimate,
    format_number,
    format_range,
    name_list,
    plural,
)
from monotau.report.page import Picture, Section, Table, to_html, to_markdown
from monotau.report.plotting import (
    Curve,
    Panel,
    draw_panels,
    format_thousands,
    label,
    method_styles,
    new_figure,
    render,
)
from monotau.report.sections.bonus import bonus_sections
from monotau.report.sections.compare import longest_bar
from monotau.report.sections.crossing import crossing_sections, dead_increment_sections
from monotau.report.sections.curves import curve_sections
from monotau.results.summary import Estimate
from tests.support.runs import evaluation, fake_run, ignore, training

HOSTILE = '<script>alert(1)</script>"><img src=x onerror=y>|`[a](javascript:x)&amp;'


class Tags(HTMLParser):
    """Collects what a browser would make of a page."""

    def __init__(self):
        super().__init__()
        self.found, self.text, self.open = [], "", []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def parsed(page):
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    return tags


@pytest.fixture
def section():
    figure, (ax,) = new_figure(3, 2)
    ax.plot([0, 1], [0, 1])
    return Section(
        title=HOSTILE,
        text=f"{HOSTILE}\n\nanother",
        warnings=[HOSTILE],
        pictures=[Picture(name="line", figure=figure, caption=HOSTILE)],
        tables=[Table(caption=HOSTILE, columns=(HOSTILE, "n"), rows=[[HOSTILE, "1.5 [1, 2]"]])],
    )


def test_what_comes_from_files_never_becomes_html(section):
    page = to_html(HOSTILE, HOSTILE, [section], {"line": b"<svg/>"})
    tags = parsed(page)
    assert "script" not in [tag for tag, _ in tags.found]
    images = [attributes for tag, attributes in tags.found if tag == "img"]
    assert [{*image} for image in images] == [{"src", "alt", "width", "height"}]
    assert images[0]["alt"] == HOSTILE
    assert tags.text.count(HOSTILE) >= 7


def test_the_page_needs_no_network_and_its_contents_lead_somewhere(section):
    tags = parsed(to_html("t", "a", [section, section], {"line": b"<svg/>"}))
    links = [attributes["href"] for tag, attributes in tags.found if tag == "a"]
    names = [attributes["id"] for tag, attributes in tags.found if "id" in attributes]
    assert [f"#{name}" for name in names] == [link for link in links if link.startswith("#")]
    sources = [attributes.get("src", "") for _, attributes in tags.found]
    assert all(source.startswith("data:") for source in sources if source)
    assert {link for link in links if not link.startswith("#")} == {"figures/line.png", "figures/line.svg"}
    assert not any(tag in ("link", "script", "iframe") for tag, _ in tags.found)


def test_markdown_has_a_cell_for_each_cell_whatever_stands_in_it(section):
    text = to_markdown("t", [section, Section(title="without tables")])
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in lines] == [3, 3, 3]
    assert lines[1] == "| --- | ---: |"
    assert "<" not in text
    assert "](" not in text
    assert "1.5 [1, 2] |" in lines[2]
    assert "without tables" not in text


def test_the_same_figure_is_the_same_file():
    def drawn(ending):
        figure, (ax,) = new_figure(3, 2)
        ax.plot([0, 1], [0, 1], marker="o")
        ax.fill_between([0, 1], [0, 1], [1, 2], hatch="/")  # hatches and clips have names that are hashes
        return render(figure, ending)

    assert drawn("svg") == drawn("svg")
    assert drawn("png") == drawn("png")
    assert b"<dc:date>" not in drawn("svg")


@pytest.mark.parametrize("name", ["a$b$ \\frac{", "$\\x$", "_hidden", "\x00\n\t", "", "文字", "x" * 500, "\\$ $ $"])
def test_any_name_can_be_drawn_as_it_stands(name):
    figure, (ax,) = new_figure(6, 2)
    ax.plot([0], [0], label=label(name))
    ax.set_title(label(name))
    ax.legend()
    assert len(ax.get_legend().get_texts()) == 1
    assert render(figure, "png")
    assert len(label(name, 20, 2).splitlines()) <= 2


def test_no_two_of_dozens_of_methods_look_the_same():
    found = method_styles([f"m{number}" for number in range(100)])
    assert len({(look["color"], look["linestyle"], look["marker"]) for look in found.values()}) == 100
    assert len(method_styles([f"m{number}" for number in range(500)])) == 500


def test_only_giants_among_bars_are_cut():
    assert longest_bar(np.array([10.0, -20.0, 30.0])) == 30.0
    assert longest_bar(np.array([10.0, -20.0, 5000.0])) == 100.0
    assert longest_bar(np.array([100.0, -200.0, 5000.0])) == 800.0


def test_numbers_as_they_are_read():
    assert [format_number(value) for value in (None, 0.0, 0.123456, 12.3456, 123456.7)] == [
        "-",
        "0",
        "0.123",
        "12.3",
        "123,457",
    ]
    assert format_estimate(Estimate(value=0.5, interval=(0.25, 0.75)), 100.0) == "50 [25, 75]"
    assert format_estimate(Estimate(value=0.5, interval=None)) == "0.5 -"
    assert [format_range([3]), format_range([7, 3, 5])] == ["3", "3 to 7"]
    assert [plural(1, "run"), plural(2000, "run")] == ["1 run", "2,000 runs"]
    assert [name_list(["a", "b"], 2), name_list(["a", "b", "c"], 2)] == ["a, b", "a, b and 1 more"]
    assert [format_duration(90.0), format_duration(600.0), format_duration(9000.0)] == ["90 s", "10 min", "2.5 h"]
    assert [format_thousands(value) for value in (0.5, 2500.0, 2e6, -3e9)] == ["0.5", "2.5k", "2M", "-3G"]
    assert batches("abcde", 2) == [["a", "b"], ["c", "d"], ["e"]]


def test_a_single_evaluation_is_a_point_that_can_be_seen():
    curve = Curve(steps=np.array([5.0]), values=np.array([7.0]), ends=None, seeds=1, shortened=False)
    panels = [Panel(title="A-v0", curves={"b": curve})]
    look = method_styles(["a", "b"])
    figure = draw_panels(panels, look, xlabel="steps", ylabel="return")
    (line,) = figure.axes[0].get_lines()
    assert (line.get_marker(), line.get_markevery()) == ("o", 1)
    assert line.get_color() == look["b"]["color"] != look["a"]["color"]  # as in figures with both
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["b"]


def test_columns_without_content_are_left_out():
    rows = [["a", "", "1", "-"], ["b", "", "-", "-"]]
    table = Table(caption="c", columns=("method", "unfinished", "score", "human"), rows=rows)
    kept = table.without_empty_columns()
    assert (kept.columns, kept.rows) == (["method", "score"], [["a", "1"], ["b", "-"]])
    section = Section(title="t", tables=[table])
    for text in (to_html("t", "a", [section], {}), to_markdown("t", [section])):
        assert "unfinished" not in text
        assert "human" not in text
        assert "score" in text


@pytest.mark.parametrize("name", ["a $x$ b", "$", "_hidden"])
def test_names_are_escaped_in_the_legends_of_all_figures(name):
    comparison = RunComparison(
        [
            fake_run(
                method,
                [training(5, bonus_mean=1.0, dead_increments=0.5), evaluation(5, crossing=0.5)],
                settings={"head.kind": "iqn"},
            )
            for method in (name, "other")
        ]
    )
    for sections in (curve_sections, crossing_sections, bonus_sections, dead_increment_sections):
        (section,) = sections(comparison, ignore)
        for picture in section.pictures:
            texts = [text.get_text() for text in picture.figure.legends[0].get_texts()]
            assert label(name) in texts
            assert render(picture.figure, "png")


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("-1.5e-05 [-2e-05, 1,000]", '<span class="estimate">-1.5e-05 <span>[-2e-05, 1,000]</span></span>'),
        ("1.5 -", "1.5 -"),
        ("<b> [1, 2]", "&lt;b&gt; [1, 2]"),
    ],
)
def test_an_interval_may_move_below_its_value(cell, shown):
    section = Section(title="", tables=[Table(caption="", columns=("n",), rows=[[cell]])])
    assert f">{shown}</td>" in to_html("", "", [section], {})
