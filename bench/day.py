"""A day of 10,000 organizations: the busiest of a year, with a hundredth of its requests in a little over a minute.

All organizations exist, and a hundredth of them sell, a few of them most of the bookings; a quarter of these is out of
season, and is only read. Guests read and book at the rate of each part of the day, and two parts begin with a rush. One
service of two processes with its worker serves them, delivers the events of half of the organizations, some of them to
a receiver that is gone, and followers read the feeds of others. At the end everything is counted in the database.
"""

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace

from support.databases.databases import connect

from bench import sink
from bench.feed import following
from bench.fill import fill_quiet
from bench.load import FRESH, Plan, Request, Result, drive_in_process, sending
from bench.measure import Meter, Reading, Sides, Timing, entry
from bench.processes import HOST, Server, wait_for
from bench.rush import SEATS, crowds, unexpected
from bench.service import Service, Shop
from bench.stage import Stage
from booking_core.db.engine import Database
from booking_core.upkeep import doctor

ORGANIZATIONS = 10_000
PART = 0.01
"""The part of the organizations that sells, and of the day's requests that is sent."""
BOOKINGS_A_YEAR = 1_000
"""Of each organization."""
BUSIEST_DAY = 3.0
"""The bookings of the busiest day, as a multiple of the mean."""
READS = 30
"""Requests that only read, for each booking."""
SHARES = (0.01, 0.01, 0.06, 0.16, 0.22, 0.20, 0.24, 0.10)
"""The parts of the day, of three hours each: their share of its requests."""
RUSHES = (3, 6)
"""The parts that begin with a rush."""
SECONDS = 8.0
"""The length of a part in the bench."""
CLIENTS = 64
DEPARTURES = 4
FOLLOWED, FOLLOWERS = 5, 4
"""Organizations whose feed is followed, and the followers of each."""
LONGEST_S = len(SHARES) * (SECONDS + 2.5)
"""The followers' time. Beside its length, a part needs the time of the load client's start and of the last answers."""
EXPECTED = frozenset({"200", "201", "unsent"})


@entry("day", f"the busiest day of {ORGANIZATIONS:,} organizations, a hundredth of its requests", rounds=1)
def day(stage: Stage, stack: ExitStack) -> Sides:
    receiver = stack.enter_context(sink.served())
    service = Service(stage.postgres.create_database("day"))
    selling = round(ORGANIZATIONS * PART)
    shops = [
        *service.open_shops(selling // 2, DEPARTURES),
        *service.open_shops(selling * 2 // 5, DEPARTURES, urls=[f"http://{HOST}:{receiver.port}/hook"]),
        *service.open_shops(selling // 10, DEPARTURES, urls=[service.NOWHERE]),
    ]
    random.Random(1).shuffle(shops)
    rushed = service.open_shop(len(RUSHES), seats=SEATS)
    fill_quiet(service.database_url, ORGANIZATIONS - selling - 1)
    server = stack.enter_context(service.serve(worker=True, processes=2))

    def take(_: Timing) -> Reading:
        sink.counted(receiver)  # a request has asked whether it answers
        meter = Meter(server, stage.postgres)
        with following(server.port, shops[:FOLLOWED] * FOLLOWERS, LONGEST_S) as followed:
            results, failures = _send_all(server, shops, rushed)
            wait_for(lambda: _deliveries(service)["waiting"] == 0, "the deliveries")
            reading = meter.reading(result := whole(results), EXPECTED)
            events = followed().events
        bookings, deliveries = _bookings(service), _deliveries(service)
        counts = {
            "bookings of the day": (bookings.total() - bookings[rushed.id], result.statuses["201"]),
            "bookings of the rushes": (bookings[rushed.id], SEATS * len(RUSHES)),
            "events at followers": (events, FOLLOWERS * sum(bookings[shop.id] for shop in shops[:FOLLOWED])),
            "deliveries at the receiver": (sink.counted(receiver)["count"], deliveries["arrived"]),
        }
        failures += [f"{name}: {count} instead of {right}" for name, (count, right) in counts.items() if count != right]
        failures += [*reading.failures, *_findings(service)]
        return Reading({**reading.figures, **deliveries}, failures)

    return {"service": take}


def _send_all(server: Server, shops: Sequence[Shop], rushed: Shop) -> tuple[list[Result], list[str]]:
    """Send the requests of the day; return the result of each part, and the failures of the rushes."""
    results: list[Result] = []
    failures: list[str] = []
    rushes = crowds(server, rushed)
    for number in range(len(SHARES)):
        requests = part_requests(shops, number)
        plan = Plan(server.port, requests, CLIENTS, 0.0, SECONDS, rate=len(requests) / SECONDS)
        with sending(next(rushes)) if number in RUSHES else nullcontext() as crowd:
            results.append(drive_in_process(plan))
            failures += unexpected(crowd()) if crowd else []
    return results, failures


def part_requests(shops: Sequence[Shop], number: int) -> list[Request]:
    """Return the requests of a part of the day. Of the shops in season, the first ones sell the most."""
    source, of_year = random.Random(number), ORGANIZATIONS * BOOKINGS_A_YEAR
    bookings = round(of_year / 365 * BUSIEST_DAY * PART * SHARES[number])
    sellers = [shop for place, shop in enumerate(shops) if place % 4]
    weights = [1 / place for place in range(1, len(sellers) + 1)]
    return [
        *(source.choice(shop.bookings(note=FRESH)) for shop in source.choices(sellers, weights, k=bookings)),
        *(source.choice(_reads(shop)) for shop in source.choices(shops, k=bookings * READS)),
    ]


def _reads(shop: Shop) -> list[Request]:
    """Return reads of clients: mostly the availability of a day."""
    day = shop.get("/api/v1/availability?from=2031-01-02&to=2031-01-02")
    return [day, day, day, day, shop.get("/api/v1/bookings?limit=25"), shop.get("/api/v1/me")]


def whole(results: Sequence[Result]) -> Result:
    """Return the busiest part of the day, with the counts of all."""
    statuses = sum((Counter(result.statuses) for result in results), Counter[str]())
    busiest = max(results, key=lambda result: result.throughput)
    return replace(busiest, total=sum(result.total for result in results), statuses=dict(statuses))


def _deliveries(service: Service) -> dict[str, float]:
    """Count the deliveries of the day: arrived, of an endpoint that shows its failures, and others."""
    with connect(service.database_url) as connection:
        owed, arrived, failing = connection.execute(_DELIVERIES).fetchone()
    return {"arrived": arrived, "failing": failing, "waiting": owed - arrived - failing}


_DELIVERIES = """
SELECT count(*), count(*) FILTER (WHERE d.status = 'succeeded'),
       count(*) FILTER (WHERE d.status IS DISTINCT FROM 'succeeded' AND w.consecutive_failures > 0)
  FROM webhook_subscriptions s
  JOIN webhook_endpoints w ON w.organization_id = s.organization_id AND w.id = s.endpoint_id
  JOIN events v ON v.organization_id = s.organization_id AND v.type = s.event_type AND v.sequence > s.from_sequence
  LEFT JOIN deliveries d
    ON d.organization_id = s.organization_id AND d.endpoint_id = s.endpoint_id AND d.event_id = v.id"""


def _bookings(service: Service) -> Counter[str]:
    """Count the bookings of each organization."""
    with connect(service.database_url) as connection:
        rows = connection.execute("SELECT organization_id::text, count(*) FROM bookings GROUP BY 1")
        return Counter(dict(rows.fetchall()))


def _findings(service: Service) -> list[str]:
    """Return the findings of the doctor, in the seats before all."""
    with closing(Database(service.database_url)) as database:
        return [str(finding) for finding in database.read(doctor.examine)]


ENTRIES = (day,)
