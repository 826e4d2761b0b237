"""The commands refuse bad input in one line, before anything is written, and end at Ctrl-C."""

import ipaddress
import os
import signal
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from PIL import Image

from monotau.agent import Agent
from monotau.distributions import Risk
from monotau.watch import command as module
from monotau.watch.command import has_screen, is_loopback, reachable, risk_note
from tests.support.commands import command_caller
from tests.support.watched import served, tiny_agent


@pytest.fixture
def call(capsys, monkeypatch):
    monkeypatch.setattr(os, "nice", lambda more: 0)
    monkeypatch.setattr(module, "prepare_process", lambda: None)
    return command_caller(capsys)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    directory = tmp_path_factory.mktemp("agents") / "cartpole"
    tiny_agent().save(directory)
    return directory


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["watch"], "monotau watch needs at least one run directory"),
        (["watch", "nowhere"], "there is no run in nowhere: it is not a directory"),
        (["watch", "SAVED", "nowhere"], "there is no run in nowhere: it is not a directory"),
        (["watch", "SAVED", "--speed", "0"], "--speed is 0, but must be from 1 to 60 steps per second"),
        (["watch", "SAVED", "--seed", "-1"], "--seed is -1, but must be from 0 to 2147483647"),
        (["watch", "SAVED", "--epsilon", "2"], "--epsilon is 2.0, but must be from 0 to 1"),
        (["watch", "SAVED", "--risk", "luck"], "risk 'luck' is unknown"),
        (["watch", "SAVED", "--best"], "there is no best agent in"),
        (["watch", "SAVED", "--checkpoint", "5"], "has no checkpoint of step 5: it has none at all."),
        (["watch", "SAVED", "--port", "99999"], "--port 99999 cannot be used"),
        (
            ["watch", "SAVED", "--env", "Acrobot-v1"],
            "they differ in actions (2 there, 3 here), observation.shape ([4] there, [6] here)",
        ),
        (["video", "SAVED"], "--out"),
        (["video", "SAVED", "--out", "film.avi"], "--out is film.avi, but must end with .mp4, .webm or .gif"),
        (["video", "nowhere", "--out", "film.gif"], "there is no run in nowhere"),
        (["video", "SAVED", "--out", "film.gif", "--episodes", "0"], "--episodes is 0, but must be at least 1"),
        (["video", "SAVED", "--out", "film.gif", "--every-steps", "0"], "--every-steps is 0, but must be at least 1"),
        (["video", "SAVED", "--out", "film.gif", "--speed", "61"], "--speed is 61, but must be from 1 to 60 frames"),
        (["video", "SAVED", "--out", "film.gif", "--width", "100"], "--width is 100, but must be from 320 to 3840"),
        (["video", "EMPTY", "--out", "film.gif"], "the run has not saved a checkpoint yet"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, saved, tmp_path, monkeypatch, words, reason):
    monkeypatch.chdir(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "config.json").write_text("{}")
    code, _, error = call(*({"SAVED": saved, "EMPTY": empty}.get(word, word) for word in words))
    assert code == 2
    assert reason in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


@pytest.mark.parametrize("command", ["watch", "audit"])
def test_directories_are_required_and_have_no_default(call, command):
    code, help_text, _ = call(command, "--help")
    words = " ".join(help_text.replace("│", " ").split())
    assert (code, "(required)" in words, "default: )" in words) == (0, True, False)


def test_a_taken_port_and_a_damaged_agent_are_refused_in_one_line(call, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        tiny_agent().save(tmp_path)
        port = taken.getsockname()[1]
        code, _, error = call("watch", tmp_path, "--port", port)
        assert (code, f"--port {port} cannot be used: Address already in use" in error) == (2, True)
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    code, _, error = call("watch", tmp_path)
    assert (code, error.count("\n"), "weights.safetensors" in error) == (2, 1, True)


@pytest.mark.parametrize(
    ("words", "missing", "extra"),
    [(["watch", "."], "uvicorn", "watch"), (["video", ".", "--out", "x.mp4"], "imageio_ffmpeg", "video")],
)
def test_a_missing_extra_is_named(call, monkeypatch, words, missing, extra):
    monkeypatch.setitem(sys.modules, missing, None)
    code, _, error = call(*words)
    assert code == 2
    assert f"monotau {extra} needs {missing}, which cannot be imported" in error
    assert f"pip install 'monotau[{extra}]'" in error
    assert error.count("\n") == 1


def test_a_film_is_made_by_one_command(call, saved, tmp_path):
    path = tmp_path / "film.gif"
    code, out, _ = call("video", saved, "--out", path, "--most-steps", "3", "--width", "320", "--risk", "cvar")
    assert (code, out.strip()) == (0, str(path))
    with Image.open(path) as image:
        assert image.size == (320, 140)


@pytest.mark.parametrize("command", [("watch",), ("video", "--out", "film.gif")])
def test_an_environment_that_only_the_user_may_import_is_asked_for(call, tmp_path, command):
    tiny_agent().save(tmp_path)
    about = tmp_path / "agent.json"
    about.write_text(about.read_text().replace("CartPole-v1", "os:CartPole-v1"))
    code, _, error = call(command[0], tmp_path, *command[1:])
    assert (code, error.count("\n")) == (2, 1)
    assert "the environment os:CartPole-v1 of the agent in" in error
    assert "must be named: pass --env ID or --import MODULE." in error


def test_an_environment_without_pictures_is_said(call, tmp_path):
    tiny_agent("monotau/Inventory-v0").save(tmp_path)
    code, _, error = call("video", tmp_path, "--out", tmp_path / "film.gif", "--most-steps", "1", "--width", "320")
    assert code == 0
    assert "there is no drawing of monotau/Inventory-v0: only its distributions are shown" in error


@pytest.mark.parametrize(
    ("number", "host"),
    [pytest.param(signal.SIGINT, "127.0.0.1", marks=pytest.mark.slow), (signal.SIGTERM, "0.0.0.0")],  # noqa: S104
)
def test_a_signal_ends_everything_and_another_host_is_warned_about(saved, tmp_path, number, host):
    with served(saved, folder=tmp_path, flags=("--host", host)) as (address, process):
        with urllib.request.urlopen(address) as answer:  # noqa: S310
            assert b"<title>monotau watch</title>" in answer.read()
        process.send_signal(number)
        assert process.wait(timeout=15) == 128 + number
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(address)  # noqa: S310
    printed = (tmp_path / "watch.log").read_text()
    assert "Traceback" not in printed
    assert "watch at http://0.0.0.0" not in printed
    warned = "warning: --host 0.0.0.0 lets everybody who has the address watch" in printed
    assert warned is (host == "0.0.0.0")  # noqa: S104


def test_addresses_of_this_machine_are_recognised():
    assert [is_loopback(host) for host in ("127.0.0.1", "127.5.5.5", "::1", "localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "192.168.1.5", "example.org")] == [False] * 4  # noqa: S104


def test_a_host_that_stands_for_all_addresses_is_printed_as_one_of_them(monkeypatch):
    assert [reachable(host) for host in ("127.0.0.1", "localhost", "::1")] == ["127.0.0.1", "localhost", "::1"]
    for host, version in (("0.0.0.0", 4), ("::", 6)):  # noqa: S104
        found = ipaddress.ip_address(reachable(host))
        assert (found.version, found.is_unspecified) == (version, False)

    def no_network(*_):
        raise OSError("Network is unreachable")

    monkeypatch.setattr(socket, "socket", no_network)
    assert [reachable(host) for host in ("0.0.0.0", "::")] == ["127.0.0.1", "::1"]  # noqa: S104


def test_a_risk_measure_of_an_agent_that_learns_means_is_warned_about(call, tmp_path):
    agent = Agent("CartPole-v1", "dqn", torso={"width": 8}, head={"hidden": 8})
    agent.save(tmp_path)
    words = ("video", tmp_path, "--out", tmp_path / "film.gif", "--most-steps", "1", "--width", "320")
    _, _, error = call(*words, "--risk", "cvar")
    assert error.strip() == "warning: --risk cvar acts like mean, because dqn learns mean returns only"
    assert call(*words)[2] == ""
    assert [risk_note(each, Risk("cvar")) for each in (None, tiny_agent())] == [None, None]


def test_a_browser_opens_only_where_there_is_a_screen(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not has_screen()
    monkeypatch.setenv("DISPLAY", ":0")
    assert has_screen()


def test_only_the_server_needs_its_extra():
    home = Path(module.__file__).parent
    assert [path.name for path in home.glob("*.py") if "from starlette" in path.read_text()] == ["server.py"]
    assert "watch.server" not in (home / "video.py").read_text()
