"""The compile setting: when networks are compiled, and that a run whose compilation fails has the same results."""

import copy
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from monotau.agent import Agent
from monotau.errors import ConfigError
from monotau.explorers.dpe import Dpe
from monotau.learning.learner import Learner
from monotau.networks.compile import LEAST_UPDATES, Compiled, Compiler, has_cpp_compiler, settle_compile
from tests.support.envs import Frames
from tests.support.networks import random_batch, small_factory
from tests.support.small_runs import BRIEF, SMALL, briefly_learned


def same_weights(one: Agent, other: Agent) -> bool:
    weights = other.networks.state()
    return all(torch.equal(tensor, weights[name]) for name, tensor in one.networks.state().items())


def broken_at_once(function, mode):
    raise RuntimeError("this Python cannot be compiled")


def broken_later(function, mode):
    def call(*arguments, **options):
        raise RuntimeError("no compiler\nis installed")

    return call


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (broken_at_once, "RuntimeError: this Python cannot be compiled"),
        (broken_later, "RuntimeError: no compiler is installed"),
    ],
)
def test_a_run_whose_compilation_fails_learns_the_same_as_one_without_compilation(broken, reason, monkeypatch):
    eager = briefly_learned("ndqfn-dpe")
    monkeypatch.setattr(torch, "compile", broken)
    with pytest.warns(RuntimeWarning, match=f"torch.compile failed; the run continues without it: {reason}") as caught:
        agent = briefly_learned("ndqfn-dpe", compile=True)
    assert len(caught) == 1
    assert same_weights(agent, eager)
    assert not same_weights(agent, Agent("CartPole-v1", "ndqfn-dpe", **BRIEF))


@pytest.mark.parametrize("wanted", [True, False])
def test_networks_are_compiled_only_if_the_setting_says_so(wanted, monkeypatch):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda function, mode: compiled.append(function) or function)
    briefly_learned("ndqfn-dpe", compile=wanted)
    assert len(compiled) == (1 if wanted else 0)


@pytest.mark.parametrize(("graphs", "mode"), [(True, "reduce-overhead"), (False, None)])
def test_on_a_gpu_compiled_functions_run_as_graphs_which_start_anew_with_each_update(graphs, mode, monkeypatch):
    events = []

    def compiled(function, mode):
        events.append(mode)
        return lambda *arguments, **options: events.append("call") or function(*arguments, **options)

    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: events.append("begin"))
    factory = replace(small_factory(), compiler=Compiler(wanted=True, graphs=graphs))
    learner = Learner(factory, double_q=True, explorer=Dpe())
    for _ in range(2):
        learner.update(random_batch(), torch.Generator().manual_seed(0))
    begin = ["begin"] if graphs else []
    assert events == [*begin, mode, "call", *begin, "call"]


def test_the_flag_is_recorded_with_the_settings():
    plain = [Agent("CartPole-v1", "dqn", compile=given).config.to_plain()["compile"] for given in ("auto", False, True)]
    assert plain == ["auto", "off", "on"]  # true and false are what YAML makes of on and off, and of older settings
    with pytest.raises(ConfigError, match=r"compile 'yes' is unknown\. Allowed: auto, off, on"):
        Agent("CartPole-v1", "dqn", compile="yes")


@pytest.mark.parametrize(
    ("wanted", "updates", "small", "device", "found", "compiled"),
    [
        ("auto", LEAST_UPDATES, True, "cpu", True, True),
        ("auto", LEAST_UPDATES - 1, True, "cpu", True, False),
        ("auto", LEAST_UPDATES, False, "cpu", True, False),
        ("auto", LEAST_UPDATES, True, "cpu", False, False),
        ("auto", LEAST_UPDATES, True, "cuda", True, False),
        ("on", 1, False, "cpu", False, True),
        ("off", 10**9, True, "cpu", True, False),
    ],
)
def test_auto_compiles_long_runs_of_small_networks_on_a_cpu_with_a_compiler(
    wanted, updates, small, device, found, compiled, monkeypatch
):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if found and name == "clang++" else None)
    monkeypatch.delenv("CXX", raising=False)
    settled = settle_compile(wanted, updates=updates, small=small, device=torch.device(device))
    assert settled is compiled


def test_the_compiler_of_the_environment_counts(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: name if name == "/opt/c++" else None)
    monkeypatch.setenv("CXX", "/opt/c++")
    assert has_cpp_compiler()
    monkeypatch.delenv("CXX")
    assert not has_cpp_compiler()


def test_the_updates_of_a_run_are_those_after_its_warm_up():
    config = Agent("CartPole-v1", "dqn", steps=20_000).config
    assert config.planned_updates == (20_000 - config.replay.warmup_steps) // 2
    assert Agent("CartPole-v1", "dqn", steps=20, replay={"warmup_steps": 50}).config.planned_updates == 0


def test_an_error_of_the_call_itself_is_raised(monkeypatch):
    def refuse() -> tuple[Tensor]:
        raise ValueError("wrong arguments")

    monkeypatch.setattr(torch, "compile", lambda function, mode: function)
    with pytest.warns(RuntimeWarning, match="wrong arguments"), pytest.raises(ValueError, match="wrong arguments"):
        Compiled(refuse, Compiler(wanted=True))()


def test_a_copy_of_a_learner_uses_its_own_weights():
    learner, batch = Learner(small_factory(), double_q=True), random_batch()
    other = copy.deepcopy(learner)
    with torch.no_grad():
        for parameter in other.online.parameters():
            parameter.add_(1.0)
    losses = [one.update(batch, torch.Generator().manual_seed(0)).losses for one in (learner, other)]
    assert not torch.equal(*losses)


def test_images_beside_vectors_and_short_trainings_are_not_compiled():
    """`learn` decides, if the length was left open; the default length of images is a million steps."""
    space = spaces.Dict(a=spaces.Box(0, 255, (6, 5, 3), np.uint8), b=spaces.Box(-1, 1, (2,)))
    assert not Agent(lambda: Frames(space), "dqn").networks.compiler.on
    agent = Agent("CartPole-v1", "dqn", **(SMALL | {"head": {"hidden": 8}, "steps": 10**7}))
    assert agent.networks.compiler.on == has_cpp_compiler()
    settings = {name: value for name, value in SMALL.items() if name not in ("steps", "head")}
    short = Agent("CartPole-v1", "dqn", **settings)
    short.networks.compiler.on = True
    assert not short.learn(100).networks.compiler.on
