"""A session plays only while somebody looks, does what viewers ask for, and keeps a bounded past."""

import json
import struct
import threading
import time

import pytest

from monotau.distributions import Risk
from monotau.errors import ConfigError, EnvironmentFault
from monotau.watch import session as module
from monotau.watch.messages import Request
from monotau.watch.session import KEPT_STEPS, Session
from monotau.watch.source import Source
from tests.support.watched import knowing_agent, tiny_agent


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    directory = tmp_path_factory.mktemp("agents") / "cartpole"
    tiny_agent().save(directory)
    return directory


@pytest.fixture
def play(saved, monkeypatch):
    """Start a session; its thread ends with the test."""
    monkeypatch.setattr(module, "END_SECONDS", 0.01)
    started = []

    def start(directory=saved, **settings):
        session = Session(Source(directory), **({"speed": 60} | settings))
        session.load()
        session.start()
        started.append(session)
        return session

    yield start
    for session in started:
        session.stop()
        assert not session._thread.is_alive()


def until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def header(kept):
    (length,) = struct.unpack_from("<I", kept.data)
    return json.loads(kept.data[4 : 4 + length])


def test_it_plays_while_somebody_looks(play):
    session, news = play(), []
    time.sleep(0.1)
    assert session.newest is None  # nobody is there
    session.join(1, lambda: news.append(session.newest))
    until(lambda: session.newest is not None and session.newest.at >= 3)
    assert any(news)
    session.handle(1, Request("visible", False))
    time.sleep(0.1)
    at = session.newest.at
    time.sleep(0.2)
    assert session.newest.at == at
    session.handle(1, Request("visible", True))
    until(lambda: session.newest.at > at)
    session.leave(1)
    time.sleep(0.1)
    at = session.newest.at
    time.sleep(0.2)
    assert session.newest.at == at


def test_pause_step_and_play(play):
    session = play()
    session.join(1, lambda: None)
    until(lambda: session.newest is not None)
    session.handle(1, Request("pause"))
    time.sleep(0.1)
    at = session.newest.at
    assert session.status()["state"] == "paused"
    for _ in range(2):
        session.handle(1, Request("step"))
    until(lambda: session.newest.at == at + 2)
    time.sleep(0.1)
    assert session.newest.at == at + 2
    session.handle(1, Request("play"))
    until(lambda: session.newest.at > at + 2)


def test_episodes_take_the_next_seed_and_can_be_chosen(play):
    session = play(seed=5)
    session.join(1, lambda: None)
    until(lambda: session.newest is not None)
    session.handle(1, Request("pause"))
    for request, seed in ((Request("next"), 6), (Request("seed", 100), 100), (Request("again"), 100)):
        first = session._first_of_episode
        session.handle(1, request)
        until(lambda first=first: session._first_of_episode > first and session.newest.at == session._first_of_episode)
        assert (header(session.newest)["seed"], header(session.newest)["step"], session.seed) == (seed, 0, seed)
    session.handle(1, Request("play"))
    until(lambda: session.seed == 101)  # the episode ended by itself


def test_the_speed_is_kept(play):
    session = play(speed=10)
    session.join(1, lambda: None)
    until(lambda: session.newest is not None)
    first, start = session.newest.at, time.monotonic()
    time.sleep(1.0)
    steps = session.newest.at - first
    assert steps <= 10 * (time.monotonic() - start) + 2
    session.handle(1, Request("speed", 60))
    assert session.status()["speed"] == 60


def test_a_risk_measure_changes_the_choice_of_the_moment_that_is_shown(play, tmp_path):
    knowing_agent().save(tmp_path)
    session = play(tmp_path, speed=1)
    session.join(1, lambda: None)
    until(lambda: session.newest is not None)
    session.handle(1, Request("pause"))
    session.handle(1, Request("again"))
    until(lambda: session.newest.at > 0 and header(session.newest)["step"] == 0)
    kept = session.newest
    assert header(kept)["action"] == 0
    session.handle(1, Request("risk", Risk("upper-cvar", 0.25)))
    until(lambda: session.newest is not kept)
    assert header(session.newest)["action"] == 1
    assert session.newest.at == kept.at
    assert session.moment(kept.at) is session.newest
    session.handle(1, Request("epsilon", 1.0))
    until(lambda: session.status()["epsilon"] == 1.0)


def test_a_state_is_measured_and_play_waits_meanwhile(play):
    session = play()
    session.join(1, lambda: None)
    until(lambda: session.newest is not None and session.newest.at >= 3)
    session.handle(1, Request("pause"))
    time.sleep(0.1)
    first = session.newest.at - session.newest.point[1]
    session.handle(1, Request("audit", first + 2))
    until(lambda: session.audit is not None)
    assert (session.audit["at"], len(session.audit["rows"])) == (first + 2, 2)
    assert session.status()["state"] == "paused"
    assert session.status()["audited_share"] is None


def test_play_interrupts_a_measurement(play, monkeypatch):
    begun = threading.Event()

    def audit_state(*_, on_rollout):
        begun.set()
        while True:
            on_rollout()
            time.sleep(0.01)

    monkeypatch.setattr(module, "audit_state", audit_state)
    session = play()
    session.join(1, lambda: None)
    until(lambda: session.newest is not None)
    session.handle(1, Request("audit", session.newest.at))
    assert begun.wait(60)
    until(lambda: session.status()["audited_share"] == 0 or session.status()["audited_share"] > 0.05)
    at = session.newest.at
    session.handle(1, Request("play"))
    until(lambda: session.newest.at > at)
    assert session.audit is None
    assert session.status()["audited_share"] is None


def test_a_state_that_cannot_be_measured_is_said_and_so_is_one_that_is_gone(play, monkeypatch):
    def audit_state(*_, **__):
        raise ConfigError("it cannot be\nrestored.")

    monkeypatch.setattr(module, "audit_state", audit_state)
    session = play()
    session.join(1, lambda: None)
    until(lambda: session.newest is not None)
    session.handle(1, Request("audit", 10**6))
    until(lambda: "it is no state of this episode" in session.status()["message"])
    session.handle(1, Request("audit", session.newest.at))
    until(lambda: session.status()["message"] == "This state cannot be measured: it cannot be restored.")
    session.handle(1, Request("play"))
    assert session.status()["message"] == ""


def test_the_past_is_kept_up_to_a_limit(play, monkeypatch):
    session = play()
    session.stop()
    monkeypatch.setattr(module, "pack_moment", lambda *moment: b"")
    kept = session._kept
    assert kept.maxlen == KEPT_STEPS == 2_000
    moment = session._player.start(0)
    for _ in range(2_010):
        session._show(moment)
    assert (session.moment(9), session.moment(10).at, session.moment(2_009).at) == (None, 10, 2_009)
    assert session.moment(2_010) is None
    session._first_of_episode = 1_000
    points = session.points_since(1_500)
    assert [point[0] for point in points] == list(range(1_501, 2_010))
    assert session.points_since(-1)[0][0] == 1_000


def test_an_environment_that_fails_is_shown_and_a_new_episode_is_tried(play, monkeypatch):
    session = play()

    def fail(action):
        raise EnvironmentFault("the simulator\ncrashed")

    monkeypatch.setattr(session._player.world, "step", fail)
    session.join(1, lambda: None)
    until(lambda: session.status()["state"] == "error")
    assert session.status()["message"] == "the simulator crashed"
    monkeypatch.delattr(session._player.world, "step")
    session.handle(1, Request("next"))
    until(lambda: session.status()["state"] == "playing")
    until(lambda: header(session.newest)["step"] > 1)


def test_a_newer_agent_is_taken_in_the_middle_of_an_episode(play, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.02)
    tiny_agent().save(tmp_path)
    session = play(tmp_path, speed=5)
    session.join(1, lambda: None)
    until(lambda: session.newest is not None)
    first = session._player.agent
    tiny_agent(seed=1).save(tmp_path)
    until(lambda: session._player.agent is not first)
    (tmp_path / "agent.json").write_text("{")
    until(lambda: "could not be read" in session.status()["message"])
    at = session.newest.at
    until(lambda: session.newest.at > at)  # it plays on with the agent that it has


def test_a_run_without_a_checkpoint_waits_for_one(play, saved, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.02)
    (tmp_path / "config.json").write_text("{}")
    session = play(tmp_path)
    session.join(1, lambda: None)
    assert session.status()["state"] == "waiting"
    tiny_agent().save(tmp_path)
    until(lambda: session.newest is not None)
    assert session.status()["state"] == "playing"


def test_steps_that_wait_are_bounded(play):
    session = play()
    session.stop()
    for _ in range(1_000):
        session.handle(1, Request("step"))
    assert session._steps_ahead == module.MOST_STEPS_AHEAD


def test_steps_asked_for_before_a_new_episode_are_dropped_and_those_after_it_are_taken(saved):
    session = Session(Source(saved))
    session.load()
    session.playing = False
    session._act(due_now=False)
    for kind in ("step", "step", "step", "again", "step", "step"):
        session.handle(1, Request(kind))
    while session._act(due_now=False):
        pass
    assert (header(session.newest)["step"], session.newest.at) == (2, 3)
    session._player.close()
