"""A stand-in for a GPU on machines without one: tensors that report the device `meta` but hold real numbers.

As on a GPU, these tensors cannot become arrays and cannot be combined with CPU tensors. Unlike tensors on the true meta
device they have values, so whole training runs work. The stand-in allows what a GPU allows: copies in both directions,
and scalar CPU tensors in any computation.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from monotau.learning import agent_networks

STAND_IN = torch.device("meta")
COPIES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}


class MixedDevices(AssertionError):
    """A computation combined tensors of both devices."""


class StandInTensor(Tensor):
    """A tensor on the stand-in device; `held` holds its numbers."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> "StandInTensor":
        made = Tensor._make_wrapper_subclass(
            cls, held.shape, held.stride(), held.storage_offset(), dtype=held.dtype, device=STAND_IN
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        return compute(function, arguments, options or {})


def compute(function: Any, arguments: Any, options: dict[str, Any]) -> Any:
    """Compute with the held numbers; the result is on the device of the arguments, or on the one requested."""
    tensors = [leaf for leaf in tree_leaves((arguments, options)) if isinstance(leaf, Tensor)]
    away = {id(tensor.held): tensor for tensor in tensors if isinstance(tensor, StandInTensor)}
    here = [tensor for tensor in tensors if not isinstance(tensor, StandInTensor) and tensor.ndim]
    if away and here and function not in COPIES:
        raise MixedDevices(f"{function} of shapes {[tuple(tensor.shape) for tensor in tensors]} on two devices")
    to_stand_in = bool(away)
    if function is torch.ops.aten.copy_.default:
        to_stand_in = isinstance(arguments[0], StandInTensor)
    if (asked := options.get("device")) is not None:
        to_stand_in = asked.type == STAND_IN.type
        options = options | {"device": torch.device("cpu")}
    result = function(*tree_map(_held, arguments), **tree_map(_held, options))
    if not to_stand_in:
        return result
    # An in-place operation returns the tensor it changed.
    return tree_map(lambda leaf: away[id(leaf)] if id(leaf) in away else _placed(leaf), result)


def _placed(leaf: Any) -> Any:
    return StandInTensor(leaf) if isinstance(leaf, Tensor) else leaf


def _held(leaf: Any) -> Any:
    return leaf.held if isinstance(leaf, StandInTensor) else leaf


class _Factories(TorchDispatchMode):
    """Creates tensors on the stand-in device wherever code requests it."""

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        return compute(function, arguments, options or {})


@contextmanager
def stand_in_device() -> Iterator[torch.device]:
    """Put every agent that is made inside the block on the stand-in device."""
    autocast, fused = torch.autocast, optimizer._get_fused_kernels_supported_devices
    with pytest.MonkeyPatch.context() as patch, _Factories():
        patch.setattr(agent_networks, "pick_device", lambda name: STAND_IN)
        patch.setattr(
            torch, "autocast", lambda kind, **options: autocast(kind.replace(STAND_IN.type, "cpu"), **options)
        )
        patch.setattr(optimizer, "_get_fused_kernels_supported_devices", lambda: [*fused(), STAND_IN.type])
        yield STAND_IN
