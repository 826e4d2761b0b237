"""Films show the same moments as the page, in every format."""

import subprocess

import imageio_ffmpeg
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image, ImageSequence

from monotau.distributions import Risk
from monotau.errors import ConfigError, StorageFault
from monotau.report.plotting import LINE_COLOURS
from monotau.watch.scene import Player
from monotau.watch.video import LARGEST_PICTURE, Canvas, _picture, check_path, film, frames_of, write_film
from tests.support.watched import knowing_agent, tiny_agent


@pytest.fixture(scope="module")
def player():
    return Player(tiny_agent())


def shoot(player, **settings):
    return film(player, **({"episodes": 1, "seed": 0, "most_steps": 6, "every_steps": 1} | settings))


def drawn(takes, player, number, risk=None, width=480):
    return Canvas(takes, player.action_names, "a title", risk or Risk(), width).draw(number)


def test_every_nth_moment_is_taken_and_the_last_one(player):
    assert [take.moment.step for take in shoot(player, most_steps=7, every_steps=3)] == [0, 3, 6, 7]
    takes = shoot(player, episodes=2, most_steps=1000, seed=4)
    ends = [number for number, take in enumerate(takes) if take.moment.ended]
    assert ends == [takes[-1].trail - 1, len(takes) - 1]
    assert [takes[0].moment.seed, takes[-1].moment.seed] == [4, 5]


def test_pictures_are_kept_small_and_whole(player):
    (take, *_) = shoot(player)
    assert take.moment.picture is None
    np.testing.assert_array_equal(_picture(take), player.start(0).picture)
    wide = np.zeros((100, 2 * LARGEST_PICTURE, 3), np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(player.world, "picture", lambda: wide)
        assert _picture(shoot(player)[0]).shape == (50, LARGEST_PICTURE, 3)


def test_frames_have_even_sides_and_change_as_the_agent_plays(player):
    takes = shoot(player)
    one, other = (drawn(takes, player, number, width=481) for number in (0, 5))
    assert one.shape == other.shape == (210, 480, 3)
    assert (one != other).any()
    np.testing.assert_array_equal(one, drawn(takes, player, 0, width=481))


def test_the_headline_has_the_colour_of_the_chosen_action():
    player = Player(knowing_agent())
    colours = []
    for risk in (Risk("cvar", 0.25), Risk("upper-cvar", 0.25)):
        player.risk = risk
        headline = drawn(shoot(player, most_steps=1), player, 0, risk)[:16, 200:].astype(int)
        colours.append(bool((headline[..., 2] - headline[..., 0] > 60).any()))
        assert bool((headline[..., 0] - headline[..., 2] > 60).any()) is not colours[-1]
    assert colours == [True, False]  # action 0 is blue, action 1 orange


def test_the_end_of_an_episode_is_shown_longer(player):
    takes = shoot(player, episodes=2, most_steps=2)
    done = []
    frames = list(frames_of(Canvas(takes, player.action_names, "", Risk(), 320), takes, 10, lambda *n: done.append(n)))
    assert len(frames) == 2 * (2 + 10)
    assert done == [(number, 6) for number in range(1, 7)]


@pytest.mark.parametrize("suffix", [".gif", ".mp4", ".webm", ".GIF"])
def test_a_film_is_written_and_nothing_else(player, tmp_path, suffix):
    frames = [np.full((32, 64, 3), 12 * number, np.uint8) for number in range(8)]
    path = tmp_path / f"film{suffix}"
    write_film(path, iter(frames), 10, frames, ["black"])
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    if suffix.lower() == ".gif":
        with Image.open(path) as image:
            assert (image.n_frames, image.size, image.info["duration"]) == (8, (64, 32), 100)
            image.seek(5)
            assert abs(int(np.asarray(image.convert("RGB"))[0, 0, 0]) - 60) <= 6
    else:
        shown = decoded(path)
        assert shown.shape == (8, 32, 64, 3)
        assert shown[5].mean() == pytest.approx(60, abs=6)


def test_a_gif_keeps_the_colours_of_all_actions(tmp_path):
    player = Player(tiny_agent("FrozenLake-v1"))
    takes = shoot(player, most_steps=3)
    canvas = Canvas(takes, player.action_names, "a title", Risk(), 480)
    frame = canvas.draw(0)
    write_film(tmp_path / "film.gif", iter([frame]), 10, canvas.samples(), canvas.thin_colours())
    with Image.open(tmp_path / "film.gif") as image:
        shown = np.asarray(image.convert("RGB")).astype(int)
    for colour in LINE_COLOURS[:4]:
        drawn = np.abs(frame - 255 * np.array(to_rgb(colour))).max(axis=-1) < 40
        assert drawn.any()
        assert np.abs(shown - frame)[drawn].max() < 40, colour


@pytest.mark.parametrize("speed", [1, 7, 20, 30, 49, 50, 60])
def test_a_gif_plays_at_the_speed_that_was_asked_for(tmp_path, speed):
    frames = [np.full((8, 8, 3), 2 * number, np.uint8) for number in range(120)]
    write_film(tmp_path / "film.gif", iter(frames), speed, frames, ["black"])
    with Image.open(tmp_path / "film.gif") as image:
        shown = [each.info["duration"] for each in ImageSequence.Iterator(image)]
    assert sum(shown) == pytest.approx(1000 * 120 / speed, rel=0.05)
    assert min(shown) >= 20  # browsers slow down shorter ones


def decoded(path):
    """The frames of a film of 64 x 32 pixels."""
    words = [
        imageio_ffmpeg.get_ffmpeg_exe(),
        "-loglevel",
        "error",
        "-i",
        str(path),
        "-f",
        "rawvideo",
        "-pix_fmt",
        "rgb24",
        "-",
    ]
    raw = subprocess.run(words, capture_output=True, check=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, 32, 64, 3)


def test_what_ffmpeg_complains_about_is_reported(tmp_path):
    frames = [np.zeros((3, 3, 3), np.uint8)] * 2  # sides must be even
    with pytest.raises(StorageFault, match=r"the film cannot be written to .*film\.mp4: .*not divisible by 2"):
        write_film(tmp_path / "film.mp4", iter(frames), 10, frames, [])
    assert list(tmp_path.iterdir()) == []


def test_a_failed_film_leaves_the_old_file(tmp_path):
    path = tmp_path / "film.gif"
    path.write_bytes(b"old")

    def frames():
        yield np.zeros((4, 4, 3), np.uint8)
        raise OSError("the disk is full")

    with pytest.raises(StorageFault, match=r"the film cannot be written to .*film\.gif: the disk is full"):
        write_film(path, frames(), 10, [np.zeros((4, 4, 3), np.uint8)], ["black"])
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["film.gif"]


def test_bad_paths_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"--out is .*film\.avi, but must end with \.mp4, \.webm or \.gif"):
        check_path(tmp_path / "film.avi")
    with pytest.raises(ConfigError, match=r"--out is .*, but there is no directory .*nowhere"):
        check_path(tmp_path / "nowhere" / "film.mp4")


def test_an_environment_without_pictures_is_filmed_without_them():
    player = Player(tiny_agent("monotau/Inventory-v0"))
    takes = shoot(player, most_steps=2)
    assert takes[0].picture == b""
    assert drawn(takes, player, 1).std() > 10
