"""The servers that the entries of one run share: the database server, filled databases, and sides with servers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import psycopg

from bench import floor_sql, postgres
from bench.fill import fill
from bench.filling import Amounts
from bench.load import Plan, Request
from bench.measure import HttpSide
from bench.postgres import Postgres
from bench.processes import Server
from bench.service import EXAMPLES, Service, Shop

CLIENTS = 32
DEPARTURES = 1280
"""All departures, for any number of organizations: with one organization, bookings contend for its counter, not for a
departure."""
LISTED_BOOKINGS = 20_000
"""The bookings of the lists. The first page costs the same for any number; `deep` verifies that."""
MANY_BOOKINGS, MANY_QUICK = 1_000_000, 40_000
"""The bookings of the list with the deep page; the second number is for a quick run."""
FILLED = "filled"
EXAMPLE = "fjord-tours"


@dataclass(slots=True)
class Stage:
    """The run's PostgreSQL, and the databases in it."""

    postgres: Postgres
    quick: bool
    _open: dict[tuple[int, int], tuple[Service, list[Shop]]] = field(default_factory=dict)
    _lists: tuple[Service, dict[str, Shop], str] | None = None
    _many: tuple[Service, Shop, str] | None = None
    _floors: dict[int, str] = field(default_factory=dict)

    def shops(self, organizations: int, endpoints: int = 0) -> tuple[Service, list[Shop]]:
        """Return the service with that many selling organizations, which share the departures.

        With `endpoints` each has so many of them, which subscribe to its bookings.
        """
        at = organizations, endpoints
        if at not in self._open:
            url = self.postgres.create_database(f"service_{organizations}_{endpoints}")
            service = Service(url)
            shops = service.open_shops(organizations, DEPARTURES // organizations)
            if endpoints:
                service.listen(shops, [service.NOWHERE] * endpoints)
            postgres.settle(url)
            self._open[at] = service, shops
        return self._open[at]

    def lists(self) -> tuple[Service, dict[str, Shop], str]:
        """Return the service with two organizations for reading: one filled with bookings, one with the example
        catalogue.
        """
        if self._lists is None:
            url = self.postgres.create_database("lists")
            service = Service(url)
            readers = {
                FILLED: service.open_reader(FILLED),
                EXAMPLE: service.open_reader(EXAMPLE, EXAMPLES / f"{EXAMPLE}.json"),
            }
            fill(url, FILLED, Amounts(LISTED_BOOKINGS))
            self._lists = service, readers, url
        return self._lists

    @property
    def many_bookings(self) -> int:
        """The bookings of the list with the deep page."""
        return MANY_QUICK if self.quick else MANY_BOOKINGS

    def many(self) -> tuple[Service, Shop, str]:
        """Return the service with the organization of the deep page."""
        if self._many is None:
            bookings = self.many_bookings
            url = self.postgres.create_database("many")
            service = Service(url)
            reader = service.open_reader(FILLED)
            fill(url, FILLED, Amounts(bookings, departures=bookings // 10, has_events=False))
            self._many = service, reader, url
        return self._many

    def floor(self, organizations: int) -> str:
        """Return the URL of the one-statement floor's database with that many organizations."""
        if organizations not in self._floors:
            url = self.postgres.create_database(f"floor_{organizations}")
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(floor_sql.FLOOR_SCHEMA)
                each = DEPARTURES // organizations
                connection.execute(floor_sql.FILL_FLOOR.format(organizations=organizations, departures=each))
            postgres.settle(url)
            self._floors[organizations] = url
        return self._floors[organizations]

    def side(
        self,
        name: str,
        server: Server,
        requests: Sequence[Request],
        expected: frozenset[str] = frozenset({"200"}),
        *,
        database: bool = True,
        clients: int = CLIENTS,
    ) -> HttpSide:
        """Return a server under the load client; `database` is true if it uses the run's PostgreSQL."""
        plan = Plan(server.port, requests, clients)
        return HttpSide(name, plan, server.pid, self.postgres.pid if database else None, expected)


def organization(url: str, slug: str) -> str:
    """Return the organization's id: a floor gets it instead of a key."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT id::text FROM organizations WHERE slug = %s", [slug]).fetchone()
    assert row is not None
    return str(row[0])
