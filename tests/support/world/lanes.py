"""Bookings through the lanes of a process, without HTTP."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

from booking_core.base.context import Caller
from booking_core.base.settings import RateLimit, Settings
from booking_core.bookings import CreateRequest
from booking_core.db.engine import Database
from booking_core.records.idempotency import Answer
from booking_server.execution.authenticator import Credentials
from booking_server.execution.service import Service
from support.world.creating import create
from support.world.world import SECRET, World


class Client:
    """Books for one organization, through the lanes of a process."""

    def __init__(self, service: Service, world: World) -> None:
        self.world = world
        self.key = world.key()
        self.prepared: list[str] = []
        """The thread of each preparation of a booking; a single booking is prepared in the loop's thread."""
        self._service = service
        self._headers = [(b"authorization", f"Bearer {self.key}".encode())]

    def book(self, departure_id: str, key: str, **over: Any) -> Awaitable[Any]:
        """Begin a booking, and return its result or refusal."""
        return asyncio.ensure_future(self._book(create(self.world, departure_id, key, **over)))

    async def _book(self, request: CreateRequest) -> Any:
        def prepare(caller: Caller) -> CreateRequest:
            self.prepared.append(threading.current_thread().name)
            return replace(request, caller=caller)

        try:
            return await self._service.creations.create(
                Credentials(self._headers, "192.0.2.1"),
                prepare,
                size=len(request.request.model_dump_json()),
                organization_id=self.world.org,
            )
        except Exception as error:  # noqa: BLE001 - compared by the test
            return error


class HeldWork:
    """Work that runs in threads until it is released, and counts the threads."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.running = self.most = 0
        self._begun = threading.Semaphore(0)
        self._lock = threading.Lock()

    def __call__(self, *_: object) -> dict[str, object]:
        with self.counted():
            assert self.free.wait(timeout=60)
        return {}

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count a thread while its body runs."""
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self._begun.release()
        yield
        with self._lock:
            self.running -= 1

    async def wait_for(self, count: int) -> None:
        """Wait until that number of threads has begun."""
        for _ in range(count):
            assert await asyncio.to_thread(self._begun.acquire, timeout=60)


@asynccontextmanager
async def running(world: World, rate_limit: RateLimit | None = None) -> AsyncIterator[Service]:
    """Run the executors of a process."""
    settings = Settings(database_url=world.url, secret_key=SECRET, secret_key_check="warn", rate_limit=rate_limit)
    service = Service(settings, Database(world.url, clock=world.clock))
    try:
        yield service
    finally:
        await asyncio.to_thread(service.close)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition is true, while the event loop runs."""
    while not condition():
        await asyncio.sleep(0)


def statuses(results: Sequence[Any]) -> list[int]:
    return [result.status for result in results if isinstance(result, Answer)]
