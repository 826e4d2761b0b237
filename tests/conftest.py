"""Turns on shape and type checks for the whole package, and limits torch to one thread per test process.

The tests in tests/solving run without the checks (MONOTAU_SHAPES=0): whole training runs repeat what other tests have
already checked, and the checks would double their time.
"""

import importlib
import os
import sys

from jaxtyping import install_import_hook

if os.environ.get("MONOTAU_SHAPES", "1") == "1":
    install_import_hook("monotau", "beartype.beartype")

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def loader(tmp_path_factory):
    """A process that loads untrusted files, each in a child of its own."""
    from tests.support.loader_process import LoaderProcess  # imported late, because it imports the whole package

    process = LoaderProcess(tmp_path_factory.mktemp("loader"))
    yield process
    process.close()


@pytest.fixture(scope="module")
def local_ray():
    """A local Ray with two CPUs."""
    from monotau.distributed.connect import connected

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        with connected("local", cpus=2):
            yield


@pytest.fixture
def own_modules(tmp_path, monkeypatch):
    """Write modules into the current directory, an empty one; afterwards they and their parts are forgotten."""
    from monotau.config import imports

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    tables = [table for _, table in imports.TABLES.values()] + [imports._imported, imports._origins]
    before, written = [dict(table) for table in tables], []

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        written.append(name)
        importlib.invalidate_caches()

    yield write
    for table, rows in zip(tables, before, strict=True):
        table.clear()
        table.update(rows)
    for name in written:
        sys.modules.pop(name, None)
