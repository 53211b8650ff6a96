"""Resolve futures of the event loop from another thread."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any


class Unresolved:
    """Returned in the place of a result: the job's future is resolved later."""


def resolve(
    futures: Sequence["asyncio.Future[Any]"], results: Sequence[Any], first: Callable[[], None] | None = None
) -> None:
    """Resolve futures with one wake-up of their event loop, each with its result or its exception.

    A result of type `Unresolved` leaves its future as it is. Nothing is done once the event loop has closed.

    Args:
        first: is called on the event loop before that.
    """
    if futures:
        with contextlib.suppress(RuntimeError):  # the loop has closed, and the thread has other jobs to end
            futures[0].get_loop().call_soon_threadsafe(_set_results, futures, results, first)


def _set_results(
    futures: Sequence["asyncio.Future[Any]"], results: Sequence[Any], first: Callable[[], None] | None
) -> None:
    if first:
        first()
    for future, result in zip(futures, results, strict=True):
        if isinstance(result, Unresolved) or future.done():  # done: the client has disconnected, and the job was run
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
