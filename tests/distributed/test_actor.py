"""Rollout actors without Ray: the steps they play, send and store."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from monotau.config.imports import is_imported
from monotau.config.resolve import resolve
from monotau.config.schema import ActorConfig
from monotau.distributed.actor import CollectRequest, RolloutActor
from monotau.envs import EnvFactory
from monotau.errors import ConfigError
from monotau.learning.agent_networks import AgentNetworks
from monotau.learning.policy import RandomActions
from monotau.learning.rollout import Rollout
from monotau.learning.train import layout_of
from monotau.seeding import numpy_stream, stream_seed, torch_stream
from tests.support.envs import MaskedEnv, allowed_at
from tests.support.failing_envs import ProcessEnv
from tests.support.small_runs import SMALL, small_run


def weights_of(networks: AgentNetworks) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy().copy() for name, tensor in networks.state().items()}


def request(iteration=0, step=0, steps=6, epsilons=(0.3, 0.0)):
    return CollectRequest(iteration, step, steps, np.array(epsilons))


@pytest.mark.parametrize("preset", ["ndqfn-dpe", "rainbow"])
def test_an_actor_plays_like_a_local_rollout_with_the_weights_it_received(preset):
    resolved = resolve(preset, SMALL | {"head": {"hidden": 8}}, {"env": {"num_envs": 2}, "actors": 3})
    config = resolved.config
    networks = AgentNetworks(replace(config, seed=5), resolved.envs.observation_spec, resolved.envs.num_actions)
    actor = RolloutActor(config, None, 1, 0)
    results = [
        actor.collect(request(iteration=4), weights_of(networks)),
        actor.collect(request(iteration=4, steps=30), None),
    ]

    envs = EnvFactory(config.env)
    rollout = Rollout(envs, 2, 1, stream_seed(config.seed, "environments of actor 1", 4))
    explore = numpy_stream(config.seed, "explore of actor 1", 4)
    fractions = torch_stream(config.seed, "explore of actor 1", 4)
    returns, noise = [], RandomActions(2, envs.num_actions)
    longest = config.epsilon.longest_at(-1)
    for result in results:
        for number in range(len(result)):
            chosen = (rollout.observations, np.array([0.3, 0.0]), explore, fractions, noise, longest)
            outcome = rollout.step(*networks.exploration_policy.explore(*chosen))
            step = result.step(number)
            for name in ("frames", "first", "actions", "rewards", "terminated", "truncated", "random"):
                np.testing.assert_array_equal(getattr(step, name), getattr(outcome.steps, name), err_msg=name)
            returns.append([returned for _, returned, _ in outcome.returns])
    assert returns == results[0].returns + results[1].returns
    assert any(returns)
    np.testing.assert_array_equal(results[1].newest.frames, rollout.observations[:, -1])


def test_a_new_iteration_resets_the_environments_and_a_restarted_actor_gets_other_seeds():
    config = resolve("dqn", SMALL | {"head": {"hidden": 8}}, {"env": {"num_envs": 2}, "actors": 2}).config
    actor = RolloutActor(config, None, 0, 0)
    first = actor.collect(request(), None)
    again = actor.collect(request(), None)
    assert first.first[0].all()
    assert not again.first[0].any()
    assert actor.collect(request(iteration=1), None).first[0].all()
    assert RolloutActor(config, None, 0, 0).collect(request(), None).frames.tolist() == first.frames.tolist()
    for other in (RolloutActor(config, None, 0, 1), RolloutActor(config, None, 1, 0)):
        assert other.collect(request(), None).frames[0].tolist() != first.frames[0].tolist()


def test_collected_steps_can_be_stored_with_the_final_frames_of_truncated_episodes():
    resolved = resolve(
        "dqn", SMALL | {"head": {"hidden": 8}}, {"actors": 2, "n_step": 2, "cut_at_random": False}, source=ProcessEnv
    )
    result = RolloutActor(resolved.config, ProcessEnv, 0, 0).collect(request(steps=40, epsilons=(1.0,)), None)
    assert sorted(result.finals) == [20]  # the third episode of seven steps is truncated; the sixth has not ended yet
    replay = resolved.config.replay.build(layout_of(resolved.config, resolved.envs), 100)
    for number in range(len(result)):
        replay.add(result.step(number), slice(1, 2))
    replay.cut(result.newest, slice(1, 2))
    batch = replay.sample(400, np.random.default_rng(0))
    seen = dict(zip(batch.observations[:, 0, 1].int().tolist(), batch.next_observations[:, 0, 1].tolist(), strict=True))
    gone = dict(zip(batch.observations[:, 0, 1].int().tolist(), batch.discounts.tolist(), strict=True))
    assert seen[3] == 5
    assert (seen[19], seen[20]) == (21, 21)
    assert gone[20] == pytest.approx(0.99)
    assert gone[13] == 0.0
    assert seen[39] == 40


def test_an_actor_sends_the_masks_of_its_steps_and_of_final_frames():
    """The environment raises for actions that are not allowed, and shows its step count, which gives the mask."""
    resolved = resolve(
        "dqn", SMALL | {"head": {"hidden": 8}}, {"actors": 2, "n_step": 2, "env": {"num_envs": 2}}, source=truncated
    )
    assert resolved.config.env.action_masks == "use"
    result = RolloutActor(resolved.config, truncated, 0, 0).collect(request(steps=11), None)
    replay = resolved.config.replay.build(layout_of(resolved.config, resolved.envs), 100)
    for number in range(len(result)):
        replay.add(result.step(number), slice(2, 4))
    replay.cut(result.newest, slice(2, 4))
    batch = replay.sample(400, np.random.default_rng(0))
    for observations, masks in ((batch.observations, batch.masks), (batch.next_observations, batch.next_masks)):
        assert set(observations[:, 0, 0].tolist()) >= {2.0, 3.0}
        assert [allowed_at(int(count)) for count in observations[:, 0, 0]] == masks.tolist()


def truncated() -> MaskedEnv:
    return MaskedEnv(length=4, truncates=True)


def test_epsilons_fall_from_the_first_environment_to_the_last():
    assert ActorConfig().epsilons(3) == pytest.approx([0.4, 0.4**4.5, 0.4**8])
    assert ActorConfig().epsilons(1) == pytest.approx([0.4**4.5])
    assert ActorConfig(epsilon=0.1, power=0.0).epsilons(4) == pytest.approx([0.1] * 4)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"actors": -1}, "actors is -1, but must be at least 0"),
        ({"actor": {"epsilon": 0.2}}, r"actor.\* settings are given, but actors is 0"),
        ({"actors": 2, "actor": {"epsilon": 1.2}}, r"actor.epsilon is 1.2, but must be a probability"),
        ({"actors": 2, "actor": {"send_every_steps": 0}}, "actor.send_every_steps is 0, but must be at least 1"),
        ({"actors": 2, "actor": {"broadcast_every_updates": 0}}, "broadcast_every_updates is 0, but must be at least"),
        ({"actors": 2, "actor": {"power": -1.0}}, "actor.power is -1.0, but must be at least 0"),
        ({"actors": 2, "actor": {"cpus": float("inf")}}, "actor.cpus is inf, but must be a finite number"),
        ({"actors": 2, "actor": {"patience_seconds": 0.0}}, "patience_seconds is 0.0, but must be a positive number"),
    ],
)
def test_invalid_actor_settings_are_refused(settings, match):
    with pytest.raises(ConfigError, match=match):
        small_run(**settings)


@pytest.mark.parametrize(
    ("explorer", "name"),
    [({"kind": "dltv"}, "decisions"), ({"kind": "dpe", "normalise": True}, "moments"), ({"kind": "pqr"}, "decisions")],
)
def test_explorer_statistics_merged_from_an_actor_equal_those_of_acting_locally(explorer, name):
    resolved = small_run("ndqfn", actors=2, explorer=explorer)
    spec, actions = resolved.envs.observation_spec, resolved.envs.num_actions
    brains = [AgentNetworks(resolved.config, spec, actions) for _ in range(3)]
    alone, learner, actor = (networks.explorer for networks in brains)
    rng = np.random.default_rng(0)

    def act(networks: AgentNetworks) -> None:
        networks.exploration_policy.act(observations, 0.0, np.random.default_rng(1), torch_stream(0, "x"))

    for sizes in ((3, 5), (4, 1)):
        actor.load_state(learner.state())
        for size in sizes:
            observations = rng.normal(size=(size, 1, *spec.shape)).astype(np.float32)
            act(brains[0])
            act(brains[2])
        learner.merge_stats(actor.drain_stats())
    assert all(not tensor.any() for tensor in actor.drain_stats().values())
    torch.testing.assert_close(learner.state()[name], alone.state()[name])
    assert alone.state()[name].any()


def test_an_actor_imports_the_modules_of_its_run(own_modules):
    own_modules("my_registration", "imported = True")
    config = replace(small_run().config, imports=("my_registration",))
    assert not is_imported("my_registration")
    RolloutActor(config, None, 0, 0).collect(request(epsilons=(1.0,)), None)
    assert is_imported("my_registration")
