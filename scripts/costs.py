"""Measures the cost of single operations on this machine: CPU, statements, and bytes.

    python -m scripts.costs        # a minute or two; writes scripts/costs.json, which `scripts.capacity` reads

CPU is that of the whole processes, user and system, from /proc. Waiting does not count, but other programs of the
machine make each operation use more of it: run it on a quiet machine. The unit of the ratios is a bare statement:
`SELECT 1`, prepared, by psycopg over a Unix socket.
"""

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psycopg

from bench import postgres, sink
from bench.delivering import QUIET, deliveries, is_queued
from bench.fill import FIRST_DAY
from bench.load import Plan, Request, Result, drive_in_process
from bench.measure import Timing
from bench.postgres import Postgres
from bench.processes import HOST, Server, cpu_s, serving
from bench.service import BOOKING, Service, Shop, answer, answers
from bench.stage import Stage

FILE = Path(__file__).with_name("costs.json")
SECONDS = 3.0
BARE = 20_000
"""Bare statements."""
SINGLES = 6
"""Requests of each organization for an operation that changes a row once."""
ALONE = "a booking, alone"
CROWD = "a booking, of 32 clients"
DELIVERY = "a delivery"
BOOKINGS = (ALONE, CROWD)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one operation; 0 where it was not measured."""

    server_us: float
    database_us: float = 0.0
    statements: float = 0.0
    """Without BEGIN and COMMIT."""
    wal_bytes: float = 0.0
    row_bytes: float = 0.0
    """The growth of the database, indexes included."""


def main() -> None:
    """Measure on both databases, and write the costs by database and operation."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # a terminated run stops its processes
    with postgres.running() as server:
        costs = {
            "machine": {"processors": os.cpu_count(), "postgresql": "{}.{}".format(*divmod(server.version, 10_000))},
            "bare": _as_json(_bare(server)),
            "postgresql": {name: _as_json(cost) for name, cost in _on_postgresql(server)},
            "connections": _connections(server),
            "sqlite": {name: _as_json(cost) for name, cost in _on_sqlite()},
        }
    FILE.write_text(json.dumps(costs, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(FILE.read_text(encoding="utf-8"))


def _as_json(cost: Cost) -> dict[str, float]:
    """Return the figures with two digits after the point."""
    return {name: round(value, 2) for name, value in asdict(cost).items()}


def _bare(server: Postgres) -> Cost:
    with psycopg.connect(server.url("postgres"), autocommit=True, prepare_threshold=0) as connection:
        spent_s, database_s = time.process_time(), cpu_s(server.pid)
        for _ in range(BARE):
            connection.execute("SELECT 1").fetchone()
        spent = time.process_time() - spent_s, cpu_s(server.pid) - database_s
    return Cost(*(seconds / BARE * 1e6 for seconds in spent), statements=1)


def _on_postgresql(server: Postgres) -> Iterator[tuple[str, Cost]]:
    stage = Stage(server)
    lists, reader = stage.lists()
    with lists.serve() as serving_lists:
        for name, request in _reads(reader, serving_lists).items():
            yield name, _under_load(serving_lists, lists, server, [request])
    service, shops = stage.shops(64)
    with service.serve() as booking:
        requests = [request for shop in shops for request in shop.bookings()]
        answers(booking, requests[:64])
        for name, clients in zip(BOOKINGS, (1, 32), strict=True):
            yield name, _under_load(booking, service, server, requests, clients=clients)
        for name, singles in _changes(shops, booking).items():
            yield name, _under_load(booking, service, server, singles, most=len(singles) // 2)
    yield DELIVERY, _delivery(server, stage)


def _reads(reader: Shop, server: Server) -> dict[str, Request]:
    day = f"/api/v1/availability?from={FIRST_DAY}&to={FIRST_DAY}"
    cursor = answer(server, reader.get("/api/v1/events?order=asc"))["resume_cursor"]
    return {
        "the caller's organization (GET /me)": reader.get("/api/v1/me"),
        "a day of availability, 25 departures": reader.get(day),
        "a page of 25 bookings": reader.get("/api/v1/bookings?limit=25"),
        "a poll of the feed without news": reader.get(f"/api/v1/events?order=asc&starting_after={cursor}"),
    }


def _changes(shops: list[Shop], server: Server) -> dict[str, list[Request]]:
    """Return the requests of operations that change a row once."""
    cancellations = [
        shop.post(f"/api/v1/bookings/{booking['id']}/cancel", {})
        for shop in shops
        for booking in answers(server, shop.bookings(**QUIET)[:SINGLES])
    ]
    holds = [
        shop.post("/api/v1/holds", {"experience_date_id": departure, "seats": 1})
        for shop in shops
        for departure in shop.departures[:SINGLES]
    ]
    return {"a hold": holds, "a cancellation": cancellations}


def _under_load(
    server: Server, service: Service, database: Postgres, requests: list[Request], *, clients: int = 8, most: int = 0
) -> Cost:
    """Measure requests: first their statements, then, without the log, the rest. `most` is for requests that are sent
    once."""
    with _logged(database) as statements:
        first = _sent(server, requests[: most or None], clients, 1.0, most)
        executed = statements()
    with psycopg.connect(service.database_url, autocommit=True) as connection:
        before = _bytes(connection)
        spent_s = cpu_s(server.pid), cpu_s(database.pid)
        result = _sent(server, requests[most:], clients, SECONDS, most)
        spent = [cpu_s(pid) - earlier for pid, earlier in zip((server.pid, database.pid), spent_s, strict=True)]
        grown = [(after - earlier) / result.total for after, earlier in zip(_bytes(connection), before, strict=True)]
    return Cost(*(seconds / result.total * 1e6 for seconds in spent), executed / first.total, *grown)


def _sent(server: Server, requests: list[Request], clients: int, seconds: float, most: int) -> Result:
    limit = {"max_requests": most} if most else {}
    result = drive_in_process(Plan(server.port, requests, clients, 0.0, seconds if not most else 60.0, **limit))
    if result.total != sum(count for status, count in result.statuses.items() if status in ("200", "201")):
        raise RuntimeError(f"answered {result.statuses}")
    return result


@contextmanager
def _logged(database: Postgres) -> Iterator[Callable[[], int]]:
    """Let the server log its statements; yield the function that counts them."""
    with psycopg.connect(database.url("postgres"), autocommit=True) as connection:
        row = connection.execute("SHOW data_directory").fetchone()
        log = Path(row[0] if row else "") / "log"
        _set_log(connection, "all")
        start = log.stat().st_size
        try:
            yield lambda: sum(map(_is_statement, log.read_bytes()[start:].splitlines()))
        finally:
            _set_log(connection, "none")


def _set_log(connection: "psycopg.Connection", value: str) -> None:  # type: ignore[type-arg]
    connection.execute(f"ALTER SYSTEM SET log_statement = '{value}'")  # type: ignore[call-overload]
    connection.execute("SELECT pg_reload_conf()")
    time.sleep(0.2)  # the processes read it before their next statement


def _is_statement(line: bytes) -> bool:
    text = line.partition(b"LOG:  ")[2]
    kind, _, statement = text.partition(b": ")
    return kind.startswith((b"execute", b"statement")) and not statement.startswith((b"BEGIN", b"COMMIT"))


def _bytes(connection: "psycopg.Connection") -> tuple[int, int]:  # type: ignore[type-arg]
    """Return the position in the WAL, and the size of all tables."""
    row = connection.execute(
        "SELECT pg_current_wal_lsn() - '0/0', (SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
        " WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace)"
    ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def _delivery(server: Postgres, stage: Stage) -> Cost:
    """Measure the CPU of many deliveries, and the bytes of some."""
    with ExitStack() as stack:
        take = next(iter(deliveries.build(stage, stack).values()))
        figures = take(Timing(0.0, 1.0)).figures
        service, receiver = Service(server.create_database("delivered")), stack.enter_context(sink.served())
        (shop,) = service.open_shops(1, 20, urls=[f"http://{HOST}:{receiver.port}/{number}" for number in range(5)])
        with service.serve() as booking:
            count = len(answers(booking, shop.bookings(**QUIET) * 5)) * 10
        with psycopg.connect(service.database_url, autocommit=True) as connection:
            before = _bytes(connection)
            with serving([str(BOOKING), "worker"], env=service.env, is_ready=lambda _: not is_queued(connection)):
                grown = [(after - earlier) / count for after, earlier in zip(_bytes(connection), before, strict=True)]
    return Cost(figures["server µs"], figures["database µs"], 0.0, *grown)


def _connections(server: Postgres) -> int:
    """Return the connections of one process after bookings of 32 clients beside lists."""
    service, shops = Stage(server).shops(16)
    with service.serve() as booking:
        requests = [request for shop in shops for request in (*shop.bookings(), shop.get("/api/v1/bookings"))]
        drive_in_process(Plan(booking.port, requests, 32, 0.0, 1.0))
        with psycopg.connect(service.database_url) as connection:
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchone()
    assert row is not None
    return int(row[0])


def _on_sqlite() -> Iterator[tuple[str, Cost]]:
    with tempfile.TemporaryDirectory(prefix="costs-") as folder:
        file = Path(folder) / "booking.db"
        service = Service(f"sqlite:///{file}")
        shops = service.open_shops(16, 16)
        requests = [request for shop in shops for request in shop.bookings()]
        with service.serve() as server:
            answers(server, requests[:16])
            for name, plan, clients in (
                ("the caller's organization (GET /me)", [shops[0].get("/api/v1/me")], 8),
                *((name, requests, clients) for name, clients in zip(BOOKINGS, (1, 32), strict=True)),
            ):
                size, spent_s = _size(file), cpu_s(server.pid)
                result = _sent(server, plan, clients, SECONDS, 0)
                spent = (cpu_s(server.pid) - spent_s) / result.total * 1e6
                yield name, Cost(spent, row_bytes=(_size(file) - size) / result.total)


def _size(file: Path) -> int:
    """Return the size of a database, with everything in its file."""
    import sqlite3

    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA wal_checkpoint(FULL)")
    connection.close()
    return file.stat().st_size


if __name__ == "__main__":
    main()
