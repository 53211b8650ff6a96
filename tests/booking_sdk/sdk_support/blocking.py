"""The async client with the interface of the sync client: one test can use both. Errors and warnings of either."""

import asyncio
import gc
import inspect
import warnings
from collections.abc import Awaitable, Callable, Iterator
from typing import Any


def blocking(value: Any, runner: asyncio.Runner) -> Any:
    """Return the value, or a wrapper with blocking methods for an async object of the SDK."""
    kind = type(value)
    # A raw response may be parsed into a class of the async half.
    is_ours = kind.__module__.startswith("booking_sdk") and kind.__name__.startswith(("Async", "APIResponse"))
    return _Blocking(value, runner) if is_ours or inspect.isasyncgen(value) else value


class _Blocking:
    def __init__(self, target: Any, runner: asyncio.Runner) -> None:
        self.target = target
        self.runner = runner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.target, name)
        return self._waiting(value) if inspect.ismethod(value) else blocking(value, self.runner)

    def _waiting(self, method: Any) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            arguments = tuple(getattr(one, "target", one) for one in arguments)
            result = method(*arguments, **keywords)
            if inspect.iscoroutine(result):
                result = self.runner.run(result)
            return blocking(result, self.runner)

        call.target = method  # type: ignore[attr-defined]
        return call

    def __iter__(self) -> Iterator[Any]:
        if not hasattr(self.target, "__anext__"):
            yield from self.target
            return
        while True:
            try:
                item = self.runner.run(_next(self.target))
            except StopAsyncIteration:
                return
            yield blocking(item, self.runner)

    def __len__(self) -> int:
        return len(self.target)

    def __repr__(self) -> str:
        return repr(self.target)


async def _next(iterator: Any) -> Any:
    return await anext(iterator)


async def error_of(waiting: Awaitable[Any]) -> BaseException:
    """Return the exception itself: `asyncio.gather` would return another one for a task that was cancelled."""
    try:
        await waiting
    except BaseException as error:  # noqa: BLE001 - the test inspects it
        return error
    raise AssertionError("the call was not cancelled")


def warned(job: Callable[[], object]) -> list[str]:
    """Return the warnings of a function and of the garbage collection after it."""
    gc.collect()  # the garbage of other tests
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        job()
        gc.collect()
        gc.collect()
    return [str(one.message) for one in caught]
