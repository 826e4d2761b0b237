"""A second device for machines that have none: real numbers under the name `meta`, which do not mix with the CPU's.

Like a GPU's they cannot be read as an array nor computed with beside a tensor of the CPU; unlike those of the true meta
device they have values, so whole runs can be made with them. What a GPU allows is allowed: copies from one side to the
other, and single numbers of the CPU in any computation.
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

ELSEWHERE = torch.device("meta")
COPIES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}


class MixedDevices(AssertionError):
    """A computation with tensors of both devices."""


class Elsewhere(Tensor):
    """A tensor of the other device; `held` are its numbers."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> "Elsewhere":
        made = Tensor._make_wrapper_subclass(
            cls, held.shape, held.stride(), held.storage_offset(), dtype=held.dtype, device=ELSEWHERE
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        return compute(function, arguments, options or {})


def compute(function: Any, arguments: Any, options: dict[str, Any]) -> Any:
    """Compute with what the tensors hold; the result is where its arguments are, or where it was asked for."""
    tensors = [leaf for leaf in tree_leaves((arguments, options)) if isinstance(leaf, Tensor)]
    away = {id(tensor.held): tensor for tensor in tensors if isinstance(tensor, Elsewhere)}
    here = [tensor for tensor in tensors if not isinstance(tensor, Elsewhere) and tensor.ndim]
    if away and here and function not in COPIES:
        raise MixedDevices(f"{function} of shapes {[tuple(tensor.shape) for tensor in tensors]} on two devices")
    to_other_device = bool(away)
    if function is torch.ops.aten.copy_.default:
        to_other_device = isinstance(arguments[0], Elsewhere)
    if (asked := options.get("device")) is not None:
        to_other_device = asked.type == ELSEWHERE.type
        options = options | {"device": torch.device("cpu")}
    result = function(*tree_map(_held, arguments), **tree_map(_held, options))
    if not to_other_device:
        return result
    # What was changed in place is itself.
    return tree_map(lambda leaf: away[id(leaf)] if id(leaf) in away else _placed(leaf), result)


def _placed(leaf: Any) -> Any:
    return Elsewhere(leaf) if isinstance(leaf, Tensor) else leaf


def _held(leaf: Any) -> Any:
    return leaf.held if isinstance(leaf, Elsewhere) else leaf


class _Factories(TorchDispatchMode):
    """Makes tensors on the other device where that is asked for."""

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        return compute(function, arguments, options or {})


@contextmanager
def other_device() -> Iterator[torch.device]:
    """Let agents that are made in the block live on the other device."""
    autocast, fused = torch.autocast, optimizer._get_fused_kernels_supported_devices
    with pytest.MonkeyPatch.context() as patch, _Factories():
        patch.setattr(agent_networks, "pick_device", lambda name: ELSEWHERE)
        patch.setattr(
            torch, "autocast", lambda kind, **options: autocast(kind.replace(ELSEWHERE.type, "cpu"), **options)
        )
        patch.setattr(optimizer, "_get_fused_kernels_supported_devices", lambda: [*fused(), ELSEWHERE.type])
        yield ELSEWHERE
