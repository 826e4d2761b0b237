"""The first screen: the ranking, its figure, and the sentence that describes it."""

import numpy as np
import pytest

from monotau.report.comparison import RunComparison
from monotau.report.page import to_html
from monotau.report.plotting import MAX_INTERVALS
from monotau.report.sections.curves import aggregate_sections
from monotau.report.sections.overview import MAX_RANKED, describe_ranking, find_rankings, overview_sections
from monotau.results.statistics import Sample, interquartile_mean, interval
from tests.support.runs import evaluation, fake_run, ignore


def runs(method, env, returns_by_seed, random=0.0, steps=1000, **settings):
    """One run for each list of evaluation returns."""
    return [
        fake_run(
            method,
            [evaluation(0, random, "random")]
            + [evaluation((place + 1) * steps // len(returns), value) for place, value in enumerate(returns)],
            env,
            seed,
            settings={"steps": steps} | settings,
        )
        for seed, returns in enumerate(returns_by_seed)
    ]


def overview(comparison):
    (section,) = overview_sections(comparison, ignore)
    return section


@pytest.fixture
def two_envs():
    """On A, `good` ends at 100 and `bad` at 50; on B, both end at 10."""
    found = [*runs("good", "A-v0", [[0.0, 100.0], [0.0, 100.0]]), *runs("bad", "A-v0", [[0.0, 40.0], [90.0, 60.0]])]
    found += [*runs("good", "B-v0", [[0.0, 10.0], [0.0, 10.0]]), *runs("bad", "B-v0", [[0.0, 10.0], [0.0, 10.0]])]
    return RunComparison(found)


def test_methods_are_ranked_by_the_interquartile_mean_of_their_last_evaluations(two_envs):
    (ranking,) = find_rankings(two_envs, ignore)
    sample = Sample.of([[0.4, 0.6], [1.0, 1.0]])
    low, high = interval(interquartile_mean, sample)
    assert [*ranking.scores] == ["good", "bad"]
    assert ranking.scores["good"].value == pytest.approx(100)
    assert ranking.scores["bad"].value == pytest.approx(100 * float(interquartile_mean(sample)))
    assert ranking.scores["bad"].interval == pytest.approx((100 * low, 100 * high))


def test_curves_end_at_the_scores_of_the_ranking(two_envs):
    (ranking,) = find_rankings(two_envs, ignore)
    for method, curve in ranking.panel.curves.items():
        assert curve.values[-1] == pytest.approx(ranking.scores[method].value)


def test_curves_and_ranking_stand_side_by_side_in_the_same_colours(two_envs):
    (picture,) = overview(two_envs).pictures
    left, right = picture.figure.axes
    assert picture.name == "overview-others"
    colours = {line.get_color() for line in left.get_lines()}
    assert {line.get_color() for line in right.get_lines()} == colours
    assert len(colours) == 2
    assert [text.get_text() for text in right.get_yticklabels()] == ["good", "bad"]
    assert right.get_ylim()[0] > right.get_ylim()[1]  # the best on top
    assert len(left.collections) == 2  # intervals
    assert not picture.figure.legends


def test_a_single_environment_is_ranked_by_raw_returns():
    comparison = RunComparison([*runs("a", "A-v0", [[1.0, 500.0], [1.0, 300.0]], random=20.0)])
    section = overview(comparison)
    (picture,) = section.pictures
    left, _ = picture.figure.axes
    assert picture.name == "overview"
    assert left.get_lines()[0].get_ydata().tolist() == [1.0, 400.0]
    assert section.text.startswith("A-v0: a scores 400 [300, 500].")


def test_a_run_that_ended_at_500_is_reported_as_500():
    returns = [[20.0, 30.0, 100.0, 200.0, 500.0]]
    assert overview(RunComparison(runs("a", "A-v0", returns), smooth=10)).text.startswith("A-v0: a scores 500.")


def test_an_environment_that_was_learned_at_the_end_is_better_than_random_play():
    comparison = RunComparison(runs("a", "A-v0", [[-500.0] * 9 + [-80.0]], random=-200.0))
    assert comparison.groups[0].unscaled == {}


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ([[90.0], [110.0]], "a ranks first with 105 [100, 110], b second with 100 [90, 110]; their intervals overlap."),
        (
            [[10.0], [20.0]],
            "a ranks first with 105 [100, 110], b second with 15 [10, 20]; their intervals do not overlap.",
        ),
        ([[90.0], [120.0]], "a and b tie with 105 [100, 110]."),
        ([[10.0]], "a ranks first with 105 [100, 110], b second with 10; a single seed has no interval."),
    ],
)
def test_the_answer_is_also_a_sentence(other, text):
    comparison = RunComparison([*runs("a", "A-v0", [[100.0], [110.0]]), *runs("b", "A-v0", other)])
    (ranking,) = find_rankings(comparison, ignore)
    assert describe_ranking(ranking) == f"A-v0: {text}"


def test_of_many_methods_the_best_curves_are_drawn_and_all_are_ranked():
    count = MAX_RANKED + 2
    comparison = RunComparison([run for n in range(count) for run in runs(f"m{n:02}", "A-v0", [[1.0 + n]])])
    (picture,) = overview(comparison).pictures
    left, right = picture.figure.axes
    assert len(right.get_yticklabels()) == MAX_RANKED
    assert right.get_yticklabels()[0].get_text() == f"m{count - 1}"
    assert len([line for line in left.get_lines() if len(line.get_xdata()) == 1]) == MAX_INTERVALS
    assert len(picture.figure.legends[0].get_texts()) == MAX_INTERVALS
    assert f"Curves of the best {MAX_INTERVALS} methods are shown and the best {MAX_RANKED} ranked." in picture.caption


def test_the_figure_comes_before_cautions_and_tables(two_envs):
    single = RunComparison([run for run in two_envs.runs if run.seed == 0])
    section = overview(single)
    assert section.warnings
    page = to_html("t", "a", [section], {picture.name: b"<svg/>" for picture in section.pictures})
    assert page.index("<img") < page.index('class="loud"') < page.index("<table")


def test_sets_beyond_the_overview_have_a_section_of_their_own(two_envs):
    assert aggregate_sections(two_envs, ignore) == []
    third = [*two_envs.runs, *runs("third", "A-v0", [[50.0]])]
    comparison = RunComparison(third)
    (section,) = aggregate_sections(comparison, ignore)
    (picture,) = section.pictures
    (ax,) = picture.figure.axes
    assert ax.get_title() == "Aggregate over 2 environments"
    (first,) = overview(comparison).pictures
    assert first.figure.axes[0].get_title() == "Aggregate over 1 environment"


def test_without_a_score_there_is_no_ranking():
    empty = RunComparison([fake_run("a", (), state="unfinished")])
    assert overview(empty).pictures == []
    assert overview(empty).text == "1 run: 1 unfinished."
    below = RunComparison([*runs("a", "A-v0", [[-1.0]]), *runs("a", "B-v0", [[-1.0]])])
    assert overview(below).pictures == []
    assert np.isfinite(below.scores("a", "A-v0")).all()


def test_runs_that_a_hook_ended_early_are_named():
    lines = [evaluation(0, 0.0, "random"), evaluation(400, 5.0)]
    early = fake_run("a", lines, result={"steps": 400, "seconds": 1.0, "stopped": "on_evaluation"})
    said = "1 run ended early by a hook: the last evaluation is from earlier in training."
    assert said in overview(RunComparison([early])).warnings
    assert said not in overview(RunComparison([fake_run("a", lines)])).warnings
