"""Functions that run at the same time, and servers that run in a thread of the test's process."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

T = TypeVar("T")
_WAIT_S = 60.0


def together(*works: Callable[[], T]) -> list[T]:
    """Run the functions in threads that begin together, and return their results. An error of a function is raised."""
    barrier = threading.Barrier(len(works))

    def run(work: Callable[[], T]) -> T:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(run, works))


class LoopThread:
    """An event loop in a thread, with servers that are closed at the end of the block."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self.loop.run_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(_WAIT_S)

    def listen(self, starting: Coroutine[Any, Any, asyncio.Server]) -> int:
        """Start a server, and return its port."""
        self.servers.append(server := self.run(starting))
        return int(server.sockets[0].getsockname()[1])

    async def _close(self) -> None:
        for server in self.servers:
            server.close()
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await self.hang_up()

    async def hang_up(self) -> None:
        """Let the loop close its sockets."""
        for _ in range(10):
            await asyncio.sleep(0)
