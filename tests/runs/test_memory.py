"""Memory plans of runs: sizes worked out by hand, and refusals that suggest a smaller capacity."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from monotau.agent import Agent
from monotau.api import train_agent
from monotau.cli import main
from monotau.config.resolve import resolve
from monotau.errors import ConfigError
from monotau.learning.agent_networks import AgentNetworks
from monotau.replay import REPLAYS, Layout, Prioritized, Uniform
from monotau.replay.sum_tree import SumTree
from monotau.runs import memory, runner
from monotau.runs.memory import LARGEST_SHARE, LIBRARY_BYTES, MemoryPlan
from monotau.runs.metrics import Log
from monotau.runs.progress import Display
from monotau.runs.runner import train_into
from tests.support.envs import Frames
from tests.support.small_runs import SMALL, SMALL_FLAGS, silent, skip_figures, small_run


def layout(lanes=1, frame_shape=(84, 84), frame_dtype="uint8"):
    return Layout(lanes=lanes, frame_shape=frame_shape, frame_dtype=frame_dtype, stack=2, n_step=1, gamma=0.9)


def plan(available=None, config=None, **sizes):
    sizes = {"networks": 5_000, "updates": 700, "libraries": 30, "actors": 0} | sizes
    return MemoryPlan(config=config or uniform(1_000), layout=layout(3, (5, 2)), available=available, **sizes)


def uniform(capacity):
    return Uniform(capacity_steps=capacity, warmup_steps=1)


def test_a_million_atari_frames_take_seven_gigabytes_and_the_rest_hardly_anything():
    sizes = Uniform(capacity_steps=1_000_000).memory(layout())
    assert sizes == (7_056_000_000, 13_000_000)
    assert sizes.total == 7_069_000_000


def test_the_sizes_of_replays_are_as_worked_out_by_hand():
    # 1,003 steps on 4 lanes are 250 slots a lane; a slot has 3 * 5 float32 and 4 + 8 + 1 bytes.
    assert uniform(1_003).memory(layout(4, (3, 5), "float32")) == (1_000 * 60, 1_000 * 13)
    # A mask of 11 actions takes 2 more bytes.
    masked = replace(layout(4, (3, 5), "float32"), masked_actions=11)
    assert uniform(1_003).memory(masked) == (1_000 * 60, 1_000 * 15)
    # And a tree of 8 rows of 128 leaves and one of 128 nodes, of 8 bytes.
    prioritized = Prioritized(capacity_steps=1_003, warmup_steps=1)
    assert prioritized.memory(layout(4, (3, 5), "float32")) == (60_000, 13_000 + 9 * 128 * 8)


@given(leaves=st.integers(1, 40_000))
def test_a_sum_tree_takes_the_memory_it_reports(leaves):
    assert SumTree.memory(leaves) == sum(level.nbytes for level in SumTree(leaves)._levels)


@given(kind=st.sampled_from(sorted(REPLAYS)), lanes=st.integers(1, 5), capacity=st.integers(50, 3_000))
def test_a_ring_takes_the_memory_it_reports(kind, lanes, capacity):
    config, shape = REPLAYS[kind](capacity_steps=capacity, warmup_steps=1), layout(lanes, (3, 2), "float32")
    replay = config.build(shape, horizon_steps=9)
    ring = getattr(replay, "_ring", replay)
    trees = replay._tree._levels if ring is not replay else []
    frames = ring._frames.nbytes
    beside = sum(array.nbytes for array in (ring._actions, ring._rewards, ring._flags, *trees))
    assert config.memory(shape) == (frames, beside)


@pytest.mark.parametrize("method", ["adam", "rmsprop"])
@pytest.mark.parametrize("preset", ["dqn", "ndqfn-dpe", "rainbow", "fqf-dpe", "ndqfn-deep-dpe"])
def test_the_predicted_memory_of_networks_is_that_after_an_update(preset, method):
    settings = {name: section for name, section in SMALL.items() if name != "head"}
    resolved = resolve(preset, settings, {"optimiser": {"method": method}}, source=lambda: Frames(actions=5))
    agent = Agent.of(resolved)
    foretold = AgentNetworks.blank(resolved.config, agent.spec, agent.actions).memory()
    agent.learn(60)
    networks = agent.networks
    tensors = list(networks.state().values())
    for optimiser in networks.optimisers():
        tensors += optimiser.state().values()
        tensors += [
            weight.grad
            for network in optimiser.networks.values()
            for weight in network.parameters()
            if weight.grad is not None
        ]
    without_gradient = sum(
        weight.nbytes
        for optimiser in networks.optimisers()
        for optimiser in (optimiser.main, *optimiser.head_optimisers)
        for group in optimiser.param_groups
        for weight in group["params"]
        if weight.grad is None
    )
    assert without_gradient == 0
    assert foretold == sum(tensor.nbytes for tensor in tensors)


def test_the_plan_is_the_sum_of_its_parts():
    # 333 slots on each of 3 lanes, of 10 bytes and 13.
    assert plan().total == 999 * 23 + 5_000 + 700 + 30
    whole = plan(available=21_300_000_000, networks=110_000_000, libraries=400_000_000, updates=20_000_000)
    assert whole.sum == (
        "replay 0.00 GB + networks 0.11 GB + updates 0.02 GB + libraries 0.40 GB = 0.53 GB of 21.30 GB available"
    )
    assert replace(whole, available=None).sum.endswith(" = 0.53 GB")


def test_the_plan_of_a_run_counts_everything_the_run_allocates():
    resolved = small_run(preset="ndqfn-paper")
    found = MemoryPlan.of(resolved, 10**10)
    training = Agent.of(resolved).start_training(Log(), Display(None))
    assert found.replay == (500 * 4 * 4, 500 * 13) == (training.replay._frames.nbytes, 6500)
    assert found.updates == memory.UPDATE_COPIES * 4 * 2 * 8 * 4  # float32 of both sides of 8 transitions of 4 numbers
    assert found.libraries == LIBRARY_BYTES
    assert found.networks > 0


def test_local_actors_each_take_the_memory_of_their_libraries_and_remote_ones_nothing():
    resolved = small_run(actors=60)
    alone = MemoryPlan.of(small_run(), 10**10).total
    assert MemoryPlan.of(resolved, 10**10).actors == 60 * LIBRARY_BYTES
    # Sixty lanes share the replay's slots, which is a difference of less than a slot each.
    assert MemoryPlan.of(resolved, 10**10, "10.0.0.1:6379").total == pytest.approx(alone, abs=60 * 40)
    with pytest.raises(
        ConfigError, match=r"actors 23.40 GB = .*; use smaller networks or batches or fewer actors: no replay"
    ):
        MemoryPlan.of(resolved, 10**10).check()
    MemoryPlan.of(resolved, 10**10, "auto").check()


def test_networks_on_a_gpu_take_no_main_memory(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    found = MemoryPlan.of(small_run(device="cuda"), 10**10)
    assert (found.networks, found.updates) == (0, 0)


@given(
    available=st.integers(1, 60_000),
    capacity=st.integers(20, 3_000),
    kind=st.sampled_from(sorted(REPLAYS)),
)
def test_the_suggested_capacity_is_the_largest_that_is_accepted(available, capacity, kind):
    found = plan(available, REPLAYS[kind](capacity_steps=capacity, warmup_steps=1))
    largest = found.largest_capacity()

    def fits(steps):
        smaller = replace(found, config=replace(found.config, capacity_steps=steps))
        return smaller.total <= LARGEST_SHARE * available

    assert 0 <= largest <= capacity
    assert largest == 0 or fits(largest)
    assert largest == capacity or not fits(largest + 1)
    assert replace(found, available=None).largest_capacity() == capacity


def test_a_run_may_take_ninety_percent_of_the_available_memory():
    total = plan().total
    plan(available=-(-total * 10 // 9)).check()
    plan(available=None).check()
    with pytest.raises(ConfigError, match="of which it may use at most 90%"):
        plan(available=total * 10 // 9 - 1).check()


def test_a_refusal_suggests_a_smaller_capacity():
    atari = MemoryPlan(
        actors=0,
        config=Uniform(capacity_steps=1_000_000),
        layout=layout(),
        networks=184_000_000,
        updates=123_000_000,
        available=4_000_000_000,
    )
    with pytest.raises(ConfigError) as caught:
        atari.check()
    # (0.9 * 4e9 - 697e6) / 7069 is 410,666.3
    assert atari.largest_capacity() == 410_666
    assert str(caught.value) == (
        "the run needs too much memory: replay 7.07 GB + networks 0.18 GB + updates 0.12 GB + libraries 0.39 GB "
        "= 7.77 GB of 4.00 GB available, of which it may use at most 90%; use --replay.capacity-steps 410000, "
        "or --force (in Python, force=True) to try anyway."
    )
    with pytest.raises(ConfigError, match="use smaller networks or batches: no replay fits beside them, or --force"):
        replace(atari, available=600_000_000).check()


@pytest.fixture
def scarce(monkeypatch):
    """A machine with half the memory that the libraries need."""
    monkeypatch.setattr(memory, "available_bytes", lambda: LIBRARY_BYTES // 2)
    skip_figures(monkeypatch)


def test_a_run_that_does_not_fit_leaves_no_directory(scarce, tmp_path, capsys):
    words = ["train", *SMALL_FLAGS, "--out", str(tmp_path / "run")]
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert re.fullmatch(r"error: the run needs too much memory: replay .*\n", capsys.readouterr().err)
    assert not (tmp_path / "run").exists()


def test_force_trains_anyway_and_is_not_recorded_as_a_setting(scarce, tmp_path):
    main(["train", *SMALL_FLAGS, "--out", str(tmp_path / "run"), "--force"])
    assert (tmp_path / "run" / "result.json").exists()
    assert "force" not in (tmp_path / "run" / "config.json").read_text()
    assert "force" not in (tmp_path / "run" / "agent" / "agent.json").read_text()


def test_the_python_api_refuses_and_forces_in_the_same_way(scarce, tmp_path):
    settings = SMALL | {"steps": 20, "iteration_steps": 20}
    with pytest.raises(ConfigError, match=r"force=True"):
        train_agent("CartPole-v1", tmp_path / "run", **settings, verbose=False)
    assert train_agent("CartPole-v1", tmp_path / "run", **settings, verbose=False, force=True).actions == 2
    agent = Agent("CartPole-v1", **SMALL)
    with pytest.raises(ConfigError, match=r"force=True"):
        agent.learn(10)
    assert agent.learn(10, force=True).steps == 10
    assert agent.learn(10).steps == 20  # memory it already holds is not requested again


def test_a_resumed_run_is_checked_again(tmp_path, monkeypatch, scarce):
    resolved = small_run()
    monkeypatch.setattr(runner, "_train_to_end", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        train_into(tmp_path / "run", resolved, silent(), force=True)
    with pytest.raises(ConfigError, match=r"at most 90%"):
        train_into(tmp_path / "run", resolved, silent())


def told(monkeypatch, tmp_path, available, **settings):
    monkeypatch.setattr(memory, "available_bytes", lambda: available)
    monkeypatch.setattr(runner, "_train", lambda *_: None)
    monkeypatch.setattr(runner, "_report", lambda *_: None)
    file = io.StringIO()
    train_into(tmp_path / "run", small_run(**settings), Console(file=file, width=300))
    return file.getvalue()


def test_a_large_allocation_is_announced_first(monkeypatch, tmp_path):
    large = {"replay": {"capacity_steps": 10_000_000}}
    line = "memory: replay 0.37 GB + networks 0.00 GB + updates 0.00 GB + libraries 0.39 GB = 0.76 GB"
    assert told(monkeypatch, tmp_path, 20 * 10**9, **large) == f"{line} of 20.00 GB available\n"


def test_a_run_is_not_refused_if_the_available_memory_is_unknown(monkeypatch, tmp_path):
    assert told(monkeypatch, tmp_path, None, replay={"capacity_steps": 10_000_000}).endswith(" = 0.76 GB\n")


def test_a_small_allocation_is_not_announced(monkeypatch, tmp_path):
    assert told(monkeypatch, tmp_path, 20 * 10**9) == ""


def test_atari_runs_use_the_paper_s_replay_capacity():
    source = spaces.Box(0, 255, (84, 84), np.uint8)
    found = MemoryPlan.of(resolve("dqn", source=lambda: Frames(source, actions=18)), None)
    assert found.replay.frames <= 7.1e9
