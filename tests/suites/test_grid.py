"""Suite files: their contents, the cells they expand to, and the settings of each cell."""

import json

import pytest

from monotau.config.resolve import resolve
from monotau.envs.games import GAME_SETS
from monotau.errors import ConfigError
from monotau.suites.grid import Suite, read_suite, to_suite
from monotau.suites.listing import BUILT_IN, built_in
from monotau.suites.scaling import scaled

PLAIN = {
    "about": "two presets, three overrides, two worlds",
    "presets": {"dqn": {"head": {"hidden": 24}}, "ndqfn": {}},
    "overrides": {"plain": {}, "slow": {"optimiser": {"learning_rate": 1e-5}}, "wide": {"head": {"hidden": 48}}},
    "envs": ["CartPole-v1", {"id": "monotau/DeepSea-v0", "kwargs": {"size": 4}, "settings": {"steps": 40}}],
    "seeds": [3, 5],
    "settings": {"steps": 80, "iteration_steps": 20, "optimiser": {"learning_rate": 0.5}, "head": {"hidden": 12}},
}


def suite(**changes) -> Suite:
    return to_suite("mine", PLAIN | changes)


def test_the_grid_is_presets_times_overrides_times_envs_times_seeds_with_seeds_slowest():
    cells = suite().cells
    assert len(cells) == 2 * 3 * 2 * 2
    assert [cell.seed for cell in cells] == [3] * 12 + [5] * 12
    assert [cell.method.name for cell in cells[:7]] == [
        "dqn plain",
        "dqn slow",
        "dqn wide",
        "ndqfn plain",
        "ndqfn slow",
        "ndqfn wide",
        "dqn plain",
    ]
    assert cells[0].name == "dqn-plain_CartPole-v1_seed3"
    assert cells[-1].name == "ndqfn-wide_monotau-DeepSea-v0-size=4_seed5"
    assert cells[-1].plain() == {"method": "ndqfn wide", "env": "monotau/DeepSea-v0 size=4", "seed": 5}


@pytest.mark.parametrize(
    ("index", "steps", "rate", "hidden"),
    [
        (0, 80, 0.5, 24),  # the preset's settings over the suite's
        (1, 80, 1e-5, 24),  # the override's over both
        (2, 80, 0.5, 48),
        (3, 80, 0.5, 12),  # nothing said of the preset
        (6, 40, 0.5, 24),  # the environment's over the suite's
    ],
)
def test_later_settings_win(index, steps, rate, hidden):
    grid = suite()
    config = grid.resolve(grid.cells[index]).config
    found = (config.steps, config.optimiser.learning_rate, config.head.hidden)  # type: ignore[attr-defined]
    assert found == (steps, rate, hidden)
    assert config.seed == 3


def test_a_cell_is_what_train_would_run_with_the_same_settings():
    grid = suite()
    layers = ({"seed": 3, "env": {"id": "CartPole-v1"}}, grid.settings, {"head": {"hidden": 24}})
    assert grid.resolve(grid.cells[0]).config == resolve("dqn", *layers).config


def test_a_cell_takes_the_threads_of_its_suite_or_else_those_of_the_pool():
    assert suite().resolve(suite().cells[0], threads=3).config.threads == 3
    named = suite(settings={"threads": 2})
    assert named.resolve(named.cells[0], threads=3).config.threads == 2


def test_an_override_may_choose_another_part():
    grid = suite(presets=["ndqfn"], overrides={"dltv": {"explorer": {"kind": "dltv"}}}, settings={})
    assert type(grid.resolve(grid.cells[0]).config.explorer).__name__ == "Dltv"


def test_a_game_set_expands_to_its_games_and_a_number_to_that_many_seeds():
    grid = suite(envs=["paper-six"], seeds=2, overrides={"": {}})
    assert len(grid.envs) == len(GAME_SETS["paper-six"][1])
    assert grid.cells[0].env.config.title == "ALE/MontezumaRevenge-v5 noop"
    assert grid.seeds == [0, 1]
    assert grid.cells[0].method.name == "dqn"
    sticky = suite(envs=[{"id": "ALE/Pong-v5", "protocol": "sticky"}])
    assert sticky.cells[0].name == "dqn-plain_ALE-Pong-v5-sticky_seed3"


def test_a_recorded_suite_is_read_back_as_the_same_suite(tmp_path):
    grid = to_suite("mine", PLAIN, scale=0.5)
    path = tmp_path / "suite.json"
    path.write_text(json.dumps(grid.record()))
    again = read_suite(str(path))
    assert [grid.given(cell) for cell in grid.cells] == [again.given(cell) for cell in again.cells]
    assert again.record() == grid.record()
    assert len(grid.record()["cells"]) == len(grid.cells)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preset": ["dqn"]}, r"the key 'preset' is unknown. Did you mean 'presets'\?"),
        ({"presets": ["dqnn"]}, r"the preset 'dqnn' is unknown. Did you mean 'dqn'"),
        ({"presets": "dqn"}, "presets is 'dqn', but must be a list of names, or a mapping"),
        ({"presets": ["dqn", "c51", "dqn"]}, r"presets is \['dqn', 'c51', 'dqn'\], but no name may be repeated"),
        ({"presets": []}, r"presets is \[\], but must be a list of names"),
        ({"presets": {"dqn": 3}}, "presets.dqn is 3, but must be a mapping of settings"),
        ({"overrides": {"a/b": {}}}, "overrides has the name 'a/b', but only letters, digits and - _ . = are allowed"),
        ({"settings": [1]}, r"settings is \[1\], but must be a mapping of settings"),
        ({"settings": {"seed": 3}}, "settings.seed is set, but the suite sets it"),
        ({"envs": "CartPole-v1"}, "envs is 'CartPole-v1', but must be a list of ids"),
        ({"envs": [3]}, "envs has 3, but an entry must be an id"),
        ({"envs": [{"id": "CartPole-v1", "size": 3}]}, "the key of an env 'size' is unknown"),
        ({"envs": [{"id": "CartPole-v1", "kwargs": 3}]}, "env.kwargs is 3, but must be a mapping"),
        ({"envs": ["CartPole-v1", "CartPole-v1"]}, "two runs of the grid have the same name"),
        ({"settings": {"env": "Acrobot-v1"}}, "settings.env is 'Acrobot-v1', but must be a mapping of settings"),
        ({"settings": {"env": {"id": "Acrobot-v1"}}}, "settings.env.id is set, but the suite sets it"),
        (
            {"envs": [{"id": "CartPole-v1", "settings": {"env": {"kwargs": {}}}}]},
            "settings.env.kwargs is set, but the suite sets it",
        ),
        ({"seeds": 0}, "seeds is 0, but must be the number of seeds, from 1 to 8000"),
        ({"seeds": 10**12}, "seeds is 1000000000000, but must be the number of seeds, from 1 to 8000"),
        ({"seeds": [1, -1]}, r"seeds is \[1, -1\], but must .* or a list of non-negative whole numbers"),
        ({"seeds": 2000}, "the grid has 24000 runs, but may have at most 8000"),
        ({"profile": 3}, "profile is 3, but must be a name"),
        ({"scale": 2}, "the scale is 2, but must be above 0 and at most 1"),
        ({"scale": "small"}, "the scale is 'small', but must be"),
    ],
)
def test_invalid_suite_files_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        suite(**changes)


def test_an_unknown_suite_names_the_nearest_and_a_file_is_named_in_its_error(tmp_path):
    with pytest.raises(ConfigError, match=r"the suite 'paper-table' is unknown. Did you mean 'paper-table1'.*file"):
        read_suite("paper-table")
    path = tmp_path / "mine.yaml"
    path.write_text("presets: [dqn]\nenvs: []\n")
    with pytest.raises(ConfigError, match=r"mine.yaml: envs is \[\]"):
        read_suite(str(path))
    with pytest.raises(ConfigError, match=r"the suite file .*missing.yaml does not exist"):
        read_suite(str(tmp_path / "missing.yaml"))


WANTED = {
    "paper-table1": (7, 55),
    "paper-ndqfn-vs-iqn": (2, 11),
    "paper-dpe": (4, 6),
    "paper-dpe-vs-dltv": (2, 6),
    "paper-dpe-vs-vpe": (2, 6),
    "paper-activation": (3, 11),
    "paper-input-form": (2, 11),
    "paper-target-sync": (4, 6),
    "minatar-evidence": (6, 5),
    "minatar-others": (4, 5),
    "minatar-activation": (4, 2),
    "minatar-ndqfn-vs-iqn": (2, 2),
    "deep-sea-evidence": (12, 4),
    "probe-evidence": (9, 4),
}


def test_every_suite_of_the_paper_is_built_in():
    assert {name: (len(read_suite(name).methods), len(read_suite(name).envs)) for name in built_in()} == WANTED


@pytest.mark.parametrize("name", sorted(path.stem for path in BUILT_IN.glob("*.yaml")))
def test_built_in_suites_have_settings_that_work_at_any_scale(name):
    grid = read_suite(name)
    firsts = {cell.method.name: cell for cell in reversed(grid.cells)}
    for cell in firsts.values():
        config = grid.resolve(cell).config
        assert (config.profile == "atari") == name.startswith("paper")
        assert 1 <= scaled(config, 0.0001).steps < config.steps


@pytest.mark.parametrize(
    ("name", "other"), [("minatar-others", "minatar-evidence"), ("minatar-activation", "minatar-ndqfn-vs-iqn")]
)
def test_companion_suites_share_their_settings(name, other):
    assert read_suite(name).settings == read_suite(other).settings
