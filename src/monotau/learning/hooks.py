"""Calls the user's hooks, so that their exceptions pass the training's own handlers and reach the caller unchanged."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from monotau.errors import ConfigError, brief

P = ParamSpec("P")
R = TypeVar("R")


class HookRaised(BaseException):
    """Carries an exception of a hook; not an Exception, so that no handler takes it for a fault of the run."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def call_hook(hook: Callable[[Any], Any], argument: object) -> Any:
    """Call a hook and return its answer."""
    try:
        return hook(argument)
    except Exception as error:  # a hook may raise anything
        raise HookRaised(error) from None


def asks_to_stop(answer: object) -> bool:
    """Whether this answer of `on_evaluation` ends the training."""
    if answer is None or isinstance(answer, bool | np.bool_):
        return bool(answer)
    raise ConfigError(
        f"on_evaluation returned {brief(answer)}, but must return True to stop, or False or None to go on."
    )


def hook_errors_unchanged(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function raise what a hook raised within it."""

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return function(*arguments, **named)
        except HookRaised as raised:
            error = raised.error
        raise error  # outside of the handler, which would add itself to the traceback

    return call
