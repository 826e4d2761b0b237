"""Tensors on disk: exact to the bit, compatible with safetensors, and refused if anything is malformed."""

import os
import pickle
import struct

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from monotau.errors import ConfigError
from monotau.runs import tensors
from monotau.runs.files import record_of
from monotau.runs.tensors import (
    DTYPES,
    check_alike,
    map_arrays,
    read_tensors,
    stored_arrays,
    write_arrays,
    write_tensors,
)

TENSORS = {
    "weights": torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),
    "moments": torch.tensor([1e300, -2.5, 0.1], dtype=torch.float64),
    "steps": torch.tensor(7),
    "mask": torch.tensor([True, False]),
    "turned": torch.arange(6.0).reshape(2, 3).T,
    "empty": torch.zeros(0, 5),
}


def test_tensors_are_read_back_bit_by_bit(tmp_path):
    write_tensors(tmp_path / "x.safetensors", TENSORS)
    back = read_tensors(tmp_path / "x.safetensors")
    assert back.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor)
    back["weights"] += 1  # the tensors own their memory
    assert torch.equal(read_tensors(tmp_path / "x.safetensors")["weights"], TENSORS["weights"])


def test_an_empty_set_of_tensors_is_read_back_empty(tmp_path):
    write_arrays(tmp_path / "x", {})
    assert map_arrays(tmp_path / "x") == {}


anything = st.dictionaries(
    st.text(max_size=8),
    arrays.arrays(st.sampled_from(sorted(DTYPES.values())), arrays.array_shapes(min_dims=0, max_dims=4, min_side=0)),
    max_size=5,
)


@given(anything)
def test_files_are_compatible_with_the_safetensors_library_in_both_directions(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("tensors") / "x.safetensors"
    values.pop("__metadata__", None)  # the format's own
    assert write_arrays(path, {name: [value] for name, value in values.items()}) == record_of(path)
    theirs = safetensors.numpy.load_file(path)
    safetensors.numpy.save_file({name: value.copy() for name, value in values.items()}, path)
    for back in (theirs, map_arrays(path)):
        assert back.keys() == values.keys()
        for name, value in values.items():
            assert (back[name].dtype, back[name].shape) == (value.dtype, value.shape)
            assert back[name].tobytes() == value.tobytes()


def test_pieces_are_joined_along_the_first_axis_without_a_copy_in_memory(tmp_path):
    ring = np.arange(24, dtype=np.int32).reshape(8, 3)
    write_arrays(tmp_path / "x", {"rows": [ring[6:], ring[:0], ring[:2]], "one": [np.array(7.0)]})
    back = map_arrays(tmp_path / "x")
    assert back["rows"].tolist() == [*ring[6:].tolist(), *ring[:2].tolist()]
    assert back["one"] == 7.0
    assert back["one"].shape == ()


def test_mapped_tensors_are_read_only(tmp_path):
    write_arrays(tmp_path / "x", {"a": [np.zeros(3)]})
    with pytest.raises(ValueError, match="read-only"):
        map_arrays(tmp_path / "x")["a"][0] = 1


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
    with pytest.raises(ConfigError, match=r"x\.safetensors (is not a valid tensor file|cannot be read): ") as caught:
        read_tensors(path)
    assert "\n" not in str(caught.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.safetensors"]


def test_a_checkpoint_of_torch_is_refused(tmp_path):
    torch.save({"a": torch.zeros(2)}, tmp_path / "x.safetensors")
    with pytest.raises(ConfigError, match=r"x\.safetensors is not a valid tensor file: "):
        read_tensors(tmp_path / "x.safetensors")


def test_a_torn_file_of_tensors_is_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    write_tensors(path, TENSORS)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConfigError, match=r"x\.safetensors is not a valid tensor file: "):
        read_tensors(path)


def test_a_file_of_tensors_that_is_missing_or_a_directory_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"x\.safetensors cannot be read: No such file"):
        read_tensors(tmp_path / "x.safetensors")
    with pytest.raises(ConfigError, match=r" cannot be read: it is not a regular file"):
        read_tensors(tmp_path)


def test_tensors_are_compared_by_their_header_alone(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    write_tensors(path, TENSORS)
    meta = {name: tensor.to("meta") for name, tensor in TENSORS.items()}
    monkeypatch.setattr(tensors.mmap, "mmap", None)
    check_alike(path, meta)
    for wrong, reason in (
        (meta | {"more": torch.zeros(2)}, r"'more' is missing, but must be float32 of shape \[2\]"),
        ({name: meta[name] for name in meta if name != "mask"}, r"'mask' is bool of shape \[2\], but must be missing"),
        (meta | {"steps": torch.zeros(1, dtype=torch.int64)}, r"'steps' is int64 of shape \[\], but must be int64 of"),
        (
            meta | {"moments": torch.zeros(3)},
            r"'moments' is float64 of shape \[3\], but must be float32 of shape \[3\]",
        ),
    ):
        with pytest.raises(ConfigError, match=rf"x\.safetensors does not match its settings: {reason}"):
            check_alike(path, wrong)


def test_more_than_the_memory_of_the_machine_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"a": torch.zeros(100)})
    monkeypatch.setattr(tensors, "memory_bytes", lambda: 399)
    with pytest.raises(ConfigError, match="holds 400 bytes of tensors, but this machine has 399 bytes of RAM"):
        check_alike(path, {"a": torch.zeros(100)})


def test_a_file_that_cannot_be_mapped_is_refused(tmp_path, monkeypatch):
    def mapped(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    write_tensors(tmp_path / "x", TENSORS)
    monkeypatch.setattr(tensors.mmap, "mmap", mapped)
    with pytest.raises(ConfigError, match="x cannot be read: Cannot allocate memory"):
        map_arrays(tmp_path / "x")


def test_a_boolean_byte_other_than_0_or_1_is_refused(tmp_path):
    path = tmp_path / "x"
    write_tensors(path, {"mask": torch.tensor([True, False])})
    path.write_bytes(path.read_bytes()[:-1] + b"\2")
    with pytest.raises(
        ConfigError, match="x is not a valid tensor file: 'mask' has values that are neither true nor false"
    ):
        map_arrays(path)


@given(low=st.integers(0, 9), high=st.integers(0, 9), dtype=st.sampled_from(["int32", "float64", "bool"]))
def test_rows_are_read_in_parts_as_slices_of_the_whole(tmp_path_factory, low, high, dtype):
    path = tmp_path_factory.mktemp("tensors") / "x"
    values = (np.arange(7 * 3 * 2) % 5 < 2 if dtype == "bool" else np.arange(7 * 3 * 2)).reshape(7, 3, 2).astype(dtype)
    write_arrays(path, {"other": [np.ones(3)], "rows": [values]})
    with stored_arrays(path) as stored:
        assert (stored["rows"].shape, stored["rows"].dtype) == (values.shape, values.dtype)
        assert np.array_equal(stored["rows"][low:high], values[low:high])
        assert np.array_equal(stored["other"][:], np.ones(3))


def test_rows_that_cannot_be_read_are_refused(tmp_path):
    path = tmp_path / "x"
    write_arrays(path, {"rows": [np.arange(4000)], "count": [np.array(3)]})
    with stored_arrays(path) as stored:
        with pytest.raises(IndexError):
            stored["count"][:]
        os.truncate(path, 20_000)
        with pytest.raises(ConfigError, match=r"x was truncated while it was being read\."):
            stored["rows"][:]
    write_arrays(path, {"mask": [np.array([0, 1, 2], np.uint8).view(np.bool_)]})
    with stored_arrays(path) as stored:
        assert stored["mask"][:2].tolist() == [False, True]
        with pytest.raises(ConfigError, match="'mask' has values that are neither true nor false"):
            stored["mask"][:]
