"""The floors: the least Python code that gives the same answer. Each is an ASGI app for uvicorn's `--factory`.

They omit most of a service (README.md lists the omissions) and keep the work that no design can avoid: HTTP, the SQL,
JSON. They run like the service: uvicorn with uvloop and httptools, access log off, threads for a blocking driver.
"""

import asyncio
import hashlib
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import orjson
import psycopg
from psycopg.types.string import TextLoader
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from support.serving.servers import free_port

from bench import floor_sql
from bench.processes import HOST, Server, serving

READERS = 2
WRITERS = 8
"""Connections, and threads, of a floor process: the fastest numbers on two cores. The interpreter lock limits reads,
and more threads only compete for it; a booking waits for the disk."""


def serve(
    factory: str, *, database_url: str = "", module: str = __name__, env: Mapping[str, str] | None = None
) -> AbstractContextManager[Server]:
    """Run one of the factories below, or of another module, under uvicorn."""
    port = free_port()
    args = [
        *(sys.executable, "-m", "uvicorn", "--factory", f"{module}:{factory}"),
        *("--host", HOST, "--port", str(port)),
        *("--loop", "uvloop", "--http", "httptools", "--lifespan", "on", "--no-access-log", "--log-level", "warning"),
    ]
    return serving(args, port=port, env={"BENCH_DATABASE_URL": database_url, **(env or {})})


class Threads:
    """Blocking psycopg connections, one for each thread of a bounded pool."""

    def __init__(self, size: int) -> None:
        self._own = threading.local()
        self._pool = ThreadPoolExecutor(size, initializer=self._connect)

    def _connect(self) -> None:
        connection = psycopg.connect(os.environ["BENCH_DATABASE_URL"], autocommit=True, prepare_threshold=0)
        # The answer has ids as text, so no UUID objects are made.
        connection.adapters.register_loader("uuid", TextLoader)
        self._own.connection = connection

    async def run(self, work: Callable[[psycopg.Connection[Any]], bytes]) -> bytes:
        """Run `work` with a connection in a thread of the pool, in one hop."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: work(self._own.connection))


def reads() -> Starlette:
    """Create the application of the lists: hand-written SQL, rows to dicts, orjson."""
    threads = Threads(READERS)

    def listing(read: floor_sql.Read) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            query = dict(request.query_params)
            zone, limit = query.pop("zone"), int(query.get("limit", 0)) or None

            def page(connection: psycopg.Connection[Any]) -> bytes:
                return read.page(connection.execute(read.sql, query).fetchall(), zone, limit)

            return Response(await threads.run(page), media_type="application/json")

        return endpoint

    routes = {"/bookings": floor_sql.BOOKINGS, "/availability": floor_sql.AVAILABILITY}
    return Starlette(routes=[Route(path, listing(read)) for path, read in routes.items()])


def book() -> Starlette:
    """Create the application of the one-statement booking: bare psycopg in threads."""
    threads = Threads(WRITERS)

    async def create(request: Request) -> Response:
        arguments = _booking(await request.body(), request.headers)

        def execute(connection: psycopg.Connection[Any]) -> bytes:
            row = connection.execute(floor_sql.BOOK, arguments).fetchone()
            return row[0].encode() if row else b""

        answer = await threads.run(execute)
        return Response(answer, 201 if answer else 409, media_type="application/json")

    return Starlette(routes=[Route("/bookings", create, methods=["POST"])])


_NUMBER = 987_654_321_012_345
"""The placeholder in a rendered booking for the number that the database assigns."""

_ANSWER = orjson.loads(f"""{{
    "booking_number": {_NUMBER}, "status": "confirmed", "source": "api",
    "created_at": "2026-12-01T10:00:00+01:00", "updated_at": "2026-12-01T10:00:00+01:00",
    "experience": {{"id": "00000000-0000-4000-8000-000000000001", "title": "Fjord kayak", "slug": "fjord-kayak"}},
    "departure": {{"starts_at": "2026-12-24T10:00:00+01:00", "ends_at": "2026-12-24T12:30:00+01:00"}}, "add_ons": [],
    "totals": {{
        "discount": {{"amount_minor": 0, "currency": "NOK"}}, "gift_card": {{"amount_minor": 0, "currency": "NOK"}}
    }},
    "payment": {{"method": "pay_on_site", "source": "on_site", "status": "unpaid"}}, "manage_url": null
}}""")
"""The fields that are the same in every booking."""


def _booking(body: bytes, headers: Any) -> dict[str, Any]:
    """Return the statement's arguments for one request. Nothing is checked or priced."""
    request, booking = orjson.loads(body), _new_id()
    seats, customer, departure = request["guests"][0]["count"], request["customer"], request["experience_date_id"]
    price, total = {"amount_minor": 89000, "currency": "NOK"}, {"amount_minor": 89000 * seats, "currency": "NOK"}
    answer = _ANSWER | {
        "id": booking,
        "departure": _ANSWER["departure"] | {"id": departure},
        "customer": customer,
        "guests": [{"tier_id": "adult", "tier_label": "Adult", "count": seats, "unit_price": price}],
        "totals": _ANSWER["totals"] | {"subtotal": total, "total": total},
        "note": request["note"],
    }
    head, tail = orjson.dumps(answer).decode().split(str(_NUMBER))
    return {
        "org": headers["x-org"],
        "departure": departure,
        "seats": seats,
        "booking": booking,
        "name": customer["name"],
        "email": customer["email"],
        "total": total["amount_minor"],
        "created": _new_id(),
        "confirmed": _new_id(),
        "head": head,
        "tail": tail,
        "key": headers["idempotency-key"],
        "fingerprint": hashlib.sha256(body).hexdigest(),
    }


def _new_id() -> str:
    """Return a UUID that begins with the time, so rows that are written together are close together in the indexes."""
    random = os.urandom(10).hex()
    stamp = f"{time.time_ns() // 1_000_000:012x}"
    return f"{stamp[:8]}-{stamp[8:]}-7{random[:3]}-8{random[4:7]}-{random[7:19]}"
