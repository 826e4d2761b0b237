"""Files are whole or absent, and reading them executes nothing."""

import os
import pickle
import struct

import pytest
import torch

from monotau import storage
from monotau.errors import ConfigError
from monotau.storage import read_json, read_tensors, unfinished, write_bytes, write_json, write_tensors

TENSORS = {
    "weights": torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),
    "moments": torch.tensor([1e300, -2.5, 0.1], dtype=torch.float64),
    "steps": torch.tensor(7),
    "mask": torch.tensor([True, False]),
    "turned": torch.arange(6.0).reshape(2, 3).T,
    "empty": torch.zeros(0, 5),
}


def test_json_comes_back_as_it_was_written(tmp_path):
    plain = {"a": 1, "b": {"c": [0.1, 1e-300, "ü", None, True]}, "d": 0.01 / 32}
    write_json(tmp_path / "x.json", plain)
    assert read_json(tmp_path / "x.json") == plain
    assert (tmp_path / "x.json").read_text().count("\n") > 4


def test_json_that_is_not_a_number_is_never_written(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"a": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_tensors_come_back_bit_by_bit(tmp_path):
    write_tensors(tmp_path / "x.safetensors", TENSORS)
    back = read_tensors(tmp_path / "x.safetensors")
    assert back.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor)


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=["OSError", "KeyboardInterrupt"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(step, error, tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    write_bytes(path, b"old")

    def fail(*_):
        raise error

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(error)):
        write_bytes(path, b"new and longer")
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.json"]
    assert path.read_bytes() == b"old"


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole_and_on_disk(tmp_path, monkeypatch):
    path, seen = tmp_path / "x.json", []
    write_bytes(path, b"old")
    real = os.replace, os.fsync

    def look(name, call, *arguments):
        seen.append((name, path.read_bytes(), unfinished(path).read_bytes()))
        return call(*arguments)

    monkeypatch.setattr(os, "fsync", lambda descriptor: look("fsync", real[1], descriptor))
    monkeypatch.setattr(os, "replace", lambda *paths: look("replace", real[0], *paths))
    write_bytes(path, b"new")
    assert seen == [("fsync", b"old", b"new"), ("replace", b"old", b"new")]
    assert path.read_bytes() == b"new"


def test_what_a_crash_leaves_behind_is_not_taken_for_the_file(tmp_path):
    path = tmp_path / "x.json"
    unfinished(path).write_bytes(b'{"a": 1}')
    with pytest.raises(ConfigError, match="No such file"):
        read_json(path)
    assert not list(tmp_path.glob("*.json"))
    write_json(path, {"a": 2})
    assert (read_json(path), list(tmp_path.iterdir())) == ({"a": 2}, [path])


class Bomb:
    """What a pickle may do."""

    def __reduce__(self):
        return os.mkdir, ("pwned",)


def header(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


HOSTILE = {
    "pickle": pickle.dumps(Bomb()),
    "empty": b"",
    "noise": bytes(range(256)),
    "endless header": b"\xff" * 8 + b"{}",
    "no json": header("{x"),
    "beyond the end": header('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}') + b"\0" * 4,
    "wrong size": header('{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,8]}}') + b"\0" * 8,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_damaged_file_of_tensors_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x.safetensors"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(ConfigError, match=r"^the weights \S+x\.safetensors cannot be read: ") as caught:
        read_tensors(path)
    assert "\n" not in str(caught.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.safetensors"]


def test_a_checkpoint_of_torch_is_refused(tmp_path):
    torch.save({"a": torch.zeros(2)}, tmp_path / "x.safetensors")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_tensors(tmp_path / "x.safetensors")


def test_a_torn_file_of_tensors_is_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    write_tensors(path, TENSORS)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConfigError, match="cannot be read"):
        read_tensors(path)


def test_a_file_of_tensors_that_is_missing_or_a_directory_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"^the weights \S+x\.safetensors cannot be read: .*No such file"):
        read_tensors(tmp_path / "x.safetensors")
    with pytest.raises(ConfigError, match=r"^the weights \S+ cannot be read: "):
        read_tensors(tmp_path)


def test_json_is_read_as_strictly_as_settings(tmp_path):
    (tmp_path / "x.json").write_text('{"a": 1, "a": 2}')
    with pytest.raises(ConfigError, match="the key 'a' stands more than once"):
        storage.read_json(tmp_path / "x.json")
