"""The hot path beside many organizations: what a booking and an idle worker cost in a cell of a thousand, ten thousand
and a hundred thousand of them.

    python -m bench.capacity --organizations 1000 10000 100000 --seconds 5

Each organization has a key, an experience and a departure. Batches of bookings for organizations at random run as the
service runs them, with the look-up of their keys: no cache of one organization helps the next. The figures are the
coefficients of docs/operations/capacity.md.
"""

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import psycopg

from bench import postgres
from booking_core import bookings, idempotency, keys, tokens, webhooks
from booking_core.bookings import CreateRequest
from booking_core.context import Caller, Installation
from booking_core.db import migrate
from booking_core.db.engine import Database, Tx
from booking_core.errors import BookingError
from booking_core.idempotency import Answer, Once
from booking_core.models.bookings import BookingCreate

BATCH = 32
_SETUP = """
CREATE FUNCTION pg_temp.of_kind(kind text, n integer) RETURNS uuid LANGUAGE sql IMMUTABLE
    AS $$ SELECT md5(kind || n)::uuid $$;
CREATE FUNCTION pg_temp.at() RETURNS bigint LANGUAGE sql STABLE
    AS $$ SELECT (extract(epoch FROM now()) * 1000000)::bigint $$;
"""
_FILL = """
INSERT INTO organizations (id, slug, name, timezone, default_currency, created_at, updated_at)
SELECT pg_temp.of_kind('o', n), 'org-' || n, 'Tours', 'Europe/Oslo', 'NOK', pg_temp.at(), pg_temp.at()
  FROM generate_series(1, COUNT) n;
INSERT INTO counters (organization_id) SELECT pg_temp.of_kind('o', n) FROM generate_series(1, COUNT) n;
INSERT INTO api_keys (organization_id, id, name, prefix, key_hash, scopes, created_at)
SELECT pg_temp.of_kind('o', n), pg_temp.of_kind('k', n), 'key', 'svc_00000000',
       encode(sha256(('svc_' || lpad(n::text, 40, '0'))::bytea), 'hex'), '["bookings:write"]', pg_temp.at()
  FROM generate_series(1, COUNT) n;
INSERT INTO experiences (organization_id, id, slug, title, is_published, languages, tags, currency, price_from_minor,
                         price_tiers, add_ons, duration_minutes, created_at, updated_at)
SELECT pg_temp.of_kind('o', n), pg_temp.of_kind('e', n), 'tour', 'Tour', true, '[]', '[]', 'NOK', 89000,
       '[{"id": "adult", "name": "Adult", "price": {"amount_minor": 89000, "currency": "NOK"}, "seats_per_unit": 1}]',
       '[]', 90, pg_temp.at(), pg_temp.at()
  FROM generate_series(1, COUNT) n;
INSERT INTO departures (organization_id, id, experience_id, starts_at, seats_total, seats_ceiling, created_at,
                        updated_at)
SELECT pg_temp.of_kind('o', n), pg_temp.of_kind('d', n), pg_temp.of_kind('e', n), pg_temp.at() + 864000000000,
       1000000, 1000000, pg_temp.at(), pg_temp.at()
  FROM generate_series(1, COUNT) n;
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one number of organizations."""

    organizations: int
    bookings_per_s: float
    batch_ms: float
    """The median of a batch, its keys looked up and committed."""
    client_us: float
    """CPU of the process for a booking."""
    idle_claim_ms: float
    """The worker's query for deliveries, with nothing due."""
    bytes_each: float
    """Of an organization without bookings."""
    bytes_of_booking: float


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--organizations", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args(argv)
    with postgres.running() as server:
        print("organizations  bookings/s  ms a batch  us CPU each  ms idle claim  kB an org.  kB a booking")
        for count in options.organizations:
            found = measure(server.create_database(f"capacity_{count}"), count, options.seconds)
            print(
                f"{found.organizations:13}  {found.bookings_per_s:10.0f}  {found.batch_ms:10.1f}"
                f"  {found.client_us:11.0f}  {found.idle_claim_ms:13.2f}  {found.bytes_each / 1000:10.1f}"
                f"  {found.bytes_of_booking / 1000:12.1f}"
            )


def measure(url: str, count: int, seconds: float) -> Measured:
    """Fill a database with organizations, and book for so many seconds."""
    migrate.upgrade(url)
    empty = _size(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_SETUP.encode())
        connection.execute(_FILL.replace("COUNT", str(count)).encode())
    postgres.settle(url)
    filled = _size(url)
    database = Database(url)
    try:
        warm, _ = _book(database, count, seconds / 4)
        begun_s, begun_cpu_s = time.monotonic(), time.process_time()
        times_s, done = _book(database, count, seconds)
        wall_s, cpu_s = time.monotonic() - begun_s, time.process_time() - begun_cpu_s
        claims_s = sorted(_timed(lambda: database.write(_claim_nothing)) for _ in range(20))
    finally:
        database.close()
    booked = done + len(warm) * BATCH
    return Measured(
        count,
        done / wall_s,
        sorted(times_s)[len(times_s) // 2] * 1000,
        cpu_s / done * 1e6,
        claims_s[len(claims_s) // 2] * 1000,
        (filled - empty) / count,
        (_size(url) - filled) / booked,
    )


def _book(database: Database, count: int, seconds: float) -> tuple[list[float], int]:
    """Book in batches, and return the time of each and the number of bookings."""
    installation = Installation(tokens.SecretKeys("the-secret-key-of-a-measurement-000000"))
    times_s: list[float] = []
    done, until_s = 0, time.monotonic() + seconds
    while time.monotonic() < until_s:
        numbers = [random.randint(1, count) for _ in range(BATCH)]
        times_s.append(_timed(lambda numbers=numbers: _batch(database, installation, numbers)))
        done += BATCH
    return times_s, done


def _batch(database: Database, installation: Installation, numbers: Sequence[int]) -> None:
    texts = [f"svc_{number:040}" for number in numbers]
    with database.reading() as tx:
        callers = keys.identify_many(tx, texts, installation)
    wanted = [_request(caller, number) for caller, number in zip(callers, numbers, strict=True)]
    for answer in database.write(lambda tx: bookings.create_many(tx, wanted)):
        assert isinstance(answer, Answer), answer
        assert answer.status == 201, answer.body


def _request(caller: Any, number: int) -> CreateRequest:
    assert isinstance(caller, Caller), caller
    body = {
        "experience_date_id": _uuid("d", number),
        "guests": [{"tier_id": "adult", "count": 1}],
        "customer": {"name": "Ada Lovelace", "email": f"{tokens.new_id()}@example.com", "phone": "+47 900 00 000"},
        "payment": "pay_on_site",
        "send_confirmation_email": False,
    }
    model = BookingCreate.model_validate_json(orjson.dumps(body))
    return CreateRequest(caller, model, Once(tokens.new_id(), idempotency.fingerprint("POST", "/", body)), _refuse)


def _refuse(error: BookingError) -> Answer:
    raise error


def _uuid(kind: str, number: int) -> str:
    from hashlib import md5
    from uuid import UUID

    return str(UUID(md5(f"{kind}{number}".encode()).hexdigest()))


def _claim_nothing(tx: Tx) -> None:
    installation = Installation(tokens.SecretKeys("the-secret-key-of-a-measurement-000000"))
    limits = {"free": 64, "slow_free": 32, "per_endpoint": 8, "per_organization": 16}
    assert webhooks.claim(tx, installation, in_flight={}, **limits) == []


def _timed(act: Any) -> float:
    begun_s = time.monotonic()
    act()
    return time.monotonic() - begun_s


def _size(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    assert row is not None
    return int(row[0])


if __name__ == "__main__":
    main()
