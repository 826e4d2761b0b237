"""Switches the shape and type annotations of the whole package on, and keeps torch from fighting over cores.

Whole learning runs are checked without them (MONOTAU_SHAPES=0): they only repeat what was checked, at twice the time.
"""

import os

from jaxtyping import install_import_hook

if os.environ.get("MONOTAU_SHAPES", "1") == "1":
    install_import_hook("monotau", "beartype.beartype")

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    """A process that reads files of strangers, one child for each."""
    from tests.support.loader_process import Strangers  # not before it is needed: it brings in the whole package

    found = Strangers(tmp_path_factory.mktemp("strangers"))
    yield found
    found.close()
