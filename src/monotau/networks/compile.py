"""torch.compile for the functions of a run, and the way back when it fails."""

import warnings
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import torch
from torch import Tensor

from monotau.errors import in_one_line

P = ParamSpec("P")
R = TypeVar("R", bound=tuple[Any, ...])


class Compiler:
    """Whether the functions of a run are compiled: not if it is not wanted, and no longer once it has failed."""

    def __init__(self, *, wanted: bool) -> None:
        self.on = wanted

    def give_up(self, error: Exception) -> None:
        """Go on without compiling, and say so once."""
        if self.on:
            self.on = False
            warnings.warn(
                f"compile is on, but torch.compile failed; the run goes on without it: {in_one_line(error)[:200]}",
                RuntimeWarning,
                stacklevel=4,
            )


class Compiled(Generic[P, R]):
    """A pure function of tensors whose results are descended upon: compiled at the first call, if the run wants that.

    It must be pure, since the first call runs it more than once.
    """

    def __init__(self, function: Callable[P, R], compiler: Compiler) -> None:
        self._plain, self._compiler = function, compiler
        self._quick: Callable[P, R] | None = None

    def __call__(self, *arguments: P.args, **options: P.kwargs) -> R:
        """Call the function, compiled or as it is."""
        if self._compiler.on:
            try:
                if self._quick is None:
                    self._quick = torch.compile(self._plain)
                    # A backward pass is compiled when it is first run, which must be here to be able to fail here.
                    # The gradients it leaves are those that every descent clears before its own.
                    _backward(self._quick(*arguments, **options))
                return self._quick(*arguments, **options)
            except Exception as error:  # of a compiler, which may raise anything; what is wrong with the call itself
                self._compiler.give_up(error)  # is raised by the function below, too
        return self._plain(*arguments, **options)


def _backward(results: tuple[Any, ...]) -> None:
    """Run the backward pass of whatever among the results has one."""
    learned = [result for result in results if isinstance(result, Tensor) and result.requires_grad]
    torch.autograd.backward(learned, [torch.ones_like(result) for result in learned])
