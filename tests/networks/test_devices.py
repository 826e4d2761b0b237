"""Training on a device other than the CPU; `tests/support/devices.py` provides a stand-in for a GPU."""

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from monotau.agent import Agent
from monotau.config.resolve import resolve
from monotau.distributions import RISKS
from monotau.errors import ConfigError
from monotau.learning.agent_networks import pick_device
from monotau.networks.devices import one_thread, sent, torch_threads
from monotau.replay import Batch
from monotau.report import run_figures
from monotau.runs import runner
from monotau.runs.runner import train_into
from tests.support.devices import STAND_IN, MixedDevices, StandInTensor, stand_in_device
from tests.support.networks import random_batch, small_factory
from tests.support.presets import presets
from tests.support.small_runs import SMALL, silent

BRIEF = SMALL | {
    "head": {"hidden": 8},
    "replay": {"warmup_steps": 12, "capacity_steps": 500},
    "update": {"batch_size": 8, "every_steps": 4, "sync_every_steps": 16},
    "log_every_steps": 20,
    "evaluation": {"episodes": 1, "episode_cap_steps": 2},
}
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*is a no-op"
)  # torch warns about copies to meta, but the stand-in does copy
STATE = np.zeros(4, np.float32)


def learned(preset: str, **settings) -> Agent:
    return Agent("CartPole-v1", preset, **(BRIEF | settings)).learn(20, evaluated=True)


def assert_alike(there: dict, here: dict) -> None:
    for name, tensor in there.items():
        torch.testing.assert_close(tensor.cpu(), here[name], rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("preset", presets())
def test_every_preset_learns_the_same_on_another_device(preset):
    here = learned(preset)
    with stand_in_device():
        there = learned(preset)
        weights = there.networks.learner.state()
        assert weights
        assert all(isinstance(tensor, StandInTensor) for tensor in weights.values())
        assert_alike(there.networks.state(), here.networks.state())


@pytest.mark.parametrize(
    ("preset", "settings"),
    [
        ("ndqfn-dpe", {"explorer": {"normalise": True, "target": "frozen"}, "noisy": True, "dueling": True}),
        ("dqn", {"optimiser": {"method": "rmsprop"}}),
    ],
)
def test_settings_without_a_preset_learn_the_same_on_another_device(preset, settings):
    here = learned(preset, **settings)
    with stand_in_device():
        assert_alike(learned(preset, **settings).networks.state(), here.networks.state())


@pytest.mark.parametrize("preset", ["ndqfn-deep-dpe", "c51-dpe", "iqn-dltv"])
def test_an_agent_on_another_device_predicts_is_saved_and_is_loaded(preset, tmp_path):
    with stand_in_device():
        agent = learned(preset)
        agent.save(tmp_path)
        again = Agent.load(tmp_path)
        places = [{name: tensor.device for name, tensor in one.networks.state().items()} for one in (agent, again)]
        assert places[0] == places[1]
        assert STAND_IN in places[0].values()
        for risk in RISKS:
            assert agent.predict(STATE, risk=risk) == again.predict(STATE, risk=risk)
        agent.predict(STATE, deterministic=False)
        assert_alike({"bonus": agent.bonus(STATE)}, {"bonus": again.bonus(STATE).cpu()})
        assert_alike({"taus": agent.quantiles(STATE, [0.2, 0.7])}, {"taus": again.quantiles(STATE, [0.2, 0.7]).cpu()})
        assert_alike({"mean": agent.distribution(STATE).mean()}, {"mean": again.distribution(STATE).mean().cpu()})
        assert len(agent.evaluate(episodes=1).returns) == 1
        again.learn(20)
    Agent.load(tmp_path).predict(STATE)  # loads on the CPU, too


@pytest.mark.parametrize("preset", [pytest.param("ndqfn-deep-dpe", marks=pytest.mark.slow), "rainbow"])
def test_a_run_on_another_device_resumes_and_ends_like_an_uninterrupted_one(preset, tmp_path, monkeypatch):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    resolved = resolve(preset, BRIEF, {"steps": 32, "iteration_steps": 16})
    monkeypatch.setattr(run_figures, "draw_learning_curve", lambda *_: None)
    with stand_in_device():
        train_into(whole, resolved, silent(), draw=run_figures.draw_run_figures)
        with monkeypatch.context() as patch:
            patch.setattr(runner, "_evaluate", cut_off)
            with pytest.raises(KeyboardInterrupt):
                train_into(cut, resolved, silent())
        train_into(cut, resolved, silent())
        results = [Agent.load(directory / "agent").networks.state() for directory in (whole, cut)]
        assert all(torch.equal(tensor.cpu(), results[1][name].cpu()) for name, tensor in results[0].items())
    assert (whole / "quantile_functions.png").stat().st_size


def cut_off(*_):
    raise KeyboardInterrupt


def test_the_stand_in_refuses_what_a_gpu_refuses_and_allows_what_it_allows():
    with stand_in_device():
        here, there = torch.ones(3), torch.ones(3).to(STAND_IN)
        for mix in (lambda: here + there, lambda: there.add_(here), lambda: torch.cat([here, there])):
            with pytest.raises(MixedDevices, match="on two devices"):
                mix()
        with pytest.raises((RuntimeError, TypeError)):
            there.numpy()
        assert (there + torch.tensor(2.0)).cpu().tolist() == [3.0, 3.0, 3.0]
        assert torch.zeros(3, device=there.device).copy_(2 * here).sum().item() == 6.0
        assert there.device == STAND_IN
        assert there.cpu().numpy().tolist() == [1.0, 1.0, 1.0]


class Transfers(TorchDispatchMode):
    """Records allocations in pinned memory and copies between devices."""

    def __init__(self) -> None:
        super().__init__()
        self.pinned, self.copied = [], []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        options = options or {}
        result = function(*arguments, **options)
        if options.get("pin_memory"):
            self.pinned.append(tuple(result.shape))
        if function is torch.ops.aten._to_copy.default:
            self.copied.append((tuple(result.shape), result.dtype, options.get("non_blocking")))
        return result


@pytest.mark.parametrize("masked", [False, True])
def test_a_batch_goes_to_a_gpu_in_an_asynchronous_copy_from_pinned_memory_for_each_type(masked):
    with FakeTensorMode(allow_non_fake_inputs=True), Transfers() as transfers:
        moved = random_batch(size=9, masked=masked).to(torch.device("cuda", 0))
    masks = [((18, 3), torch.bool, True)] if masked else []
    assert transfers.copied == [
        ((18, 1, 5), torch.float32, True),
        ((27,), torch.float32, True),
        ((9,), torch.int64, True),
        *masks,
    ]
    assert transfers.pinned == [shape for shape, _, _ in transfers.copied]
    tensors = [value for value in vars(moved).values() if isinstance(value, torch.Tensor)]
    assert len(tensors) == 6 + 2 * masked
    assert all(tensor.device.type == "cuda" and len(tensor) == 9 for tensor in tensors)
    assert isinstance(moved.index, np.ndarray)


def test_a_batch_is_unchanged_by_the_move_to_a_device():
    batch: Batch = random_batch(size=9, masked=True)
    with stand_in_device() as device:
        moved = batch.to(device)
        for name, value in vars(batch).items():
            there = getattr(moved, name)
            if isinstance(value, torch.Tensor):
                assert isinstance(there, StandInTensor), name
                there = there.cpu()
            assert there.tolist() == value.tolist(), name


def test_on_the_cpu_nothing_is_copied_nor_pinned():
    batch = random_batch()
    with Transfers() as transfers:
        moved = batch.to(torch.device("cpu"))
    assert vars(moved) == vars(batch)  # the same objects
    assert (transfers.copied, transfers.pinned) == ([], [])


def test_parts_of_different_lengths_travel_together():
    with stand_in_device() as device:
        one, other = sent((torch.arange(6).view(2, 3), torch.arange(9).view(3, 3)), device)
        assert one.cpu().tolist() == [[0, 1, 2], [3, 4, 5]]
        assert other.cpu().tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize(
    ("name", "available", "expected"),
    [("auto", True, "cuda"), ("auto", False, "cpu"), ("cuda", True, "cuda"), ("cpu", True, "cpu")],
)
def test_auto_takes_a_gpu_if_there_is_one(name, available, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    assert pick_device(name).type == expected


def test_a_missing_gpu_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="torch finds no CUDA device on this machine; allowed: auto, cpu"):
        pick_device("cuda")


def test_making_a_network_leaves_the_generators_of_gpus_alone(monkeypatch):
    seeded = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    small_factory().make("online")
    assert seeded == []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
    assert seeded == [3]  # shows that the patch would have noticed


def test_training_flushes_subnormal_numbers_to_zero_and_restores_all_settings():
    tiny, threads = torch.full((3,), 1e-39), torch.get_num_threads()
    with torch_threads(threads + 1):
        assert torch.get_num_threads() == threads + 1
        assert (tiny * 1).count_nonzero() == 0
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == threads + 1
    assert torch.get_num_threads() == threads
    assert (tiny * 1).count_nonzero() == 3
