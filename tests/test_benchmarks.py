"""The tables that benchmarks write: cells are never run twice, and reference values are right."""

import json
import math
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from benchmarks import audit, cells, classic, inventory, masks, peers, scales
from benchmarks.atari_results import evaluations
from benchmarks.cells import append, is_of, number, read_rows, run_cells
from benchmarks.deep_sea import Search, greedy_return, solved_smaller
from benchmarks.evidence import compared, verdict
from benchmarks.probes import FRACTIONS, cvar_of, errors_to, means, quantiles_of

from monotau import Agent, Diracs
from monotau.config.presets import PRESETS
from monotau.envs import Inventory, LargeReturns, LongChain, list_envs
from monotau.envs.deep_sea import DeepSea
from monotau.report.comparison import RunComparison
from monotau.results.summary import Estimate
from tests.support.runs import evaluation, fake_run


def square(cell):
    return {"square": number(cell["x"] ** 2)}


def test_only_missing_cells_are_run_and_each_is_a_row(tmp_path):
    path = tmp_path / "deep" / "table.csv"
    run_cells(square, [{"name": "a", "x": 2}], path, jobs=1)
    path.write_text(path.read_text().replace("4", "four"))  # a mark that a second run would overwrite
    run_cells(square, [{"name": "a", "x": 2}, {"name": "a", "x": 3}], path, jobs=1)
    assert read_rows(path) == [
        {"name": "a", "x": "2", "square": "four"},
        {"name": "a", "x": "3", "square": "9"},
    ]
    assert read_rows(tmp_path / "none.csv") == []
    assert number(None) == ""


def test_a_new_column_is_empty_in_the_rows_before(tmp_path):
    path = tmp_path / "table.csv"
    append(path, {"name": "a", "x": 1})
    append(path, {"name": "b", "x": 2, "y": 3})
    append(path, {"name": "c", "x": 4, "y": 5})
    append(path, {"name": "d", "x": 6})
    assert path.read_text() == "name,x,y\na,1,\nb,2,3\nc,4,5\nd,6,\n"
    append(path, {"name": "e", "z": 7})
    assert path.read_text() == "name,x,y,z\na,1,,\nb,2,3,\nc,4,5,\nd,6,,\ne,,,7\n"
    assert [*tmp_path.iterdir()] == [path]


def test_a_row_without_the_columns_of_a_cell_is_of_another_cell():
    assert is_of({"x": "2", "square": "4"}, {"x": 2})
    assert not is_of({"x": "2", "square": "4"}, {"x": 3})
    assert not is_of({"x": "2", "square": "4"}, {"x": 2, "until": ""})


def test_quantiles_and_cvar_of_outcomes_by_hand():
    outcomes = [(0.25, 4.0), (0.05, -2.0), (0.7, 1.0)]
    assert quantiles_of(outcomes, np.array([0.01, 0.05, 0.06, 0.75, 0.8, 1.0])).tolist() == [-2, -0.5, 1, 2.5, 4, 4]
    assert cvar_of(outcomes, 0.1) == pytest.approx((0.05 * -2 + 0.05 * 1) / 0.1)
    assert cvar_of(outcomes, 1.0) == pytest.approx(0.25 * 4 - 0.05 * 2 + 0.7)


class Shifted:
    """Predicts the truth, except for a shift of one action in one state."""

    def __init__(self, truth, state, action, shift):
        self.truth, self.wrong, self.shift = truth, (state, action), shift

    def distribution(self, state):
        curves = [[value for _, value in self.truth[state, action]] for action in range(2)]
        values = torch.tensor(curves, dtype=torch.float64)
        if state == self.wrong[0]:
            values[self.wrong[1]] += self.shift
        taus = (torch.arange(1000) + 0.5).double() / 1000
        return Diracs(taus, values, torch.full_like(taus, 1e-3))


@pytest.mark.parametrize(("world", "state", "sigma"), [(LargeReturns(), 0, 100.0), (LongChain(), 48, 1.4071)])
def test_the_largest_error_counts_in_spreads_of_the_truth(world, state, sigma):
    """A normal distribution spans 2 x 2.3263 deviations; without a shift only the error of the grid remains."""
    truth = world.truth(0.99)
    exact, shifted = (errors_to(truth, Shifted(truth, state, 0, shift)) for shift in (0.0, sigma))
    assert exact.quantile_error < 0.012
    assert exact.cvar_error < 1e-6
    assert shifted.quantile_error == pytest.approx(1 / 4.6527, abs=0.012)
    assert shifted.cvar_error == pytest.approx(1 / 4.6527, abs=1e-4)
    assert len(FRACTIONS) == 99
    assert (FRACTIONS[0], FRACTIONS[-1]) == (0.01, 0.99)


def test_rows_without_a_measure_do_not_count_in_its_mean():
    rows = [{"w1": "1", "w1_sorted": "1", "crossing": "0", "quantile_error": ""}, {"w1": "2", "quantile_error": "0.5"}]
    assert means(rows) == {
        "w1": "1.5000",
        "w1_sorted": "1.0000",
        "crossing": "0.0000",
        "quantile_error": "0.5000",
        "cvar_error": "-",
    }


COIN = "monotau/TwoStepCoin-v0"
SMALL = {
    "iteration_steps": 150,
    "log_every_steps": 50,
    "replay": {"warmup_steps": 100},
    "head": {"hidden": 8},
    "torso": {"width": 8, "layers": 1},
    "evaluation": {"episodes": 2},
}


def row(seed, last3, **others):
    about = {"preset": "iqn", "env": "Acrobot-v1", "steps": "1000", "until": "", "reached": ""}
    return about | {"seed": str(seed), "last3": str(last3)} | others


def test_targets_are_met_by_means_over_seeds():
    unmet = [row(seed, last3, env="Taxi-v4") for seed, last3 in ((0, 8), (1, 5.9))]
    solved = [row(0, 480, env="CartPole-v1", until="475", reached="8000"), row(1, 90, env="CartPole-v1", until="475")]
    lines = classic.table([row(0, -70), row(1, -89), *unmet, *solved])
    assert [" ".join(line.split()) for line in lines[1:]] == [
        "iqn Acrobot-v1 1,000 2 -79.50 -89.00 -80 met",
        "iqn Taxi-v4 1,000 2 6.95 5.90 7 not met",
        "iqn CartPole-v1 1,000 2 285.00 90.00 475 reached by 1 of 2, median after 8,000 steps",
    ]


def test_the_environments_with_targets_are_listed():
    assert set(classic.TARGETS) <= {env_id for env_id, _ in list_envs()}


def test_a_row_of_classic_says_how_a_run_went(tmp_path, monkeypatch, capsys):
    def here(function, cells, path, jobs):  # a pool of processes takes seconds to start
        for cell in cells:
            append(path, cell | function(cell))

    monkeypatch.setattr(cells, "run_cells", here)
    monkeypatch.setattr(classic, "Agent", partial(Agent, **SMALL))
    asked = ["--envs", COIN, "--preset", "dqn", "--seeds", "3", "--steps", "350"]
    classic.main([*asked, "--out", str(tmp_path / "classic.csv")])
    (found,) = read_rows(tmp_path / "classic.csv")
    returns = [float(value) for value in found["evaluations"].split("|")]
    assert len(returns) == 3  # after 150, 300 and 350 steps
    assert float(found["last3"]) == pytest.approx(np.mean(returns), abs=1e-4)
    assert float(found["best"]) == max(returns)
    assert float(found["q_std"]) > 0
    assert (found["steps"], found["until"], found["reached"]) == ("350", "", "")
    assert capsys.readouterr().out.count(COIN) == 1


def test_a_row_of_masks_is_a_run_with_them_or_without(tmp_path, monkeypatch, capsys):
    def here(function, cells, path, jobs):
        for cell in cells:
            append(path, cell | function(cell))

    monkeypatch.setattr(cells, "run_cells", here)
    for module in (classic, masks):
        monkeypatch.setattr(module, "Agent", partial(Agent, **(SMALL | {"evaluation": {"episodes": 3}})))
    masks.main(["--preset", "dqn", "--seeds", "3", "--steps", "150", "--out", str(tmp_path / "masks.csv")])
    use, ignore = read_rows(tmp_path / "masks.csv")
    assert (use["masks"], ignore["masks"]) == ("use", "ignore")
    assert float(use["random"]) >= -200  # without forbidden pick-ups, which cost 10
    assert float(ignore["random"]) < -400
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:4] for line in lines[1:]] == [["dqn", "use", "150", "1"], ["dqn", "ignore", "150", "1"]]
    assert [float(line[4]) for line in lines[1:]] == [float(use["random"]), float(ignore["random"])]
    assert [float(line[5]) for line in lines[1:]] == pytest.approx(
        [float(use["last3"]), float(ignore["last3"])], abs=0.01
    )


def test_simulated_shops_earn_what_the_environment_pays():
    """A twin: the environment itself, played beyond its hundred days from a Thursday on."""
    orders, gamma, days = np.full((Inventory.CAPACITY + 1, inventory.WEEK), 15), 0.9, 120
    orders[30:] = 0
    returns, world = [], Inventory()
    for seed in range(400):
        seen, _ = world.reset(seed=seed)
        if seen[1 + 3]:
            rewards = []
            for _ in range(days):
                seen, reward, *_ = world.step(orders[int(seen[0]), int(seen[1:].argmax())] // Inventory.LOT)
                rewards.append(reward)
            returns.append(gamma ** np.arange(days) @ rewards)
    simulated = inventory.simulated(orders, gamma, seed=0, shops=500, days=days)
    error = np.std(returns) * np.sqrt(1 / len(returns) + 1 / 500)
    assert len(returns) > 30
    assert simulated.shape == (7, 500)
    assert simulated[3].mean() == pytest.approx(np.mean(returns), abs=4 * error)
    assert abs(simulated[0].mean() - np.mean(returns)) > 8 * error  # another weekday


def test_a_row_of_the_inventory_has_the_errors_of_mean_and_cvar(monkeypatch):
    monkeypatch.setattr(classic, "Agent", partial(Agent, **SMALL))
    monkeypatch.setattr(inventory, "simulated", partial(inventory.simulated, shops=50, days=300))
    row = inventory.train({"preset": "ndqfn", "env": inventory.ENV, "seed": 0, "steps": 150, "until": ""})
    assert 0.5 < float(row["mean_error"]) <= 2  # untrained: about 0 instead of thousands
    assert float(row["true_cvar"]) < float(row["true_mean"])
    table = inventory.table([{"preset": "ndqfn", "steps": "150"} | row])
    assert table[1].split()[:3] == ["ndqfn", "150", "1"]


def test_the_base_stock_policy_earns_what_the_inventory_table_says():
    env, returns = Inventory(), []
    for seed in range(100):
        (stock, *_), _ = env.reset(seed=seed)
        total, truncated = 0.0, False
        while not truncated:
            lots = math.ceil(max(inventory.LEVEL - stock, 0) / Inventory.LOT)
            (stock, *_), reward, _, truncated, _ = env.step(lots)
            total += reward
        returns.append(total)
    assert np.mean(returns) == pytest.approx(inventory.BASE_STOCK, rel=0.01)


@pytest.mark.parametrize(("until", "reached", "evaluations"), [("-2", "150", 1), ("3", "", 2)])
def test_a_run_ends_once_it_reaches_the_required_return(monkeypatch, until, reached, evaluations):
    monkeypatch.setattr(classic, "Agent", partial(Agent, **SMALL))
    found = classic.train({"env": COIN, "preset": "dqn", "seed": 3, "steps": 300, "until": until})
    assert found["reached"] == reached
    assert len(found["evaluations"].split("|")) == evaluations


def test_the_settings_of_a_run_have_its_number_of_steps(monkeypatch):
    made = []

    def make(*args, **settings):
        made.append(Agent(*args, **settings, **SMALL))
        return made[0]

    monkeypatch.setattr(classic, "Agent", make)
    classic.train({"env": COIN, "preset": "dqn", "seed": 3, "steps": 150, "until": ""})
    assert made[0].config.steps == made[0].steps == 150


def test_all_presets_are_run_if_asked_for(tmp_path, monkeypatch, capsys):
    ran = []
    monkeypatch.setattr(cells, "run_cells", lambda function, cells, path, jobs: ran.extend(cells))
    asked = ["--preset", "all", "--steps", "20000", "--envs", "Acrobot-v1", "--seeds", "0"]
    classic.main([*asked, "--out", str(tmp_path / "classic.csv")])
    assert [cell.pop("preset") for cell in ran] == list(PRESETS)
    assert {tuple(cell.items()) for cell in ran} == {
        (("env", "Acrobot-v1"), ("seed", 0), ("steps", 20_000), ("until", ""))
    }


@pytest.mark.parametrize("env", scales.WORLDS)
def test_rewards_and_nothing_else_are_scaled(env):
    worlds = [scales.WORLDS[env](factor) for factor in (1.0, 100.0)]
    for world in worlds:
        world.reset(seed=1)
    for action in (0, 1, 1, 0):
        one, other = (world.step(action) for world in worlds)
        np.testing.assert_array_equal(one[0], other[0])
        assert other[1] == pytest.approx(100 * one[1])


def test_training_actions_and_evaluation_returns_are_traced():
    def make(factor):
        return gym.wrappers.TransformReward(DeepSea(4), lambda _: factor)

    trace, again = (scales.run(make, 2.0, "dqn", 0, 250, **SMALL) for _ in range(2))
    assert (len(trace.actions), len(trace.returns), trace.warmup) == (250, 4, 100)
    assert trace.returns == [4.0] * 4  # one for each step of an episode
    assert scales.compare(trace, again) | {"return_mean": 0, "return_mean_unscaled": 0} == {
        "actions": 150,
        "actions_agree": 150,
        "first_other_action": None,
        "returns": 4,
        "returns_agree": 4,
        "return_mean": 0,
        "return_mean_unscaled": 0,
    }


def test_the_common_part_of_two_runs_is_as_worked_out_by_hand():
    one = scales.Trace(actions=[0, 1, 1, 0, 1], returns=[10.0, 20.0], warmup=2)
    other = scales.Trace(actions=[1, 1, 1, 1, 1], returns=[10.0005, 21.0], warmup=2)
    assert scales.compare(one, other) == {
        "actions": 3,
        "actions_agree": 2,
        "first_other_action": 3,
        "returns": 2,
        "returns_agree": 1,
        "return_mean": 15.5,
        "return_mean_unscaled": 15.0,
    }


def test_an_explorer_that_solved_nothing_is_not_run_on_larger_worlds():
    rows = [
        {"explorer": "a", "size": "6", "episodes_to_solve": "100"},
        {"explorer": "a", "size": "8", "episodes_to_solve": ""},
        {"explorer": "a", "size": "8", "episodes_to_solve": "90"},
        {"explorer": "b", "size": "6", "episodes_to_solve": ""},
    ]
    assert [
        solved_smaller(rows, "a", 20),
        solved_smaller(rows, "b", 6),
        solved_smaller(rows, "b", 8),
        solved_smaller(rows, "c", 8),
    ] == [
        True,
        True,
        False,
        True,
    ]


class Walker:
    """Goes right in every cell, or goes wrong in the last one."""

    def __init__(self, world, wrong=False):
        self.world, self.wrong = world, wrong

    def predict(self, observation):
        row, column = (int(i) for i in torch.tensor(observation).nonzero()[0])
        right = int(self.world.right_actions[row, column])
        return (1 - right if self.wrong and row == self.world.size - 1 else right), None


def test_the_treasure_of_deep_sea_is_seen_by_rollout_and_search():
    world = DeepSea(5, mapping_seed=3)
    assert greedy_return(Walker(world), world) == pytest.approx(0.99)
    assert greedy_return(Walker(world, wrong=True), world) < 0
    search = Search(world)
    for walker in (Walker(world, wrong=True), Walker(world), Walker(world)):
        observation, _ = search.reset()
        over = False
        while not over:
            observation, _, over, _, _ = search.step(walker.predict(observation)[0])
    assert (search.episodes, search.found) == (3, 2)


def test_the_hours_of_an_evaluation_are_those_of_training_and_of_all_evaluations_before():
    score = {"return_std": 1.0, "return_min": -2.0, "return_max": 5.0, "episodes": 3}
    lines = [
        {"step": 0, "kind": "eval", "policy": "random", "return_mean": -1.0, "seconds": 360.0} | score,
        {"step": 900, "kind": "train", "steps_per_second": 0.5},
        {"step": 1260, "kind": "train", "steps_per_second": 1.0},
        {"step": 1300, "kind": "eval", "policy": "greedy", "return_mean": 2.0, "seconds": 1440.0} | score,
    ]
    rows = evaluations(lines)
    assert [(row["step"], row["hours"], row["return_mean"]) for row in rows] == [(0, 0.1, -1.0), (1300, 1.1, 2.0)]
    assert rows[1] == {"step": 1300, "hours": 1.1, "policy": "greedy", "return_mean": 2.0} | score


def test_claims_are_compared_where_both_methods_have_runs():
    ours = [[1.0, 3.0], [0.0, 0.0]]  # above 2 and 2 in half of the pairs, and tied in the others
    runs = [
        fake_run(method, [evaluation(10, return_mean=value)], env=env, seed=seed)
        for method, scores in (("a", ours), ("b", [[2.0, 2.0], [0.0, 0.0]]))
        for env, values in zip(("X", "Y"), scores, strict=True)
        for seed, value in enumerate(values)
    ]
    runs.append(fake_run("a", [evaluation(10, return_mean=99.0)], env="Z"))
    found = compared(RunComparison(runs), "a", "b")
    assert found is not None
    assert found[:2] == (2, 4)
    assert found[2].value == 0.5
    assert compared(RunComparison(runs), "a", "c") is None


@pytest.mark.parametrize(
    ("interval", "said"),
    [((0.51, 0.9), "confirmed"), ((0.1, 0.49), "refuted"), ((0.4, 0.6), "not confirmed"), (None, "one seed: nothing")],
)
def test_a_verdict_follows_from_the_interval(interval, said):
    assert verdict(Estimate(value=0.5, interval=interval)) == said


def test_rates_are_compared_with_the_fastest_peer_that_is_installed():
    rates = {"ndqfn": 6.0, "slow": 1.5, "fast": 3.0}
    assert peers.ratios(rates, ["slow", "fast", "absent"]) == [
        {"name": "ndqfn", "per_second": 6.0, "ratio": 2.0},
        {"name": "slow", "per_second": 1.5, "ratio": None},
        {"name": "fast", "per_second": 3.0, "ratio": None},
    ]
    assert peers.ratios({"ndqfn": 6.0}, ["absent"]) == [{"name": "ndqfn", "per_second": 6.0, "ratio": None}]


def test_rounds_are_interleaved_and_the_first_does_not_count(monkeypatch):
    now, ran = [0.0], []
    monkeypatch.setattr(peers.time, "perf_counter", lambda: now[0])

    def job(name, seconds):
        def work():
            ran.append(name)
            now[0] += seconds[ran.count(name) - 1]

        return work

    jobs = {"a": job("a", [99, 1, 3, 2]), "b": job("b", [99, 5, 5, 8])}
    assert peers.interleaved(jobs, rounds=3) == {"a": 2.0, "b": 5.0}
    assert ran == ["a", "b"] * 4


def test_parts_are_added_to_the_file_and_absent_libraries_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    monkeypatch.setitem(peers.PARTS, "atari", lambda sizes: [{"name": "ndqfn", "per_second": float(sizes.rounds)}])
    out = tmp_path / "deep" / "peers.json"
    peers.main(["--atari", "--rounds", "7", "--out", str(out)])
    peers.main(["--emulator", "--out", str(out)])
    assert json.loads(out.read_text()) == {
        "parts": {"atari": [{"name": "ndqfn", "per_second": 7.0}], "emulator": []},
        "versions": {},
    }
    text = capsys.readouterr().out
    assert "ale_py is not installed: left out (pip install '.[atari,peers]')." in text
    assert "ndqfn                    per_second 7" in text


def test_operations_of_a_linear_layer_are_two_for_each_weight_and_row():
    assert peers.onednn_operations((5, 3), (4, 3), None) == 2 * 5 * 3 * 4


def test_agents_of_all_methods_and_seeds_are_trained_and_audited(tmp_path, monkeypatch, capsys):
    trained = []

    def train(directory, resolved, console):
        trained.append((resolved.config.preset, resolved.config.env.id, resolved.config.seed, resolved.config.steps))
        settings = {**SMALL, "head": {"hidden": 8}}
        Agent(resolved.config.env.id, resolved.config.preset, resolved.config.seed, **settings).save(directory)

    monkeypatch.setattr(audit, "train_into", train)
    asked = ["--methods", "qr-dqn", "c51", "--envs", "monotau/Coin-v0", "--seeds", "1", "2", "--steps", "60"]
    audit.main([*asked, "--states", "2", "--rollouts", "8", "--jobs", "1", "--out", str(tmp_path)])
    assert trained == [(preset, "monotau/Coin-v0", seed, 60) for preset in ("qr-dqn", "c51") for seed in (1, 2)]
    assert "| c51 | monotau/Coin-v0 | 2 |" in capsys.readouterr().out
    assert {*audit.METHODS} <= {*PRESETS}
    assert {*audit.STEPS} <= {env_id for env_id, _ in list_envs()}
