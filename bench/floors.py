"""The floors: the least Python code that gives the same answer. Each is an ASGI app for uvicorn's `--factory`.

They omit most of a service (README.md lists the omissions) and keep the work that no design can avoid: HTTP, the SQL,
JSON. They run like the service: uvicorn with uvloop and httptools, access log off, threads for a blocking driver.
"""

import asyncio
import hashlib
import os
import sys
import threading
from collections.abc import Awaitable, Callable
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
from booking_core.base.tokens import new_id

READERS = 2
WRITERS = 8
"""Connections, and threads, of a floor process: the fastest numbers on two cores. The interpreter lock limits reads,
and more threads only compete for it; a booking waits for the disk."""


DATABASE = "BENCH_DATABASE"
"""The variable with the URL, or the file, of a floor's database."""


def serve(factory: str, database: str, *, module: str = __name__) -> AbstractContextManager[Server]:
    """Run one of the factories below, or of another module, under uvicorn."""
    port = free_port()
    args = [
        *(sys.executable, "-m", "uvicorn", "--factory", f"{module}:{factory}"),
        *("--host", HOST, "--port", str(port)),
        *("--loop", "uvloop", "--http", "httptools", "--lifespan", "on", "--no-access-log", "--log-level", "warning"),
    ]
    return serving(args, port=port, env={DATABASE: database})


class Threads:
    """Blocking psycopg connections, one for each thread of a bounded pool."""

    def __init__(self, size: int) -> None:
        self._local = threading.local()
        self._pool = ThreadPoolExecutor(size, initializer=self._connect)

    def _connect(self) -> None:
        connection = psycopg.connect(os.environ[DATABASE], autocommit=True, prepare_threshold=0)
        # The answer has ids as text, so no UUID objects are made.
        connection.adapters.register_loader("uuid", TextLoader)
        self._local.connection = connection

    async def run(self, work: Callable[[psycopg.Connection[Any]], bytes]) -> bytes:
        """Run `work` with a connection in a thread of the pool, in one hop."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: work(self._local.connection))


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

    return Starlette(routes=[Route("/api/v1/bookings", create, methods=["POST"])])


_NOTHING = {"amount_minor": 0, "currency": "NOK"}
_PRICE = {"amount_minor": 89000, "currency": "NOK"}
_DEPARTURE = {"starts_at": "2026-12-24T10:00:00+01:00", "ends_at": "2026-12-24T12:30:00+01:00"}
_ANSWER: dict[str, Any] = {
    "status": "confirmed",
    "source": "api",
    "created_at": "2026-12-01T10:00:00+01:00",
    "updated_at": "2026-12-01T10:00:00+01:00",
    "experience": {"id": floor_sql.numbered_id(1), "title": "Fjord kayak", "slug": "fjord-kayak"},
    "add_ons": [],
    "payment": {"method": "pay_on_site", "source": "on_site", "status": "unpaid"},
    "manage_url": None,
}
"""The fields that are the same in every booking."""


def _booking(body: bytes, headers: Any) -> dict[str, Any]:
    """Return the statement's arguments for one request. Nothing is checked or priced."""
    request, booking = orjson.loads(body), new_id()
    seats, customer, departure = request["guests"][0]["count"], request["customer"], request["experience_date_id"]
    total = {"amount_minor": 89000 * seats, "currency": "NOK"}
    answer = _ANSWER | {
        "departure": _DEPARTURE | {"id": departure},
        "customer": customer,
        "guests": [{"tier_id": "adult", "tier_label": "Adult", "count": seats, "unit_price": _PRICE}],
        "totals": {"subtotal": total, "discount": _NOTHING, "gift_card": _NOTHING, "total": total},
        "note": request["note"],
    }
    return {
        "org": headers["authorization"].removeprefix("Bearer "),
        "departure": departure,
        "seats": seats,
        "booking": booking,
        "name": customer["name"],
        "email": customer["email"],
        "total": total["amount_minor"],
        "created": new_id(),
        "confirmed": new_id(),
        # The database puts the number between them.
        "head": f'{{"id":"{booking}","booking_number":',
        "tail": f",{orjson.dumps(answer).decode()[1:]}",
        "key": headers["idempotency-key"],
        "fingerprint": hashlib.sha256(body).hexdigest(),
    }
