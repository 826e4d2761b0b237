"""How the processor computes, and how tensors get from host memory to the device of the networks."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from monotau.machine import cores


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Run a block with so many CPU threads, 0 for every core."""
    before = torch.get_num_threads()
    # What an optimiser remembers of a weight without gradient fades to numbers below the normal range, with which it
    # takes twenty times as long. Before the threads begin, which take it over from this one.
    torch.set_flush_denormal(True)
    torch.set_num_threads(count or cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.set_flush_denormal(False)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run a block with one CPU thread: for one observation, several wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
