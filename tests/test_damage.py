"""Damage anywhere in a checkpoint is found, named and survived, and nothing that is damaged is ever deleted."""

import random
import shutil
from pathlib import Path

import pytest
from benchmarks.endings import contents

from monotau.config.presets import resolve
from monotau.errors import StorageFault
from monotau.runs.checkpoint import Checkpoints, generations
from monotau.runs.runner import train_into
from tests.small_runs import SMALL, silent
from tests.strangers import SETTINGS
from tests.tiny_runs import train_undrawn

RESOLVED = resolve("ndqfn-dpe", SMALL, SETTINGS | {"replay": {"kind": "prioritized"} | SETTINGS["replay"]})
NEWEST, BEFORE = "00000004", "00000003"
OWN = [
    *(f"{NEWEST}/{name}" for name in ("agent.json", "weights.safetensors", "training.safetensors", "manifest.json")),
    f"replay/{NEWEST}.safetensors",
]
"""Files that no other generation has a part in."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of four iterations, of which the last two have checkpoints."""
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
    """A file, by its size: each byte of the generation is as likely to be hit as any other, but small files too."""
    if rng.random() < 0.5:
        return rng.choice(sorted(files))
    return rng.choices(sorted(files), [files[name].stat().st_size for name in sorted(files)])[0]


def sorted_contents(directory: Path) -> list[bytes]:
    """What is in all files but LATEST, which is moved to the generation that is used."""
    return sorted(data for name, data in contents(directory).items() if not name.endswith("LATEST"))


def damaged_once(directory: Path, damage, rng: random.Random) -> None:
    """Damage one file of the newest generation, look for a checkpoint, and bring everything back as it was."""
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


def test_damage_to_the_newest_checkpoint_is_found_named_and_put_aside_for_the_one_before(whole, tmp_path):
    damaged(whole, tmp_path, flips=60, cuts=20, seed=0)


@pytest.mark.slow
def test_much_damage_to_the_newest_checkpoint_is_found_named_and_put_aside_for_the_one_before(whole, tmp_path):
    damaged(whole, tmp_path, flips=1_000, cuts=300, seed=1)


@pytest.mark.parametrize("damage", [flipped, cut])
def test_damage_to_what_all_checkpoints_share_stops_the_run_and_deletes_nothing(damage, whole, tmp_path):
    rng = chance(2)
    for number, name in enumerate(["checkpoints/replay/00000002.safetensors", "metrics.jsonl"] * 3):
        directory = Path(shutil.copytree(whole, tmp_path / str(number)))
        data = (directory / name).read_bytes()
        logged = len(data) // 2  # what was logged after the checkpoint is of no account
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


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one_to_the_same_end(whole, tmp_path, monkeypatch):
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
