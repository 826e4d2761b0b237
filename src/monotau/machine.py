"""The machine's resources as this process sees them."""

import ctypes
import os
import sys
from functools import cache

KEPT_BLOCK, KEPT_TOTAL = 64 << 20, 512 << 20
"""Bytes of the largest block, and of all blocks, that the process keeps when they are freed."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's `mallopt`."""


def cores() -> int:
    """Return the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int | None:
    """Return the size of the machine's RAM; None where the system does not tell, as on Windows."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else None


@cache
def keep_freed_memory() -> bool:
    """Let glibc reuse freed blocks of up to 64 MiB instead of returning them to the system; return whether it does.

    An update on images frees and allocates tensors of 12 MB again and again. By default each is a new mapping, and
    clearing its pages takes longer than some of the products.
    """
    if sys.platform != "linux" or not hasattr(libc := ctypes.CDLL(None), "mallopt"):
        return False
    settings = ((M_MMAP_THRESHOLD, KEPT_BLOCK), (M_TRIM_THRESHOLD, KEPT_TOTAL))
    return all(libc.mallopt(*setting) == 1 for setting in settings)
