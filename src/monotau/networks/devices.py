"""CPU threads, and transfers of tensors from host memory to the device of the networks."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from monotau.machine import cores


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Run a block with `count` CPU threads; 0 uses every core."""
    before = torch.get_num_threads()
    # The optimiser state of weights without a gradient decays to denormal numbers, which make a step twenty times as
    # slow. This must come before the threads start, because they inherit the flag from this one.
    torch.set_flush_denormal(True)
    torch.set_num_threads(count or cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.set_flush_denormal(False)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run a block with one CPU thread: for a single observation, more threads spend most of their time waiting."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def sent(parts: Sequence[Tensor], device: torch.device) -> Sequence[Tensor]:
    """Move host tensors, which may differ only in their first axis, to `device` in one transfer.

    On the CPU they are returned unchanged. For a GPU they are concatenated in pinned memory and copied asynchronously:
    only the computations that need them wait for the copy.
    """
    if device.type == "cpu":
        return parts
    lengths = [len(part) for part in parts]
    shape = (sum(lengths), *parts[0].shape[1:])
    joined = torch.empty(shape, dtype=parts[0].dtype, pin_memory=device.type == "cuda")
    torch.cat(list(parts), out=joined)
    moved: Sequence[Tensor] = joined.to(device, non_blocking=True).split(lengths)
    return moved
