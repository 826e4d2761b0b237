"""The stored format of an observation, derived from the environment's observation space."""

import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, final

import numpy as np
from gymnasium import spaces

from monotau.errors import ConfigError, EnvironmentFault

# A 3-D box with a smaller side is too small for a convolution and counts as a vector.
SMALLEST_IMAGE_SIDE = 5
# A 2-D box has no channel axis to identify it as an image. 36 is the smallest side that the Nature CNN accepts.
SMALLEST_GREY_SIDE = 36


def describe_space(space: object) -> str:
    """Return a space as one short line; the repr of a large Box spans many lines."""
    return textwrap.shorten(str(space), width=160, placeholder=" ...")


@final
@dataclass(frozen=True)
class ObservationSpec:
    """The stored format of one observation (one frame, before any stacking)."""

    kind: Literal["vector", "image", "discrete"]
    """How the torso processes it: a vector to flatten, an image to convolve or a discrete state to look up."""
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

    @classmethod
    def from_space(cls, space: object) -> "ObservationSpec":
        """Derive the format from a Gymnasium space."""
        if isinstance(space, spaces.Discrete):
            return cls(
                kind="discrete",
                shape=(),
                dtype="int64",
                channels_last=False,
                scale=1.0,
                size=int(space.n),
                start=int(space.start),
            )
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
            f"The observation space is {describe_space(space)}, but must be Discrete or a non-empty Box of at most "
            f"3 axes; a wrapper such as gymnasium.wrappers.FlattenObservation makes it one."
        )

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

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values for JSON."""
        return asdict(self) | {"shape": list(self.shape)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ObservationSpec":
        """Rebuild a spec from what `to_dict` returned, also after a round trip through JSON."""
        expected = {field.name for field in fields(cls)}
        if set(values) != expected:
            raise ConfigError(
                f"An observation spec has the fields {', '.join(sorted(values))}, "
                f"but must have exactly {', '.join(sorted(expected))}."
            )
        return cls(**{**values, "shape": tuple(values["shape"])})


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
