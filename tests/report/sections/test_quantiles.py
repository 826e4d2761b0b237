"""The sections about what was learned, from runs that were run, cut off and damaged."""

import shutil
import sys

import pytest

from monotau.config.imports import import_parts
from monotau.errors import ConfigError
from monotau.report.agents import load_agent
from monotau.report.command import SECTIONS
from monotau.report.comparison import RunComparison
from monotau.report.sections.overview import overview_sections
from monotau.report.sections.quantiles import (
    MAX_ENVS,
    MAX_PANELS,
    StateQuantiles,
    predict_quantiles,
    quantile_sections,
)
from monotau.report.sections.solving import solving_sections
from monotau.results.methods import read_methods as read_runs
from tests.support.runs import evaluation, fake_run, ignore
from tests.support.small_runs import SMALL, small_run, train_undrawn

COIN = "monotau/TwoStepCoin-v0"

LEARNED = SECTIONS[SECTIONS.index(quantile_sections) : SECTIONS.index(solving_sections) + 1]


def learned_sections(runs, notify):
    """The sections about what was learned, beyond returns."""
    comparison = RunComparison(runs)
    return [section for sections in LEARNED for section in sections(comparison, notify)]


def quantile_section(runs, notify):
    return quantile_sections(RunComparison(runs), notify)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One run of each of four methods, and a second seed of one of them."""
    home = tmp_path_factory.mktemp("trained")
    for name, preset, seed in (
        ("dpe0", "ndqfn-dpe", 0),
        ("dpe1", "ndqfn-dpe", 1),
        ("iqn", "iqn-star", 0),
        ("increments", "incremental-iqn", 0),
    ):
        train_undrawn(
            home / name, small_run(preset, COIN, **(SMALL | {"steps": 100, "log_every_steps": 20, "seed": seed}))
        )
    return home


@pytest.fixture
def home(trained, tmp_path):
    """The same runs, to be damaged."""
    return shutil.copytree(trained, tmp_path / "runs")


def cut_off(run):
    """Leave of a run what there is while it goes on."""
    (run / "result.json").unlink()
    shutil.rmtree(run / "agent")


def test_all_that_was_learned_is_shown(trained):
    told = []
    sections = learned_sections(read_runs([trained]), told.append)
    assert [section.title for section in sections] == [
        "Quantile functions",
        "Crossing over training",
        "Bonus over training",
        "Dead increments",
        "Distance to the truth",
    ]
    names = [picture.name for section in sections for picture in section.pictures]
    coin = "monotau-TwoStepCoin-v0"
    assert names == [f"quantiles-{coin}", "crossing", f"bonus-{coin}", "dead-increments", "distance-to-truth"]
    for section in sections:
        for picture in section.pictures:
            picture.figure.draw_without_rendering()
    titles = {ax.get_title().split("\n")[0]: ax.get_title() for ax in sections[0].pictures[0].figure.axes}
    assert titles["ndqfn-dpe"] == "ndqfn-dpe\n0.0% of changes decrease"
    crossing = predict_quantiles(load_agent(read_runs([trained / "iqn"])[0])).crossing
    assert crossing > 0
    assert titles["iqn-star"] == f"iqn-star\n{crossing:.1%} of changes decrease"
    assert "0.0% decrease within a set" in titles["incremental-iqn"]
    assert f"quantile functions: iqn-star on {COIN}" in told


def test_runs_that_are_not_whole_are_listed(home):
    cut_off(home / "iqn")
    (home / "dpe1" / "config.json").write_text("{")
    shutil.copytree(home / "dpe0", home / "dpe9")
    comparison = RunComparison(read_runs([home]))
    (overview,) = overview_sections(comparison, ignore)
    (table,) = (table for table in overview.tables if table.caption.startswith("Runs that did not finish"))
    reasons = {row[0].rpartition("/")[2]: (row[4], row[6]) for row in table.rows}
    assert reasons["iqn"] == ("unfinished", "interrupted")
    assert reasons["dpe1"][0] == "damaged"
    assert reasons["dpe9"] == ("repeated", f"the same method, environment and seed as {home / 'dpe0'}")
    (first,) = quantile_sections(comparison, ignore)
    titles = [ax.get_title() for ax in first.pictures[0].figure.axes]
    assert any(title.startswith("iqn-star") for title in titles)  # its newest checkpoint


def test_an_agent_that_does_not_load_is_named(home):
    (home / "iqn" / "agent" / "agent.json").write_text("{}")
    (section,) = quantile_section(read_runs([home]), ignore)
    assert f"In {COIN}, not loaded: iqn-star (" in section.text
    assert "the format is None" in section.text
    assert len(section.pictures[0].figure.axes) == 2


def test_the_agent_of_a_run_that_goes_on_is_that_of_its_newest_checkpoint(home):
    cut_off(home / "iqn")
    (run,) = read_runs([home / "iqn"])
    assert load_agent(run).config.preset == "iqn-star"
    shutil.rmtree(home / "iqn" / "checkpoints")
    assert load_agent(run).config.preset == "iqn-star"  # the best one
    shutil.rmtree(home / "iqn" / "best_agent")
    with pytest.raises(ConfigError, match=r".*iqn contains no agent: none was saved yet"):
        load_agent(run)
    (home / "iqn" / "checkpoints" / "00000001").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r".*iqn contains no agent: checkpoint 00000001 is not used"):
        load_agent(run)


def test_an_agent_of_another_environment_is_refused(home):
    path = home / "iqn" / "agent" / "agent.json"
    path.write_text(path.read_text().replace(COIN, "nowhere:Coin-v0"))
    (run,) = read_runs([home / "iqn"])
    with pytest.raises(ConfigError, match=f"was trained on nowhere:Coin-v0, but its run on {COIN}"):
        load_agent(run)


def test_code_that_a_file_names_is_not_imported(home, tmp_path, monkeypatch):
    (tmp_path / "trap_of_a_file.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(tmp_path)
    for path in (home / "iqn" / "config.json", home / "iqn" / "agent" / "agent.json"):
        path.write_text(path.read_text().replace(COIN, f"trap_of_a_file:{COIN}"))
    runs = read_runs([home / "iqn"])
    (section,) = quantile_section(runs, ignore)
    assert f"their ids import code, which --import MODULE allows: trap_of_a_file:{COIN}." in section.text
    assert section.pictures == []
    with pytest.raises(ConfigError, match=r"the id of the environment trap_of_a_file:.* imports a module: name it"):
        load_agent(runs[0])
    assert "trap_of_a_file" not in sys.modules


def test_environments_of_a_module_that_the_user_has_named_are_shown(home, own_modules):
    own_modules("my_worlds", "")
    for path in (home / "iqn" / "config.json", home / "iqn" / "agent" / "agent.json"):
        path.write_text(path.read_text().replace(COIN, f"my_worlds:{COIN}"))
    runs = read_runs([home / "iqn"])
    assert quantile_section(runs, ignore)[0].pictures == []
    import_parts("my_worlds")
    (section,) = quantile_section(runs, ignore)
    assert [picture.name for picture in section.pictures] == ["quantiles-my-worlds-monotau-TwoStepCoin-v0"]


def test_panels_are_of_as_many_heads_as_can_be(trained, monkeypatch):
    answers = predict_quantiles(load_agent(read_runs([trained / "dpe0"])[0]))
    monkeypatch.setattr("monotau.report.sections.quantiles.load_agent", lambda run: run)
    monkeypatch.setattr(
        "monotau.report.sections.quantiles.predict_quantiles", lambda run: StateQuantiles(curves=answers.curves)
    )
    kinds = ("iqn",) * 10 + ("qr", "ndqfn")
    runs = [
        fake_run(f"m{place:02}", (), f"Env{env}-v0", settings={"head.kind": kind})
        for env in range(MAX_ENVS + 2)
        for place, kind in enumerate(kinds)
    ]
    (section,) = quantile_section(runs, ignore)
    assert len(section.pictures) == MAX_ENVS
    titles = [ax.get_title()[:3] for ax in section.pictures[0].figure.axes]
    assert titles == ["m00", "m01", "m02", "m03", "m04", "m05", "m06", "m10", "m11"]
    assert len(titles) == MAX_PANELS
    assert "in Env0-v0, methods m07; m08; m09." in section.text
    assert "environments Env3-v0; Env4-v0." in section.text


def test_nothing_to_show_makes_no_section():
    assert learned_sections([], ignore) == []
    assert learned_sections([fake_run("dqn", [evaluation(3, crossing=0.0)])], ignore) == []
    assert learned_sections([fake_run("dqn", (), state="damaged", reason="it is.")], ignore) == []
