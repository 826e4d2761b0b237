"""torch.compile for the hot functions of a run, with a fallback to eager mode when it fails."""

import os
import shutil
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, Literal, ParamSpec, TypeVar

import torch

from monotau.errors import in_one_line

CompileSetting = Literal["auto", "on", "off"]

LEAST_UPDATES = 20_000
"""Updates from which compiling a small network saves time on a CPU: docs/performance.md."""

P = ParamSpec("P")
R = TypeVar("R", bound=tuple[Any, ...])


def settle_compile(wanted: CompileSetting, *, updates: int, small: bool, device: torch.device) -> bool:
    """Return whether to compile: for `auto`, where it is known to pay.

    That is a long run of a small network on a CPU with a C++ compiler. Large networks spend their time in products,
    which compiling makes slower on some processors.
    """
    if wanted != "auto":
        return wanted == "on"
    return device.type == "cpu" and small and updates >= LEAST_UPDATES and has_cpp_compiler()


def has_cpp_compiler() -> bool:
    """Whether the C++ compiler that torch.compile would call is installed."""
    return any(shutil.which(name) for name in (os.environ.get("CXX", ""), "g++", "clang++") if name)


class Compiler:
    """Whether the functions of a run are compiled: only if the run asks for it, and until compilation fails once.

    With `graphs`, which need a GPU, their kernels are replayed as CUDA graphs instead of being launched one by one.
    """

    def __init__(self, *, wanted: bool, graphs: bool = False) -> None:
        self.on, self.graphs = wanted, graphs

    def begin_update(self) -> None:
        """Declare that results of the previous update are no longer needed, so that graphs may reuse their memory."""
        if self.on and self.graphs:
            torch.compiler.cudagraph_mark_step_begin()

    def give_up(self, error: Exception) -> None:
        """Continue without compilation, and warn once."""
        if self.on:
            self.on = False
            warnings.warn(
                f"compile is on, but torch.compile failed; the run continues without it: {in_one_line(error)[:200]}",
                RuntimeWarning,
                stacklevel=4,
            )


class Compiled(Generic[P, R]):
    """A pure function, compiled at the first call if the run asks for it, including the gradients that it computes."""

    def __init__(self, function: Callable[P, R], compiler: Compiler) -> None:
        self._eager, self._compiler = function, compiler
        self._compiled: Callable[P, R] | None = None

    def __call__(self, *arguments: P.args, **options: P.kwargs) -> R:
        """Call the function, compiled or eager."""
        if self._compiler.on:
            try:
                if self._compiled is None:
                    mode = "reduce-overhead" if self._compiler.graphs else None
                    self._compiled = torch.compile(self._eager, mode=mode)
                with _gradients_in_graphs():
                    return self._compiled(*arguments, **options)
            except Exception as error:  # a compiler may raise anything; the eager call below raises errors of the
                self._compiler.give_up(error)  # function itself again
        return self._eager(*arguments, **options)


def _gradients_in_graphs() -> AbstractContextManager[object]:
    """Return a context in which torch.autograd.grad becomes part of the graph, with versions of torch that can.

    One graph of losses and gradients has fewer passes over memory and no calls of autograd between its parts. Older
    versions split the graph there, with the same result.
    """
    config = torch._dynamo.config
    return config.patch(trace_autograd_ops=True) if hasattr(config, "trace_autograd_ops") else nullcontext()
