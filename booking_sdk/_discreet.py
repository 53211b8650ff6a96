"""Keeping what a call was given out of tracebacks: keys, secrets and guests' data."""

from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction, isfunction
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


def clear_frames(error: BaseException) -> None:
    """Delete the local variables of all frames that the exception has left; see `webhook_verify.frames`."""
    # Imported when something failed: nothing else of a client needs the package.
    from webhook_verify.frames import clear_frames

    clear_frames(error)


def discreet(function: F) -> F:
    """Return the function, changed so that an exception leaves it without its arguments.

    Error reporters show the local variables of every frame of a traceback. The frames stay, the variables go.
    """
    if iscoroutinefunction(function):

        @wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            try:
                return await function(*args, **kwargs)
            except BaseException as error:
                del args, kwargs
                clear_frames(error)
                raise

        return awaited  # type: ignore[return-value]

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            del args, kwargs
            clear_frames(error)
            raise

    return called  # type: ignore[return-value]


def discreet_methods(kind: C) -> C:
    """Make every public method of a class discreet."""
    for name, member in list(vars(kind).items()):
        if isfunction(member) and not name.startswith("_"):
            setattr(kind, name, discreet(member))
    return kind
