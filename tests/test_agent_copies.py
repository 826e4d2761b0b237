"""Copies of an agent: in another process, in this one, and from run directories in any state."""

import copy
import functools
import multiprocessing
import pickle
import shutil
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from monotau import Agent, ConfigError
from tests.support.envs import Frames
from tests.support.small_runs import SMALL, briefly_learned, small_run, train_undrawn

STATES = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)


def quantiles(agent, observations=STATES):
    """Return plain numbers, which any process can send."""
    return agent.quantiles(observations, [0.1, 0.5, 0.7]).tolist()


def pickled(agent):
    return pickle.loads(pickle.dumps(agent))  # noqa: S301


def test_an_agent_predicts_the_same_in_a_spawned_process():
    agents = [briefly_learned("iqn-dpe"), briefly_learned("rainbow")]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert [*pool.map(quantiles, agents)] == [quantiles(agent) for agent in agents]
        assert pool.submit(agents[0].predict, STATES).result()[0].tolist() == agents[0].predict(STATES)[0].tolist()
        played = pool.submit(agents[1].evaluate, 2).result()
    assert played.returns == agents[1].evaluate(2).returns


@pytest.mark.parametrize("again", [copy.deepcopy, pickled])
def test_a_copy_learns_on_its_own(again):
    agent = briefly_learned("ndqfn-dpe")
    copied = again(agent)
    assert (copied.config, copied.unit, copied.steps) == (agent.config, agent.unit, 0)
    assert copied.bonus(STATES).tolist() == agent.bonus(STATES).tolist()
    before = quantiles(agent)
    assert quantiles(copied.learn(40)) != before == quantiles(agent)


def test_a_pickled_agent_keeps_an_environment_that_can_be_pickled():
    agent = Agent(functools.partial(Frames, actions=5), "dqn", **(SMALL | {"head": {"hidden": 8}}))
    assert pickled(agent).evaluate(2).returns == [5.0, 5.0]


def test_without_an_environment_that_can_be_pickled_a_copy_only_predicts():
    agent = Agent(lambda: Frames(), "dqn", **(SMALL | {"head": {"hidden": 8}}))
    copied = pickled(agent)
    assert quantiles(copied, STATES[:, :2]) == quantiles(agent, STATES[:, :2])
    with pytest.raises(ConfigError, match="this agent was loaded without its environment"):
        copied.evaluate(2)
    assert copy.deepcopy(agent).evaluate(2).returns == [5.0, 5.0]


def test_an_agent_whose_environment_is_unknown_elsewhere_still_predicts(monkeypatch):
    agent = briefly_learned("dqn")
    monkeypatch.setattr("monotau.agent.EnvFactory", lambda *_: (_ for _ in ()).throw(ConfigError("unknown")))
    assert quantiles(pickled(agent)) == quantiles(agent)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of two evaluations, whose best one is made the first."""
    directory = tmp_path_factory.mktemp("runs") / "run"
    train_undrawn(directory, small_run())
    return directory


def test_a_run_directory_is_loaded(run):
    assert quantiles(Agent.load(run)) == quantiles(Agent.load(run / "agent"))
    assert quantiles(Agent.load(run, best=True)) == quantiles(Agent.load(run / "best_agent"))
    assert Agent.load(run, "CartPole-v1").envs is not None


def test_an_unfinished_run_is_loaded_from_its_newest_undamaged_checkpoint(run, tmp_path):
    unfinished = tmp_path / "run"
    shutil.copytree(run, unfinished)
    shutil.rmtree(unfinished / "agent")
    with pytest.warns(UserWarning, match=r"the run in .* has not finished; using its checkpoint 00000002$"):
        assert quantiles(Agent.load(unfinished)) == quantiles(Agent.load(run))
    (unfinished / "checkpoints" / "00000002" / "weights.safetensors").write_bytes(b"noise")
    with pytest.warns(UserWarning, match="checkpoint 0000000") as notes:
        Agent.load(unfinished)
    assert [str(note.message).partition(":")[0] for note in notes] == [
        "checkpoint 00000002 is not used",
        f"the run in {unfinished} has not finished; using its checkpoint 00000001",
    ]
    (unfinished / "checkpoints" / "00000001" / "manifest.json").unlink()
    with pytest.raises(ConfigError, match=r"^there is no agent in .*: checkpoint 00000002 is not used: .*\.$"):
        Agent.load(unfinished)
    shutil.rmtree(unfinished / "best_agent")
    with pytest.raises(ConfigError, match=r"^there is no best agent in .*: a run writes best_agent at its first eval"):
        Agent.load(unfinished, best=True)
