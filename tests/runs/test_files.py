"""Files are complete or absent, and reading them executes nothing."""

import hashlib
import os

import pytest

from monotau.errors import ConfigError
from monotau.runs import files
from monotau.runs.files import (
    AppendOnlyFile,
    Record,
    check,
    read_json,
    reading,
    record_of,
    sync_directory,
    temporary_path,
    write_bytes,
    write_json,
    writing,
)


def test_json_is_read_as_it_was_written(tmp_path):
    plain = {"a": 1, "b": {"c": [0.1, 1e-300, "ü", None, True]}, "d": 0.01 / 32}
    write_json(tmp_path / "x.json", plain)
    assert read_json(tmp_path / "x.json") == plain
    assert (tmp_path / "x.json").read_text().count("\n") > 4


def test_json_that_is_not_a_number_is_never_written(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"a": float("nan")})
    assert list(tmp_path.iterdir()) == []


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
        beside = temporary_path(path)
        seen.append((name, path.read_bytes(), beside.read_bytes() if beside.exists() else None))
        return call(*arguments)

    monkeypatch.setattr(os, "fsync", lambda descriptor: look("fsync", real[1], descriptor))
    monkeypatch.setattr(os, "replace", lambda *paths: look("replace", real[0], *paths))
    write_bytes(path, b"new")
    assert seen == [("fsync", b"old", b"new"), ("replace", b"old", b"new"), ("fsync", b"new", None)]
    assert path.read_bytes() == b"new"


def test_a_partial_file_left_by_a_crash_is_not_mistaken_for_the_file(tmp_path):
    path = tmp_path / "x.json"
    temporary_path(path).write_bytes(b'{"a": 1}')
    with pytest.raises(ConfigError, match="No such file"):
        read_json(path)
    assert not list(tmp_path.glob("*.json"))
    write_json(path, {"a": 2})
    assert (read_json(path), list(tmp_path.iterdir())) == ({"a": 2}, [path])


def test_json_is_read_as_strictly_as_settings(tmp_path):
    (tmp_path / "x.json").write_text('{"a": 1, "a": 2}')
    with pytest.raises(ConfigError, match="the key 'a' appears more than once"):
        files.read_json(tmp_path / "x.json")


def test_the_record_of_a_file_is_its_size_and_digest(tmp_path):
    path = tmp_path / "x"
    with writing(path) as writer:
        writer.write(b"ab")
        writer.write(memoryview(b"cde"))
        record = writer.sync()
    assert path.read_bytes() == b"abcde"
    assert record == record_of(path) == (5, hashlib.sha256(b"abcde").hexdigest())
    assert record_of(path, 2) == (2, hashlib.sha256(b"ab").hexdigest())
    assert record_of(path, 0) == (0, hashlib.sha256(b"").hexdigest())


def test_a_file_larger_than_a_chunk_is_hashed_to_its_end(tmp_path):
    data = bytes(range(256)) * (files.CHUNK_BYTES // 256) + b"tail"
    (tmp_path / "x").write_bytes(data)
    record = record_of(tmp_path / "x")
    assert record == (len(data), hashlib.sha256(data).hexdigest())
    check(tmp_path / "x", record)
    (tmp_path / "x").write_bytes(data[:-1] + b"L")
    with pytest.raises(ConfigError, match=r"x is damaged: its contents are not what was written\."):
        check(tmp_path / "x", record)


def test_a_file_must_match_its_record_and_may_be_longer_only_where_allowed(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"abcde")
    whole, start = record_of(path), record_of(path, 3)
    check(path, whole)
    check(path, start, whole=False)
    with pytest.raises(ConfigError, match="x is damaged: it has 5 bytes, but 3 were written"):
        check(path, start)
    path.write_bytes(b"ab")
    with pytest.raises(ConfigError, match="x is damaged: it has 2 bytes, but 3 were written"):
        check(path, start, whole=False)
    path.write_bytes(b"abX")
    with pytest.raises(ConfigError, match="its contents are not what was written"):
        check(path, start, whole=False)


def test_only_regular_files_are_read_and_a_pipe_does_not_block(tmp_path):
    (tmp_path / "real").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (("link", "symbolic links"), ("pipe", "not a regular file"), ("gone", "No such file")):
        with pytest.raises(ConfigError, match=rf"{name} cannot be read: .*{reason}"), reading(tmp_path / name):
            pass
    with pytest.raises(ConfigError, match=r"cannot be read: "), reading(tmp_path):
        pass
    with reading(tmp_path / "real") as file:
        assert file.read() == b"x"


def test_a_growing_file_is_truncated_to_its_record(tmp_path):
    path = tmp_path / "x"
    file = AppendOnlyFile(path)
    file.write(b"one\n")
    assert path.read_bytes() == b"one\n"  # readers do not wait
    record = file.sync()
    file.write(b"two, and torn")
    file.close()
    again = AppendOnlyFile(path, record)
    assert (again.kept, path.read_bytes()) == (b"one\n", b"one\n")
    again.write(b"three\n")
    assert again.sync() == record_of(path)
    again.close()
    assert path.read_bytes() == b"one\nthree\n"
    path.write_bytes(b"0ne\nthree\n")
    with pytest.raises(ConfigError, match="x is damaged"):
        AppendOnlyFile(path, record)
    assert path.read_bytes() == b"0ne\nthree\n"


def test_a_growing_file_without_a_record_starts_empty(tmp_path):
    (tmp_path / "x").write_bytes(b"old")
    file = AppendOnlyFile(tmp_path / "x")
    assert (file.kept, file.sync()) == (b"", Record(0, hashlib.sha256(b"").hexdigest()))
    file.close()
    assert (tmp_path / "x").read_bytes() == b""


def test_the_directory_is_synced_after_a_file_is_renamed(tmp_path, monkeypatch):
    forced = []
    monkeypatch.setattr(os, "fsync", lambda number: forced.append(os.readlink(f"/proc/self/fd/{number}")))
    sync_directory(tmp_path)
    assert forced == [str(tmp_path)]


@pytest.mark.parametrize("write", [lambda path: write_bytes(path, b"new"), AppendOnlyFile], ids=["whole", "growing"])
def test_writing_a_file_follows_no_link_and_waits_for_no_pipe(write, tmp_path):
    (tmp_path / "precious").write_bytes(b"precious")
    for name, make in (
        ("link", lambda path: path.symlink_to(tmp_path / "precious")),
        ("pipe", os.mkfifo),
    ):
        path = tmp_path / name
        make(path if write is AppendOnlyFile else temporary_path(path))
        with pytest.raises(OSError, match=r"symbolic links|No such device"):
            write(path)
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_an_invalid_file_name_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: it is not a valid file name"), reading(tmp_path / "a\0b"):
        pass
