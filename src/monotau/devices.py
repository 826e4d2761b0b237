"""How tensors get from host memory to the device of the networks."""

from collections.abc import Sequence

import torch
from torch import Tensor


def sent(parts: Sequence[Tensor], device: torch.device) -> Sequence[Tensor]:
    """Return host tensors, alike but for their first axis, on `device`: one transfer for all of them.

    On the CPU they are returned as they are. For a GPU they are joined in pinned memory, from which the copy runs by
    itself: nothing waits for it but the computations that need it.
    """
    if device.type == "cpu":
        return parts
    lengths = [len(part) for part in parts]
    shape = (sum(lengths), *parts[0].shape[1:])
    joined = torch.empty(shape, dtype=parts[0].dtype, pin_memory=device.type == "cuda")
    torch.cat(list(parts), out=joined)
    moved: Sequence[Tensor] = joined.to(device, non_blocking=True).split(lengths)
    return moved
