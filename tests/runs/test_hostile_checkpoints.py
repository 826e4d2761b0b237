"""Untrusted runs: altered files are not used, and forged files neither execute code nor allocate memory."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from monotau.runs.files import record_of, to_json
from tests.support.hostile_files import HUGE, ODDITIES, TENSORS, TEXTS, replaced
from tests.support.loader_process import LoaderProcess

NEWEST, BEFORE = "00000004", "00000003"
SEGMENT = f"replay/{NEWEST}.safetensors"
FILES = [f"{NEWEST}/weights.safetensors", f"{NEWEST}/training.safetensors", SEGMENT]


@pytest.fixture
def run(loader, tmp_path) -> Path:
    """A copy of a valid run."""
    return Path(shutil.copytree(loader.run, tmp_path / "run"))


def names(run: Path) -> set[str]:
    return {str(path.relative_to(run)) for path in run.rglob("*")}


def signed(run: Path, generation: str, **changes: Any) -> None:
    """Change a manifest and update its own checksum."""
    path = run / "checkpoints" / generation / "manifest.json"
    plain = json.loads(path.read_text()) | changes
    del plain["sha256"]
    path.write_bytes(to_json(plain | {"sha256": hashlib.sha256(to_json(plain)).hexdigest()}))


def part(run: Path, name: str) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads((run / "checkpoints" / NEWEST / "manifest.json").read_text())[name]
    return plain


def fallback(loader: LoaderProcess, run: Path) -> str:
    """Assert that the run resumes from the previous generation; return the warning about the newest one."""
    iteration, (pointer, warning) = loader.ask("resume", run)["value"]
    assert iteration == 3
    assert f"LATEST names '{NEWEST}', but the newest checkpoint that can be used is {BEFORE}" in pointer
    assert "\n" not in warning
    assert len(warning) < 600
    text: str = warning
    return text


def test_resuming_a_valid_run_only_uses_files(loader, run):
    assert loader.ask("state", run)["value"] == "finished"
    assert loader.ask("resume", run)["value"] == [4, []]


# The sizes already reveal these files; their contents matter if the manifest is forged as well.
LIKELY = {kind: TENSORS[kind] for kind in ("a pickle", "a file of torch.save", "nothing", "a real header of 100 MB")}


@pytest.mark.parametrize("kind", [*LIKELY, *ODDITIES, *HUGE])
def test_hostile_files_in_the_newest_checkpoint_are_set_aside_for_the_previous_one(kind, loader, run, tmp_path):
    for number, file in enumerate(FILES):
        copy = Path(shutil.copytree(run, tmp_path / str(number)))
        replaced(copy / "checkpoints" / file, LIKELY[kind]() if kind in LIKELY else (ODDITIES | HUGE)[kind])
        before = names(copy)
        assert file in fallback(loader, copy)
        aside = {SEGMENT, NEWEST} if file == SEGMENT else {NEWEST}
        moved = {name.replace(f"checkpoints/{old}", f"checkpoints/{old}.damaged") for old in aside for name in before}
        assert names(copy) <= moved | before
        assert len(names(copy)) == len(before)


@pytest.mark.parametrize("kind", TENSORS)
def test_hostile_files_with_a_forged_manifest_are_refused(kind, loader, run, tmp_path):
    for number, file in enumerate(FILES):
        copy = Path(shutil.copytree(run, tmp_path / str(number)))
        path = copy / "checkpoints" / file
        path.write_bytes(TENSORS[kind]())
        group = "segments" if file == SEGMENT else "files"
        signed(copy, NEWEST, **{group: part(copy, group) | {path.name: list(record_of(path))}})
        before = names(copy)
        message = loader.refusal("resume", copy)
        assert f"checkpoints/{NEWEST} is undamaged, but does not match this run: " in message
        assert names(copy) == before


@pytest.mark.parametrize("kind", [*TEXTS, *ODDITIES])
def test_a_hostile_manifest_is_set_aside_for_the_previous_checkpoint(kind, loader, run):
    path = run / "checkpoints" / NEWEST / "manifest.json"
    replaced(path, TEXTS[kind]() if kind in TEXTS else ODDITIES[kind])
    assert f"{NEWEST}/manifest.json" in fallback(loader, run)
    assert os.path.lexists(run / "checkpoints" / f"{NEWEST}.damaged" / "manifest.json")


DIGEST = "0" * 64
DEEP: list[Any] = []
for _ in range(400):
    DEEP = [DEEP]

FORGED = [
    *({group: {name: [1, DIGEST]}} for group in ("files", "segments", "logs") for name in ("../x", "/etc/passwd", "")),
    *({group: value} for group in ("files", "segments", "logs") for value in ([], None, "ab", {"x": 5}, DEEP)),
    *({"logs": {"metrics.jsonl": record}} for record in ([-1, DIGEST], [True, DIGEST], [1.0, DIGEST], [1], ["1", 1])),
    {"segments": {"../00000004.safetensors": [1, DIGEST]}},
    {"segments": {"00000004.safetensors\0": [1, DIGEST]}},
    {"iteration": True},
    {"iteration": -1},
    {"iteration": 4.0},
    {"step": "240"},
    {"step": -1},
    {"updates": None},
    {"seconds": "1"},
    {"seconds": DEEP},
    {"package": "[/nope]"},
    {"package": "x" * 100_000},
    {"package": None, "seconds": None},
    {"config_sha256": DIGEST},
    {"schema": 2},
    {"schema": True},
    {"extra": 1},
]


@pytest.mark.parametrize("changes", FORGED, ids=lambda changes: str(changes)[:60])
def test_a_forged_manifest_is_set_aside_for_the_previous_checkpoint(changes, loader, run):
    signed(run, NEWEST, **changes)
    assert f"{NEWEST}/manifest.json" in fallback(loader, run)


def test_a_manifest_that_claims_more_data_than_exists_is_not_used(loader, run):
    size, digest = part(run, "files")["training.safetensors"]
    signed(run, NEWEST, files=part(run, "files") | {"training.safetensors": [2**62, digest]})
    wanted = f"training.safetensors is damaged: it has {size} bytes, but {2**62} were written"
    assert wanted in fallback(loader, run)


@pytest.mark.parametrize("kind", [*TEXTS, *ODDITIES])
def test_a_hostile_pointer_to_the_newest_checkpoint_does_no_harm(kind, loader, run):
    path = run / "checkpoints" / "LATEST"
    replaced(path, TEXTS[kind]() if kind in TEXTS else ODDITIES[kind])
    iteration, warnings = loader.ask("resume", run)["value"]
    assert iteration == 4
    assert len(warnings) == 1
    assert str(path) in warnings[0]
    assert path.is_file() or not os.path.lexists(path)  # the next checkpoint can be written


@pytest.mark.parametrize("kind", [*TEXTS, *ODDITIES])
def test_a_hostile_log_stops_the_run_and_nothing_is_lost(kind, loader, run):
    replaced(run / "metrics.jsonl", TEXTS[kind]() if kind in TEXTS else ODDITIES[kind])
    before = names(run)
    message = loader.refusal("resume", run)
    assert "no checkpoint in " in message
    assert "metrics.jsonl" in message
    assert names(run) == before


@pytest.mark.parametrize("text", ["[]\n{}\n", "null\n", "1\n{}\n", "[" * 100_000 + "\n{}\n", "\xff\n{}\n"], ids=str)
def test_a_log_with_a_forged_manifest_is_refused(text, loader, run):
    path = run / "metrics.jsonl"
    path.write_bytes(text.encode("latin-1"))
    signed(run, NEWEST, logs=part(run, "logs") | {path.name: list(record_of(path))})
    assert "metrics.jsonl, line 1 is " in loader.refusal("resume", run)


@pytest.mark.parametrize("kind", [*TEXTS, *ODDITIES])
def test_hostile_settings_of_a_run_are_refused(kind, loader, run):
    replaced(run / "config.json", TEXTS[kind]() if kind in TEXTS else ODDITIES[kind])
    message = loader.refusal("state", run)
    assert "config.json" in message or "holds another run: it differs in" in message


@pytest.mark.parametrize("name", ["checkpoints", "checkpoints/replay"])
def test_checkpoints_behind_a_link_are_refused_and_left_alone(name, loader, run, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    shutil.move(run / name, elsewhere)
    (run / name).symlink_to(elsewhere)
    for precious in (".mine.tmp", "mine.safetensors"):
        (elsewhere / precious).write_text("precious")
    before = names(elsewhere)
    assert f"{name} is a link, but must be a directory of the run" in loader.refusal("resume", run)
    assert names(elsewhere) == before


def test_a_generation_behind_a_link_is_set_aside(loader, run, tmp_path):
    shutil.move(run / "checkpoints" / NEWEST, tmp_path / "elsewhere")
    (run / "checkpoints" / NEWEST).symlink_to(tmp_path / "elsewhere")
    assert f"{NEWEST} is not a directory" in fallback(loader, run)
    assert (run / "checkpoints" / f"{NEWEST}.damaged").is_symlink()
    assert len(names(tmp_path / "elsewhere")) == 4


def test_a_missing_segment_invalidates_only_the_newest_checkpoint(loader, run):
    (run / "checkpoints" / SEGMENT).unlink()
    assert f"{SEGMENT} cannot be read: No such file" in fallback(loader, run)
