"""Removes local variables from the frames of a traceback.

Error reporters such as Sentry record the local variables of every frame that an exception passed through. In the frames
of a verifier or of an HTTP client these are secrets, bodies and headers.
"""

from __future__ import annotations


def clear_frames(error: BaseException) -> None:
    """Delete the local variables of all frames that the exception, its causes and its contexts have left.

    The lines of the traceback stay. A frame that is still running, such as the caller's, is not cleared: its function
    deletes its own variables. Safe to call for any exception, any number of times.
    """
    pending: list[BaseException | None] = [error]
    visited: set[int] = set()
    while pending:
        one = pending.pop()
        if one is None or id(one) in visited:
            continue
        visited.add(id(one))
        traceback = one.__traceback__
        while traceback is not None:
            # A running frame raises. No `suppress`: this module must not import contextlib.
            try:  # noqa: SIM105
                traceback.tb_frame.clear()
            except RuntimeError:
                pass
            traceback = traceback.tb_next
        pending += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
