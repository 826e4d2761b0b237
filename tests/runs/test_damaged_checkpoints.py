"""Damage anywhere in a checkpoint is found, reported and survived, and damaged files are never deleted."""

import random
import shutil
from pathlib import Path

import pytest
from benchmarks.endings import contents

from monotau.config.resolve import resolve
from monotau.errors import StorageFault
from monotau.runs.checkpoint import Checkpoints, generations
from monotau.runs.runner import train_into
from tests.support.loader_process import SETTINGS
from tests.support.small_runs import SMALL, silent, skip_figures, train_undrawn

RESOLVED = resolve("ndqfn-dpe", SMALL, SETTINGS | {"replay": {"kind": "prioritized"} | SETTINGS["replay"]})
NEWEST, BEFORE = "00000004", "00000003"
OWN = [
    *(f"{NEWEST}/{name}" for name in ("agent.json", "weights.safetensors", "training.safetensors", "manifest.json")),
    f"replay/{NEWEST}.safetensors",
]
"""Files that belong to the newest generation only."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of four iterations with checkpoints of the last two."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    train_undrawn(directory, RESOLVED)
    assert [path.name for path in generations(directory / "checkpoints")] == [NEWEST, BEFORE]
    return directory


def chance(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311


def flipped(data: bytes, rng: random.Random) -> bytes:
    place, bit = rng.randrange(len(data)), rng.randrange(8)
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def drawn(files: dict[str, Path], rng: random.Random) -> str:
    """Draw a file: half of the time by its size, and otherwise uniformly, so that small files are hit too."""
    if rng.random() < 0.5:
        return rng.choice(sorted(files))
    return rng.choices(sorted(files), [files[name].stat().st_size for name in sorted(files)])[0]


def sorted_contents(directory: Path) -> list[bytes]:
    """Return the contents of all files except LATEST, which is updated to the generation in use."""
    return sorted(data for name, data in contents(directory).items() if not name.endswith("LATEST"))


def damaged_once(directory: Path, damage, rng: random.Random) -> None:
    """Damage one file of the newest generation, look for a checkpoint, and restore everything."""
    home = directory / "checkpoints"
    name = drawn({name: home / name for name in OWN}, rng)
    path, good = home / name, (home / name).read_bytes()
    path.write_bytes(bad := damage(good, rng))
    before = sorted_contents(directory)
    checkpoints = Checkpoints(directory, RESOLVED.config)
    warnings = checkpoints.find()
    assert checkpoints.manifest is not None
    assert checkpoints.manifest.iteration == 3
    assert [warning for warning in warnings if f"checkpoint {NEWEST} is not used: {path} " in warning], warnings
    assert sorted_contents(directory) == before
    aside = home / f"{NEWEST}.damaged"
    segment = home / "replay" / f"{NEWEST}.safetensors.damaged"
    held = segment if name.startswith("replay") else aside / path.name
    assert held.read_bytes() == bad
    assert segment.exists() == name.startswith("replay")
    aside.rename(home / NEWEST)
    if segment.exists():
        segment.rename(path)
    path.write_bytes(good)


def damaged(whole: Path, tmp_path: Path, flips: int, cuts: int, seed: int) -> None:
    directory, rng = Path(shutil.copytree(whole, tmp_path / "run")), chance(seed)
    good = sorted_contents(directory)
    for damage, count in ((flipped, flips), (cut, cuts)):
        for _ in range(count):
            damaged_once(directory, damage, rng)
    assert sorted_contents(directory) == good
    assert Checkpoints(directory, RESOLVED.config).find() == []


def test_a_damaged_newest_checkpoint_is_reported_set_aside_and_replaced_by_the_previous_one(whole, tmp_path):
    damaged(whole, tmp_path, flips=60, cuts=20, seed=0)


@pytest.mark.slow
def test_many_kinds_of_damage_to_the_newest_checkpoint_are_reported_and_survived(whole, tmp_path):
    damaged(whole, tmp_path, flips=1_000, cuts=300, seed=1)


@pytest.mark.parametrize("damage", [flipped, cut])
def test_damage_to_files_shared_by_all_checkpoints_stops_the_run_and_deletes_nothing(damage, whole, tmp_path):
    rng = chance(2)
    for number, name in enumerate(["checkpoints/replay/00000002.safetensors", "metrics.jsonl"] * 3):
        directory = Path(shutil.copytree(whole, tmp_path / str(number)))
        data = (directory / name).read_bytes()
        logged = len(data) // 2  # lines logged after the checkpoint do not matter
        bad = damage(data[:logged], rng) + (data[logged:] if damage is flipped else b"")
        (directory / name).write_bytes(bad)
        before = contents(directory)
        with pytest.raises(StorageFault, match=rf"no checkpoint in .* can be used \({NEWEST}: .*{name} is damaged: "):
            Checkpoints(directory, RESOLVED.config).find()
        assert contents(directory) == before


def test_damage_to_the_pointer_does_no_harm(whole, tmp_path):
    directory, rng = Path(shutil.copytree(whole, tmp_path / "run")), chance(3)
    path = directory / "checkpoints" / "LATEST"
    good = path.read_bytes()
    for damage in [flipped] * 20 + [cut] * 5:
        path.write_bytes(damage(good, rng))
        checkpoints = Checkpoints(directory, RESOLVED.config)
        warnings = checkpoints.find()
        assert checkpoints.manifest is not None
        assert checkpoints.manifest.iteration == 4
        assert len(warnings) <= 1
        assert all(str(path) in warning for warning in warnings)


def test_a_run_resumes_from_the_checkpoint_before_a_damaged_one_and_ends_the_same(whole, tmp_path, monkeypatch):
    skip_figures(monkeypatch)
    directory = Path(shutil.copytree(whole, tmp_path / "run"))
    (directory / "result.json").unlink()
    path = directory / "checkpoints" / f"replay/{NEWEST}.safetensors"
    good = path.read_bytes()
    path.write_bytes(flipped(good, chance(4)))
    train_into(directory, RESOLVED, silent())
    assert path.read_bytes() == good
    assert (directory / "agent" / "weights.safetensors").read_bytes() == (
        whole / "agent" / "weights.safetensors"
    ).read_bytes()
    assert path.with_name(f"{path.name}.damaged").exists()
