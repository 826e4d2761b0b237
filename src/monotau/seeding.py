"""Random generators, each derived from (seed, stream, iteration); the package draws all random numbers from them."""

import zlib

import numpy as np
import torch


def stream_seed(seed: int, stream: str, iteration: int = 0) -> int:
    """Return the 63-bit seed of a named stream in one iteration."""
    sequence = np.random.SeedSequence(seed, spawn_key=(zlib.crc32(stream.encode()), iteration))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def numpy_stream(seed: int, stream: str, iteration: int = 0) -> np.random.Generator:
    """Return a numpy generator."""
    return np.random.default_rng(stream_seed(seed, stream, iteration))


def torch_stream(seed: int, stream: str, iteration: int = 0) -> torch.Generator:
    """Return a torch generator, always on the CPU so that its numbers do not depend on the device."""
    return torch.Generator().manual_seed(stream_seed(seed, stream, iteration))
