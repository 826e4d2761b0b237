"""Collecting with real Ray actors: steps add up, weights are broadcast, and dead actors are replaced."""

import json
import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from monotau.agent import Agent
from monotau.api import train_agent
from monotau.config.imports import import_parts
from monotau.config.resolve import resolve
from monotau.distributed import collector
from monotau.distributed.collector import IN_FLIGHT, RayCollector
from monotau.distributed.connect import connected
from monotau.errors import ConfigError, EnvironmentFault
from monotau.learning.agent_networks import AgentNetworks
from monotau.replay.flags import FINAL, TERMINATED
from tests.support.envs import MaskedEnv, allowed_at
from tests.support.failing_envs import FailingEnv, PidFileEnv, ProcessEnv
from tests.support.small_runs import SMALL

SETTINGS = SMALL | {
    "head": {"hidden": 8},
    "steps": 400,
    "iteration_steps": 200,
    "replay": {"warmup_steps": 50, "capacity_steps": 3000},
    "actors": 2,
    "actor": {"send_every_steps": 7, "broadcast_every_updates": 10, "cpus": 0.5},
}


@pytest.fixture(scope="module")
def modules_of_actors(tmp_path_factory):
    """A directory in which the actors find modules."""
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="module", autouse=True)
def ray(modules_of_actors):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        places = [str(Path(__file__).parents[2]), str(modules_of_actors), *sys.path]
        patch.setenv("PYTHONPATH", os.pathsep.join(places))
        with connected("local", 4):
            import ray

            yield ray


def learned(source, **settings):
    return Agent(source, "dqn", **(SETTINGS | settings)).learn(400)


def stored(agent):
    """Return all observations and flags in the replay, lane by lane; observations show process, step and episode."""
    replay = agent._training.replay
    rows = replay.rows(np.zeros(agent.config.lanes, np.int64))
    frames, flags = (np.concatenate(rows[name]) for name in ("frames", "flags"))
    ends = np.cumsum(rows["end"][0])
    return [(frames[start:end], flags[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


@pytest.mark.slow
def test_masks_of_actors_reach_the_replay(ray):
    """The environments raise for actions that are not allowed, and show their step count, which gives the mask."""
    agent = learned(partial(MaskedEnv, 4, truncates=True), env_settings={"num_envs": 2})
    rows = agent._training.replay.rows(np.zeros(4, np.int64))
    frames, masks = (np.concatenate(rows[name]) for name in ("frames", "masks"))
    assert set(frames[:, 0].tolist()) == {0.0, 1.0, 2.0, 3.0, 4.0}
    assert np.unpackbits(masks, axis=1, count=4).tolist() == [allowed_at(int(count)) for count in frames[:, 0]]


@pytest.mark.slow
def test_every_step_is_stored_once_and_each_lane_holds_one_environment_in_order(ray):
    agent = learned(ProcessEnv, explorer={"kind": "dpe"})
    assert agent.steps == len(agent._training.replay) == 400
    processes = []
    for frames, flags in stored(agent):
        acted = frames[flags < FINAL]
        leaps = np.diff(acted[:, 1])
        assert (leaps < 0).sum() == 1  # fresh environments in the second iteration
        assert set(leaps[leaps > 0].tolist()) == {1.0}
        processes.append(set(acted[:, 0].tolist()))
    assert len(set.union(*processes)) == 2
    assert os.getpid() not in set.union(*processes)
    assert all(len(found) == 1 for found in processes)
    lines = [line for line in agent.history if line["kind"] == "train"]
    assert [line["step"] for line in lines] == [50, 100, 150, 200, 250, 300, 350, 400]
    late = lines[-1]
    assert late["updates"] == agent._training.updates > 100
    assert late["bonus_mean"] > 0
    # Requests from before a broadcast are still in flight: IN_FLIGHT per actor, and one update every two steps.
    assert 0 < late["lag_updates"] <= 10 + IN_FLIGHT * 2 * 7 / 2 + 1


@pytest.mark.slow
def test_an_actor_that_is_killed_is_replaced_and_no_step_is_missing(tmp_path, capsys):
    killed = []

    def kill_one() -> None:
        while not (there := list(tmp_path.iterdir())):
            time.sleep(0.01)
        killed.append(float(there[0].name))
        os.kill(int(there[0].name), signal.SIGKILL)

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    agent = Agent(partial(PidFileEnv, tmp_path), "dqn", verbose=True, **SETTINGS).learn(400)
    assert agent.steps == 400
    assert "died and was replaced" in capsys.readouterr().err
    processes = set()
    for frames, flags in stored(agent):
        processes |= set(frames[:, 0].tolist())
        for end in np.flatnonzero(np.diff(frames[:, 0])):  # the episode is cut where another process takes over
            assert flags[end] == FINAL or flags[end] & TERMINATED
    assert killed[0] in processes
    assert len(processes) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("what", "patience"), [("exit", 300.0), ("hang", 3.0)])
def test_an_actor_that_exits_or_hangs_is_replaced(what, patience, tmp_path, capsys):
    settings = SETTINGS | {"actor": SETTINGS["actor"] | {"patience_seconds": patience}}
    agent = Agent(partial(FailingEnv, tmp_path, what), "dqn", verbose=True, **settings).learn(400)
    assert agent.steps == 400
    assert len(list(tmp_path.glob("mark*"))) == 1
    assert "died and was replaced" in capsys.readouterr().err


@pytest.mark.slow
def test_an_actor_that_keeps_exiting_stops_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(collector, "MOST_DEATHS", 2)
    settings = {"actors": 1, "actor": SETTINGS["actor"] | {"send_every_steps": 40}}
    with pytest.raises(EnvironmentFault, match="actor 0 died 2 times in a row without sending a step: ActorDiedError"):
        learned(partial(FailingEnv, tmp_path, "exit", 100), **settings)


@pytest.mark.slow
def test_an_exception_of_an_environment_in_an_actor_is_raised_in_the_learner(tmp_path):
    with pytest.raises(EnvironmentFault, match=r"actor \d: FailingEnv, step \d+: it raised RuntimeError: the mill is"):
        learned(partial(FailingEnv, tmp_path, "raise", 100))


@pytest.mark.slow
def test_an_id_registered_only_in_this_process_is_refused_with_a_remedy():
    gym.register("Ours-v0", entry_point=ProcessEnv)
    with pytest.raises(ConfigError, match=r"actor \d: env.id 'Ours-v0' is unknown.*must be given as 'module:Env-v0'"):
        learned("Ours-v0")


HEAD = """
from dataclasses import dataclass
from monotau.networks.heads.dqn import Dqn

@dataclass(frozen=True, kw_only=True)
class Mine(Dqn):
    pass

HEADS = {"mine": Mine}
"""


@pytest.mark.slow
def test_actors_use_parts_of_one_s_own(modules_of_actors, own_modules):
    (modules_of_actors / "head_of_actors.py").write_text(HEAD)
    sys.path.append(str(modules_of_actors))
    try:
        import_parts("head_of_actors")
        agent = learned("CartPole-v1", head={"kind": "mine", "hidden": 8})
    finally:
        sys.path.remove(str(modules_of_actors))
    assert (agent.steps, agent.config.imports) == (400, ("head_of_actors",))


@pytest.mark.slow
def test_a_module_that_actors_cannot_import_stops_the_run(own_modules):
    own_modules("head_of_nobody", HEAD)
    import_parts("head_of_nobody")
    with pytest.raises(ConfigError, match=r"actor \d: its process has no module 'head_of_nobody', which this process"):
        learned("CartPole-v1", head={"kind": "mine", "hidden": 8})


def test_a_ready_made_environment_is_refused():
    with pytest.raises(ConfigError, match="actors is 2, but ProcessEnv was passed as an instance, which actors"):
        learned(ProcessEnv())


def test_more_actors_than_the_cluster_has_room_for_are_refused(tmp_path):
    with pytest.raises(
        ConfigError, match=r"actors is 9, with actor.cpus 0.5 each, but the cluster has 4 CPUs in total"
    ):
        train_agent("CartPole-v1", tmp_path / "run", "dqn", verbose=False, **(SETTINGS | {"actors": 9}))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_an_interrupted_run_with_actors_resumes(tmp_path):
    class Enough(Exception):
        pass

    settings = SETTINGS | {"steps": 600}

    def limited(*_, **__):
        if limited.calls == 2:
            raise Enough
        limited.calls += 1
        return real(*_, **__)

    limited.calls = 0
    real = RayCollector.collect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RayCollector, "collect", limited)
        with pytest.raises(Enough):
            train_agent("CartPole-v1", tmp_path, "dqn", verbose=False, **settings)
    assert not (tmp_path / "result.json").exists()
    train_agent("CartPole-v1", tmp_path, "dqn", verbose=False, **settings)
    assert '"steps": 600' in (tmp_path / "result.json").read_text()
    lines = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert max(line["lag_updates"] for line in lines if line["kind"] == "train") <= 10 + IN_FLIGHT * 2 * 7 / 2 + 1


@pytest.mark.slow
def test_weights_are_sent_when_due_and_only_to_actors_with_older_weights(ray, monkeypatch):
    resolved = resolve("dqn", SETTINGS, source=ProcessEnv)
    networks = AgentNetworks(resolved.config, resolved.envs.observation_spec, resolved.envs.num_actions)
    puts = []
    stage = RayCollector(resolved.config, resolved.envs, networks, lambda _: None, "local")
    with stage.session(updates=0):
        monkeypatch.setattr(ray, "put", lambda weights, real=ray.put: (puts.append(weights), real(weights))[1])
        for updates, _ in enumerate(stage.collect(0, 0, 300)):
            stage.learned(updates // 10)  # 30 updates in all, and a broadcast every 10
    assert len(puts) == 3
    assert stage.metrics()["lag_updates"] > 0
    assert stage.newest.shape == (2, 3)


@pytest.mark.slow
def test_hooks_run_in_this_process_and_end_the_actors(ray):
    asked, lines = [], []

    def stop(progress):
        asked.append((progress.step, os.getpid()))
        return True

    agent = Agent("CartPole-v1", "dqn", **SETTINGS).learn(400, on_evaluation=stop, on_log=lines.append)
    assert asked == [(agent.steps, os.getpid())]
    assert 200 <= agent.steps < 400
    assert lines == agent.history
