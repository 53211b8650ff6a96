"""A day of 10,000 organizations: the busiest of a year, with a hundredth of its requests in a little over a minute.

All organizations exist, and a hundredth of them sell, a few of them most of the bookings; a quarter of these is out of
season, and is only read. Guests read and book at the rate of each part of the day, and two parts begin with a rush. One
service of two processes with its worker serves them, delivers the events of half of the organizations, some of them to
a receiver that is gone, and followers read the feeds of others. At the end everything is counted in the database.
"""

import random
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace

from support.databases.databases import connect

from bench import sink
from bench.delivering import wait_for
from bench.feed import follow
from bench.fill import fill_quiet
from bench.load import FRESH, Plan, Request, Result, drive_in_process
from bench.measure import Meter, Reading, Sides, Timing, entry
from bench.processes import HOST
from bench.rush import SEATS, rushing
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
    (rushed,) = service.open_shops(1, len(RUSHES), seats=SEATS)
    fill_quiet(service.database_url, ORGANIZATIONS - selling - 1)
    server = stack.enter_context(service.serve(worker=True, processes=2))
    rush = rushing(server, rushed)

    def part(number: int, pool: ThreadPoolExecutor) -> tuple[Result, Sequence[str]]:
        """Send the requests of a part of the day; return its result, and the failures of its rush."""
        crowd = pool.submit(rush, Timing(0.0, 0.0)) if number in RUSHES else None
        requests = part_requests(shops, number)
        plan = Plan(server.port, requests, CLIENTS, 0.0, SECONDS, rate=len(requests) / SECONDS)
        return drive_in_process(plan), crowd.result().failures if crowd else ()

    def take(_: Timing) -> Reading:
        sink.counted(receiver)  # a request has asked whether it answers
        meter = Meter(server.pid, stage.postgres.pid)
        with ThreadPoolExecutor(2) as pool:
            following = pool.submit(follow, server.port, shops[:FOLLOWED] * FOLLOWERS, LONGEST_S)
            parts = [part(number, pool) for number in range(len(SHARES))]
            wait_for(lambda: _deliveries(service)["waiting"] == 0, "the deliveries")
            reading = meter.reading(whole([result for result, _ in parts]), EXPECTED)
            lost = _lost(service, shops, rushed, parts, following.result().events, sink.counted(receiver)["count"])
        failures = [*reading.failures, *(text for _, texts in parts for text in texts), *lost, *_findings(service)]
        return replace(reading, figures={**reading.figures, **_deliveries(service)}, failures=failures)

    return {"service": take}


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
    """Count the deliveries of the day: those that arrived, those of an endpoint that shows its failures, and others."""
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


def _lost(
    service: Service,
    shops: Sequence[Shop],
    rushed: Shop,
    parts: Sequence[tuple[Result, Sequence[str]]],
    followed: int,
    delivered: int,
) -> list[str]:
    """Compare the counts of clients, followers and the receiver with the database."""
    with connect(service.database_url) as connection:
        rows = connection.execute("SELECT organization_id::text, count(*) FROM bookings GROUP BY 1").fetchall()
    bookings = Counter(dict(rows))
    created = sum(result.statuses.get("201", 0) for result, _ in parts)
    counts = {
        "bookings of the day": (bookings.total() - bookings[rushed.id], created),
        "bookings of the rushes": (bookings[rushed.id], SEATS * len(RUSHES)),
        "events at followers": (followed, FOLLOWERS * sum(bookings[shop.id] for shop in shops[:FOLLOWED])),
        "deliveries at the receiver": (delivered, _deliveries(service)["arrived"]),
    }
    return [f"{name}: {count} instead of {expected}" for name, (count, expected) in counts.items() if count != expected]


def _findings(service: Service) -> list[str]:
    """Return the findings of the doctor, in the seats before all."""
    with closing(Database(service.database_url)) as database:
        return [str(finding) for finding in database.read(doctor.examine)]


ENTRIES = (day,)
