"""Switches the shape and type annotations of the whole package on, and keeps torch from fighting over cores."""

from jaxtyping import install_import_hook

install_import_hook("monotau", "beartype.beartype")

import torch  # noqa: E402

torch.set_num_threads(1)
