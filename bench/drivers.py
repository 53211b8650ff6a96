"""Compares `db/postgres.py` with psycopg's own prepared statements, pipeline mode and pool, for decisions/0025.

Run it by `python -m bench.drivers [ROUNDS]`. Each round measures every variant once, in turn, against one server. The
CPU is that of the client process. The pool is compared when `psycopg_pool` is installed.
"""

import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import orjson
import psycopg
from psycopg.types.string import TextLoader

from bench import postgres as server
from booking_core import bookings, keys, organizations, tokens
from booking_core.bookings import CreateRequest
from booking_core.clock import DAY, system_clock
from booking_core.context import Installation
from booking_core.db import migrate, tables
from booking_core.db.driver import Step
from booking_core.db.engine import Database, Tx
from booking_core.db.postgres_session import SessionSettings
from booking_core.db.statements import Compiled, Row
from booking_core.errors import BookingError
from booking_core.idempotency import Answer, Once
from booking_core.models.bookings import BookingCreate
from booking_core.models.scopes import Scope

OPERATIONS = 300
"""Of one kind, variant and round."""


class CursorConnection:
    """The interface of `PostgresConnection` through psycopg's cursor, prepared statements and pipeline mode."""

    def __init__(self, conninfo: str) -> None:
        self._raw = psycopg.connect(conninfo, autocommit=True, prepare_threshold=0, cursor_factory=psycopg.RawCursor)
        self._raw.prepared_max = None
        self._raw.adapters.register_loader("uuid", TextLoader)
        self._raw.execute(SessionSettings().setting_statements().encode(), prepare=False)
        self._begin_is_due = False

    def execute(self, compiled: Compiled, parameters: dict[str, Any]) -> tuple[list[Row], int]:
        if self._begin_is_due:
            self._begin_is_due = False
            with self._raw.pipeline():
                self._raw.execute("BEGIN")
                return self._rows(self._sent((compiled, parameters)))
        return self._rows(self._sent((compiled, parameters)))

    def execute_pipeline(self, steps: Sequence[Step]) -> list[list[Row]]:
        with self._raw.pipeline():
            if self._begin_is_due:
                self._begin_is_due = False
                self._raw.execute("BEGIN")
            cursors = [self._sent(step) for step in steps]
        return [self._rows(cursor)[0] for cursor in cursors]

    def _sent(self, step: Step) -> psycopg.Cursor[Row]:
        compiled, parameters = step
        return self._raw.execute(compiled.text.encode(), [parameters[key] for key in compiled.positions])

    def _rows(self, cursor: psycopg.Cursor[Row]) -> tuple[list[Row], int]:
        return (cursor.fetchall(), cursor.rowcount) if cursor.description else ([], cursor.rowcount)

    def command(self, text: str) -> None:
        self._raw.execute(text.encode())

    def begin(self) -> None:
        self._begin_is_due = True

    def commit(self, last: Step | None = None) -> None:
        with self._raw.pipeline():
            if self._begin_is_due:
                self._raw.execute("BEGIN")
            if last:
                self._sent(last)
            self._raw.execute("COMMIT")
        self._begin_is_due = False

    def rollback(self) -> None:
        if not self._begin_is_due:
            self._raw.execute("ROLLBACK")
        self._begin_is_due = False

    @property
    def broken(self) -> bool:
        return bool(self._raw.closed)

    @property
    def was_closed_by_server(self) -> bool:
        return False

    def close(self) -> None:
        self._raw.close()


Operation = Callable[[], object]


def operations(database: Database) -> dict[str, Operation]:
    """Return the look-up of a key, as in GET /me, and a booking, in an organization of their own."""
    installation = Installation(tokens.SecretKeys("the-secret-key-of-a-measurement-000000"))
    now = system_clock()

    def prepare(tx: Tx) -> tuple[Any, str]:
        slug = f"org-{tokens.new_id()}"
        organization = organizations.create(
            tx, slug=slug, name="Fjord Tours", timezone="Europe/Oslo", currency="NOK", now=now
        )
        _, text = keys.create(tx, organization, name="measured", scopes=[scope.value for scope in Scope], now=now)
        return organization, text

    organization, text = database.write(prepare)
    departure = database.write(lambda tx: _departure(tx, organization.id, now))
    caller = database.read(lambda tx: keys.identify(tx, text, installation))
    body = {
        "experience_date_id": departure,
        "guests": [{"tier_id": "adult", "count": 1}],
        "customer": {"name": "Ada Lovelace", "email": "ada@example.com"},
        "payment": "pay_on_site",
    }
    request = BookingCreate.model_validate_json(orjson.dumps(body))

    def refuse(error: BookingError) -> Answer:
        raise error

    def book() -> object:
        create = CreateRequest(caller, request, Once(tokens.new_id(), "fingerprint"), refuse)
        return database.write(lambda tx: bookings.create_many(tx, [create]))

    return {"GET /me": lambda: database.read(lambda tx: keys.identify(tx, text, installation)), "booking": book}


def _departure(tx: Tx, organization_id: str, now: int) -> str:
    experience, departure = tokens.new_id(), tokens.new_id()
    own = {"organization_id": organization_id, "created_at": now, "updated_at": now}
    price = {"amount_minor": 89000, "currency": "NOK"}
    tier = {"id": "adult", "name": "Adult", "price": price, "seats_per_unit": 1}
    tx.insert(
        tables.experiences,
        **own,
        id=experience,
        slug=experience,
        title="Fjord kayak",
        is_published=True,
        duration_minutes=150,
        languages="[]",
        tags="[]",
        currency="NOK",
        price_from_minor=89000,
        price_tiers=orjson.dumps([tier]).decode(),
        add_ons="[]",
    )
    seats = 1_000_000
    place = {"experience_id": experience, "starts_at": now + 30 * DAY, "status": "open"}
    tx.insert(tables.departures, **own, **place, id=departure, seats_total=seats, seats_ceiling=seats)
    return departure


@contextmanager
def variants(url: str) -> Iterator[dict[str, dict[str, Operation]]]:
    """Yield the operations by variant."""
    with ExitStack() as stack:
        by_hand, by_cursor = (stack.enter_context(closing(Database(url))) for _ in range(2))
        vars(by_cursor.driver)["connect"] = lambda _: CursorConnection(url)
        found = {"db/postgres.py": operations(by_hand), "psycopg": operations(by_cursor)}
        found["db/postgres.py"]["lend"] = lambda: _lend(by_hand)
        try:
            from psycopg_pool import ConnectionPool  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            yield found
            return
        options: dict[str, Any] = {"min_size": 1, "max_size": 8, "kwargs": {"autocommit": True}}
        plain = stack.enter_context(ConnectionPool(url, **options))
        checked = stack.enter_context(ConnectionPool(url, check=ConnectionPool.check_connection, **options))
        found["psycopg"]["lend"] = lambda: _lend_of(plain)
        found["psycopg, checked"] = {"lend": lambda: _lend_of(checked)}
        yield found


def _lend(database: Database) -> None:
    with database._writers.connection():
        pass


def _lend_of(pool: Any) -> None:
    with pool.connection():
        pass


def measure(operation: Operation) -> tuple[float, float]:
    """Return microseconds of the client's CPU and of time, for one operation."""
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(OPERATIONS):
        operation()
    return tuple(1e6 * spent / OPERATIONS for spent in (time.process_time() - cpu, time.perf_counter() - wall))  # type: ignore[return-value]


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    with server.running() as running:
        url = running.create_database("drivers")
        migrate.upgrade(url)
        with variants(url) as by_variant:
            for _ in range(rounds + 1):
                for variant, known in by_variant.items():
                    for kind, operation in known.items():
                        found[kind, variant].append(measure(operation))
    print(f"{'':12}{'':18}{'CPU µs':>10}{'time µs':>10}")
    for (kind, variant), samples in sorted(found.items()):
        cpu, wall = (statistics.median(column) for column in zip(*samples[1:], strict=True))
        print(f"{kind:12}{variant:18}{cpu:10.1f}{wall:10.1f}")


if __name__ == "__main__":
    main()
