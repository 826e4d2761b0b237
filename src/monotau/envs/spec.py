"""The stored format of an observation, derived from the environment's observation space."""

import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import numpy as np
from gymnasium import spaces

from monotau.errors import ConfigError, EnvironmentFault

# A 3-D box with a smaller side is too small for a convolution and counts as a vector.
SMALLEST_IMAGE_SIDE = 5
# A 2-D box has no channel axis to identify it as an image. 36 is the smallest side that the Nature CNN accepts.
SMALLEST_GREY_SIDE = 36
# The first layer has a row for each discrete state, in every network and in the optimiser.
MOST_STATES = 1_000_000


def describe_space(space: object) -> str:
    """Return a space as one short line; the repr of a large Box spans many lines."""
    return textwrap.shorten(str(space), width=160, placeholder=" ...")


@final
@dataclass(frozen=True)
class ObservationSpec:
    """The stored format of one observation (one frame, before any stacking)."""

    kind: Literal["vector", "image", "discrete", "parts"]
    """How the torso processes it: a vector to flatten, an image to convolve, discrete states to look up, or several
    parts, each with a spec of its own."""
    shape: tuple[int, ...]
    """Shape of one frame as stored; () for a discrete state."""
    dtype: str
    """Numpy dtype as stored: uint8, bool, float32 or int64."""
    channels_last: bool
    """Whether a 3-D image is H W C instead of C H W; False for everything else."""
    scale: float
    """Factor that brings the values to about unit range."""
    size: int
    """Number of discrete states, or else the number of elements of a frame."""
    start: int = 0
    """First discrete state of the environment; stored states start at 0."""
    parts: tuple["Part", ...] = ()
    """The parts of a Dict or Tuple, whose bytes make up a frame one after another: first vectors of floats, then other
    vectors and discrete states, then images."""

    @property
    def floats(self) -> bool:
        """Whether it is a vector of floats, whose entries may have any scale."""
        return self.kind == "vector" and self.dtype == "float32"

    @classmethod
    def from_space(cls, space: object) -> "ObservationSpec":
        """Derive the format from a Gymnasium space."""
        if isinstance(space, spaces.Dict | spaces.Tuple):
            return cls._joined(space)
        if isinstance(space, spaces.Discrete):
            return cls._discrete((), int(space.start), int(space.start + space.n))
        if isinstance(space, spaces.MultiDiscrete):
            starts = np.asarray(space.start)
            return cls._discrete(space.shape, int(starts.min()), int((starts + space.nvec).max()))
        if isinstance(space, spaces.MultiBinary):
            shape = tuple(int(side) for side in space.shape)
            size = int(np.prod(shape, dtype=np.int64))
            return cls(kind="vector", shape=shape, dtype="bool", channels_last=False, scale=1.0, size=size)
        if isinstance(space, spaces.Box) and len(space.shape) <= 3 and 0 not in space.shape:
            shape = tuple(int(side) for side in space.shape)
            image, channels_last = _image_layout(shape, space.dtype)
            return cls(
                kind="image" if image else "vector",
                shape=shape,
                dtype=space.dtype.name if space.dtype in (np.uint8, np.bool_) else "float32",
                channels_last=channels_last,
                scale=1 / 255 if space.dtype == np.uint8 and bool(np.all(space.high == 255)) else 1.0,
                size=int(np.prod(shape, dtype=np.int64)),
            )
        raise ConfigError(
            f"The observation space is {describe_space(space)}, but must be Discrete, MultiDiscrete, MultiBinary, a "
            f"non-empty Box of at most 3 axes, or a Dict or Tuple of these; a gymnasium.ObservationWrapper can make it "
            f"one."
        )

    @classmethod
    def _discrete(cls, shape: tuple[int, ...], start: int, stop: int) -> "ObservationSpec":
        """Return the format of discrete states from `start` up to, and without, `stop`."""
        if stop - start > MOST_STATES:
            raise ConfigError(
                f"The observation space has {stop - start} discrete states, but must have at most {MOST_STATES}; a "
                "gymnasium.ObservationWrapper can describe them by a vector."
            )
        return cls(
            kind="discrete", shape=shape, dtype="int64", channels_last=False, scale=1.0, size=stop - start, start=start
        )

    @classmethod
    def _joined(cls, space: object) -> "ObservationSpec":
        """Return the format of a Dict or Tuple."""
        parts = tuple(Part(path, cls.from_space(leaf)) for path, leaf in leaves(space))
        if not parts:
            raise ConfigError(f"The observation space is {describe_space(space)}, but must have at least one part.")
        size = sum(part.bytes for part in parts)
        whole = cls(kind="parts", shape=(size,), dtype="uint8", channels_last=False, scale=1.0, size=size)
        return replace(whole, parts=tuple(sorted(parts, key=lambda part: (part.image, not part.floats))))

    def leading(self, *, floats: bool) -> "ObservationSpec":
        """Return a spec of the same frames with only the parts before the images, or only the vectors of floats."""
        return replace(self, parts=tuple(part for part in self.parts if (part.floats if floats else not part.image)))

    def pack(self, read: Callable[["Part"], np.ndarray]) -> np.ndarray:
        """Return observations with parts as frames [E, bytes]; `read` returns the array [E, ...] of a part."""
        columns = []
        for part in self.parts:
            try:
                frames = part.spec.frame(read(part))
            except EnvironmentFault as fault:
                raise EnvironmentFault(f"In the part {part.name}: {fault}") from None
            columns.append(np.ascontiguousarray(frames).reshape(len(frames), -1).view(np.uint8))
        return np.concatenate(columns, axis=1)

    def frame(self, observation: np.ndarray) -> np.ndarray:
        """Return raw observations [E, ...] in their stored format; the result may share memory with the argument."""
        if observation.shape[1:] != self.shape:
            raise EnvironmentFault(
                f"The observation has shape {observation.shape[1:]}, but its observation space has shape {self.shape}."
            )
        if self.kind == "discrete":
            states = observation.astype(np.int64) - self.start
            outside = (states < 0) | (states >= self.size)
            if outside.any():
                raise EnvironmentFault(
                    f"The state is {states[outside][0] + self.start}, but the Discrete observation space goes from "
                    f"{self.start} to {self.start + self.size - 1}."
                )
            return states
        with np.errstate(over="ignore"):  # values beyond float32 become inf, which is refused below
            frames = observation.astype(self.dtype, copy=False)
        if self.dtype == "float32" and not np.isfinite(frames).all():
            value = observation[~np.isfinite(frames)].flat[0]
            raise EnvironmentFault(
                f"The observation contains {value}, which float32 cannot hold as a finite number; "
                "it would turn all predictions into NaN."
            )
        return frames


@final
@dataclass(frozen=True)
class Part:
    """One array in a Dict or Tuple, which may be nested."""

    path: tuple[str, ...]
    """The keys that lead to it; those of a Tuple are "0", "1" and so on."""
    spec: ObservationSpec
    """Its format."""

    @property
    def name(self) -> str:
        """The path in one word."""
        return ".".join(self.path)

    @property
    def bytes(self) -> int:
        """Number of bytes in a stored frame."""
        return int(np.prod(self.spec.shape, dtype=np.int64)) * np.dtype(self.spec.dtype).itemsize

    @property
    def image(self) -> bool:
        """Whether it is an image."""
        return self.spec.kind == "image"

    @property
    def floats(self) -> bool:
        """Whether it is a vector of floats."""
        return self.spec.floats

    def of(self, observation: Any) -> Any:
        """Return this part of an observation."""
        for key in self.path:
            try:
                observation = observation[key] if isinstance(observation, Mapping) else observation[int(key)]
            except (LookupError, TypeError, ValueError):
                raise EnvironmentFault(f"The observation has no part {self.name}.") from None
        return observation


# Files are checked against these types, and a forward reference would be evaluated as code then.
ObservationSpec.__annotations__["parts"] = tuple[Part, ...]


def leaves(space: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Return the path and the space of every part of a Dict or Tuple; any other space is one part."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        yield path, space
        return
    inner = space.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    for key, part in inner:
        yield from leaves(part, (*path, str(key)))


def _image_layout(shape: tuple[int, ...], dtype: np.dtype) -> tuple[bool, bool]:
    """Return whether a box is an image, and whether its channels come last."""
    if len(shape) == 2:
        return dtype == np.uint8 and min(shape) >= SMALLEST_GREY_SIDE, False
    if len(shape) != 3:
        return False, False
    # Two equal sides are height and width; otherwise the shorter of the outer axes is channels. H W C is Gymnasium's
    # convention.
    channels_first = shape[1] == shape[2] != shape[0] or (shape[0] != shape[1] and shape[0] <= shape[2])
    channels_last = not channels_first
    height_width = shape[:2] if channels_last else shape[1:]
    image = min(height_width) >= SMALLEST_IMAGE_SIDE
    return image, image and channels_last
