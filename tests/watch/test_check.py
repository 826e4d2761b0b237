"""Rollouts from a watched state start at that state, and a state that cannot be reached again is refused."""

import numpy as np
import pytest

from monotau.errors import ConfigError
from monotau.watch.check import ROLLOUTS, audit_message, audit_state, digest
from monotau.watch.scene import Player
from tests.audit.test_snapshots import GlobalRandomness
from tests.support.watched import knowing_agent, tiny_agent


def watched(agent, steps, seed=3):
    """Play some steps, and return the actions and the digest of the observation after them."""
    player, actions = Player(agent, epsilon=1.0), []
    player.start(seed)
    for _ in range(steps):
        actions.append(player._moment.thought.action)
        player.advance()
    found = digest(player.stack)
    player.close()
    return actions, found


def test_the_returns_of_a_known_state_are_measured():
    agent = knowing_agent()
    actions, wanted = watched(agent, 0)
    calls = []
    audit = audit_state(agent, 3, actions, wanted, on_rollout=lambda: calls.append(1))
    assert len(calls) == 2 * ROLLOUTS
    message = audit_message(7, audit)
    assert (message["type"], message["at"], message["rollouts"]) == ("audit", 7, ROLLOUTS)
    for row, (action, spread) in zip(message["rows"], ((0, 0.1), (1, 2.0)), strict=True):
        assert row["action"] == action
        assert row["returns"] == sorted(row["returns"])
        assert set(np.round(np.abs(row["returns"]), 6)) == {spread}
        assert row["mean"] == pytest.approx(np.mean(row["returns"]))
        assert row["error"] == pytest.approx(np.std(row["returns"], ddof=1) / ROLLOUTS**0.5)


def test_the_state_in_the_middle_of_an_episode_is_reached_again():
    agent = tiny_agent("MinAtar/Breakout-v1", env_settings={"frame_stack": 2})
    actions, wanted = watched(agent, 4)
    audit = audit_state(agent, 3, actions, wanted)
    assert (audit.step, audit.returns.shape) == (4, (3, ROLLOUTS))


def test_another_state_is_refused():
    agent = tiny_agent()
    actions, wanted = watched(agent, 4)
    with pytest.raises(ConfigError, match="CartPole-v1 does not come to this state again with the same seed"):
        audit_state(agent, 4, actions, wanted)


def test_an_environment_whose_randomness_is_elsewhere_is_refused():
    agent = tiny_agent(GlobalRandomness)
    with pytest.raises(ConfigError, match="cannot be audited: a restored snapshot"):
        audit_state(agent, 0, [], 0)


def test_atari_games_are_left_to_the_command():
    agent = tiny_agent("ALE/Pong-v5", torso={"kind": "compact", "width": 8})
    with pytest.raises(ConfigError, match="monotau audit plays Atari in another one"):
        audit_state(agent, 0, [], 0)


def test_an_agent_without_distributions_is_refused():
    with pytest.raises(ConfigError, match="learns mean returns only"):
        audit_state(tiny_agent(preset="dqn", head={"hidden": 8}), 0, [], 0)


def test_returns_that_were_not_measured_are_left_out():
    audit = audit_state(tiny_agent(), 3, *watched(tiny_agent(), 1))
    audit.unmeasured[0] = True
    audit.unmeasured[1, 1:] = True
    first, second = audit_message(0, audit)["rows"]
    assert (first["returns"], first["mean"], first["error"]) == ([], None, None)
    assert len(second["returns"]) == 1
    assert second["error"] is None
