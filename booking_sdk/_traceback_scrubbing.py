"""Removes local variables from tracebacks, since error reporters record them: keys, secrets and guests' data."""

from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction, isfunction
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


def clear_frames(error: BaseException) -> None:
    """Clear the local variables of every frame that the exception has left; see `webhook_verify.frames`."""
    # Imported only after a failure: nothing else in the client needs the package.
    from webhook_verify.frames import clear_frames

    clear_frames(error)


def scrub_traceback(function: F) -> F:
    """Wrap a function so that an exception leaves it without local variables in its traceback.

    The frames stay in the traceback, with their file names and lines.
    """
    if iscoroutinefunction(function):

        @wraps(function)
        async def scrubbed_coroutine(*args: Any, **kwargs: Any) -> Any:
            try:
                return await function(*args, **kwargs)
            except BaseException as error:
                del args, kwargs
                clear_frames(error)
                raise

        return scrubbed_coroutine  # type: ignore[return-value]

    @wraps(function)
    def scrubbed(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            del args, kwargs
            clear_frames(error)
            raise

    return scrubbed  # type: ignore[return-value]


def scrub_tracebacks(cls: C) -> C:
    """Apply `scrub_traceback` to every public method of a class."""
    for name, member in list(vars(cls).items()):
        if isfunction(member) and not name.startswith("_"):
            setattr(cls, name, scrub_traceback(member))
    return cls
