"""Writes the tables of the page about capacity: the costs that `scripts.costs` measured, and the needs of a year.

    python -m scripts.capacity        # writes docs/guides/operators/capacity.md

The assumptions about a year are those of the bench's day (`bench/day.py`) and of this module.
"""

import json
import re
from collections.abc import Iterable, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from bench.day import BOOKINGS_A_YEAR, BUSIEST_DAY, READS, SHARES

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "operators" / "capacity.md"
COSTS = Path(__file__).with_name("costs.json")
HOUR = max(SHARES) / 3
"""The share of the busiest hour in its day."""
MIX = {"a day of availability, 25 departures": 4, "a page of 25 bookings": 1, "the caller's organization (GET /me)": 1}
"""The reads, by their weight."""
DELIVERIES = 2
"""For each booking: an endpoint of each organization gets its two events."""
POLLS = 0.01
"""Polls a second of each organization: one of a hundred follows its feed, and asks once a second."""
RESERVE = 2
"""The cores to have, as a multiple of those that are busy in the busiest hour."""
RETENTION = 30 / 365
"""The part of a year after which deliveries are deleted."""
ORGANIZATION_BYTES = 2_000
OF_PROCESS, OF_WORKER = 29, 12
"""Connections at most."""
BOOKING, POLL, DELIVERY = "a booking, alone", "a poll of the feed without news", "a delivery"
"""At the rates of a year most bookings come alone."""
SIZES = (10, 1_000, 100_000)

Costs = dict[str, Any]


def main() -> None:
    """Write the tables into the page."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def written(page: str) -> str:
    """Return the page with the tables of the measured costs. A table follows a comment with its name."""
    costs = json.loads(COSTS.read_text(encoding="utf-8"))
    for table in (measured, sqlite, assumptions, needs, limits):
        pattern = re.compile(rf"(?<=<!-- table: {table.__name__} -->\n\n).*?(?=\n\n)", re.DOTALL)
        page, count = pattern.subn("\n".join(table(costs)), page)
        if count != 1:
            raise ValueError(f"the page has {count} tables {table.__name__}")
    return page


def measured(costs: Costs) -> Iterable[str]:
    """Return the costs of operations on PostgreSQL; a ratio is to the CPU of a bare statement."""
    bare = {name: costs["bare"][name] for name in ("server_us", "database_us")}
    yield from head("operation", "CPU of the service", "CPU of PostgreSQL", "statements", "WAL", "tables and indexes")
    yield row("a bare statement", *(f"{value:.0f} µs" for value in bare.values()), "1", "", "")
    for name, cost in costs["postgresql"].items():
        cpu = [f"{cost[part]:,.0f} µs, {cost[part] / bare[part]:.1f} ×" for part in bare]
        statements = f"{cost['statements']:.1f}" if cost["statements"] else ""
        yield row(name, *cpu, statements, size(cost["wal_bytes"]), size(cost["row_bytes"]))


def sqlite(costs: Costs) -> Iterable[str]:
    """Return the costs of operations on SQLite, whose CPU is that of the service."""
    yield from head("operation on SQLite", "CPU of the service", "file")
    for name, cost in costs["sqlite"].items():
        yield row(name, f"{cost['server_us']:,.0f} µs", size(cost["row_bytes"]))


def limits(costs: Costs) -> Iterable[str]:
    """Return the operations that a core can do in a second."""
    yield from head("operation", "in one process", "for each core of PostgreSQL")
    for name, cost in costs["postgresql"].items():
        rates = (f"{1e6 / cost[part]:,.0f}/s" for part in ("server_us", "database_us"))
        yield row(name, *rates)


def assumptions(_: Costs) -> Iterable[str]:
    """Return the assumptions of the needs of a year."""
    yield from head("assumption", "")
    yield row("bookings of an organization in a year", f"{BOOKINGS_A_YEAR:,}")
    yield row("the busiest day", f"{BUSIEST_DAY:g} × the mean")
    yield row("its busiest hour", f"{HOUR:.0%} of the day")
    yield row("requests that only read, for each booking", str(READS))
    yield from (row(f"of {sum(MIX.values())} reads: {name}", str(weight)) for name, weight in MIX.items())
    yield row("deliveries of webhooks, for each booking", str(DELIVERIES))
    yield row("polls of the feed", f"{POLLS:g} a second for each organization")
    yield row("reserve", f"{RESERVE} × the busy cores")
    yield row("retention of deliveries", f"{RETENTION * 365:g} days")
    yield row("an organization without sales", size(ORGANIZATION_BYTES))


def rates(organizations: int) -> dict[str, float]:
    """Return the operations a second in the busiest hour of the busiest day."""
    bookings = organizations * BOOKINGS_A_YEAR / 365 * BUSIEST_DAY * HOUR / 3600
    reads = {name: bookings * READS * part / sum(MIX.values()) for name, part in MIX.items()}
    return {BOOKING: bookings, **reads, DELIVERY: bookings * DELIVERIES, POLL: organizations * POLLS}


def cores(costs: Costs, organizations: int, part: str) -> float:
    """Return the cores that are busy in the busiest hour."""
    operations = costs["postgresql"]
    return sum(rate * operations[name][part] for name, rate in rates(organizations).items()) / 1e6


def disk(costs: Costs, organizations: int) -> float:
    """Return the bytes of tables and indexes after a year."""
    operations, bookings = costs["postgresql"], organizations * BOOKINGS_A_YEAR
    deliveries = bookings * DELIVERIES * RETENTION * operations[DELIVERY]["row_bytes"]
    return bookings * operations[BOOKING]["row_bytes"] + deliveries + organizations * ORGANIZATION_BYTES


def wal(costs: Costs, organizations: int) -> float:
    """Return the bytes of WAL of the busiest day."""
    operations, bookings = costs["postgresql"], organizations * BOOKINGS_A_YEAR / 365 * BUSIEST_DAY
    return bookings * (operations[BOOKING]["wal_bytes"] + DELIVERIES * operations[DELIVERY]["wal_bytes"])


def processes(costs: Costs, organizations: int) -> int:
    """Return the processes of the service: one for each core that it needs, and two in any case."""
    return max(2, ceil(RESERVE * cores(costs, organizations, "server_us")))


def needs(costs: Costs) -> Iterable[str]:
    """Return the needs of a year of some numbers of organizations."""
    lines = {
        "bookings in the year": [f"{count * BOOKINGS_A_YEAR:,}" for count in SIZES],
        "in the busiest hour: bookings": [per_second(rates(count)[BOOKING]) for count in SIZES],
        "reads": [per_second(rates(count)[BOOKING] * READS) for count in SIZES],
        "deliveries": [per_second(rates(count)[DELIVERY]) for count in SIZES],
        "polls of followers": [per_second(rates(count)[POLL]) for count in SIZES],
        "busy cores of the service and its worker": [f"{cores(costs, count, 'server_us'):.2f}" for count in SIZES],
        "busy cores of PostgreSQL": [f"{cores(costs, count, 'database_us'):.2f}" for count in SIZES],
        "processes, with as many cores": [str(processes(costs, count)) for count in SIZES],
        "connections at most": [str(processes(costs, count) * OF_PROCESS + OF_WORKER) for count in SIZES],
        "disk after the year": [size(disk(costs, count)) for count in SIZES],
        "WAL of the busiest day": [size(wal(costs, count)) for count in SIZES],
    }
    yield from head("organizations", *(f"{count:,}" for count in SIZES))
    yield from (row(name, *values) for name, values in lines.items())


def head(*names: str) -> tuple[str, str]:
    """Return the first two lines of a table whose figures are on the right."""
    return row(*names), "|---|" + "---:|" * (len(names) - 1)


def row(*cells: str) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(cells)} |".replace("|  ", "| ")


def size(count: float) -> str:
    """Return a number of bytes in its largest unit; nothing for less than a hundredth of a kilobyte."""
    units: Sequence[tuple[str, float]] = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
    name, unit = next((entry for entry in units if count >= entry[1]), units[-1])
    return f"{count / unit:.{0 if count >= 100 * unit else 1}f} {name}" if count >= 50 else ""


def per_second(rate: float) -> str:
    """Return a rate with two digits that count."""
    return f"{rate:,.0f}/s" if rate >= 10 else f"{float(f'{rate:.2g}'):g}/s"


if __name__ == "__main__":
    main()
