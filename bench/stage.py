"""The databases that the entries of one run share."""

from dataclasses import dataclass
from functools import cache

import psycopg
from support.serving.servers import new_world

from bench import floor_sql, postgres
from bench.fill import fill
from bench.postgres import Postgres
from bench.service import READING, Service, Shop

DEPARTURES = 1280
"""All departures, for any number of organizations: with one organization, bookings contend for its counter, not for a
departure."""
ENDPOINTS = 2
"""For each organization: every booking causes four deliveries."""


@dataclass(frozen=True)
class Stage:
    """The run's PostgreSQL, and the databases in it, each made when it is first needed."""

    postgres: Postgres

    @cache  # noqa: B019 - a stage lives as long as the run
    def shops(self, organizations: int) -> tuple[Service, list[Shop]]:
        """Return the service with that many selling organizations, which share the departures."""
        service = Service(self.postgres.create_database(f"service_{organizations}"))
        urls = [service.NOWHERE] * ENDPOINTS
        shops = service.open_shops(organizations, DEPARTURES // organizations, urls=urls)
        postgres.settle(service.database_url)
        return service, shops

    @cache  # noqa: B019 - a stage lives as long as the run
    def lists(self) -> tuple[Service, Shop]:
        """Return the service with an organization that is filled with bookings, and a key for reading only."""
        service = Service(self.postgres.create_database("lists"))
        with new_world(service.database_url) as world:
            fill(world)
            reader = Shop(world.org, world.key(*READING))
        postgres.settle(service.database_url)
        return service, reader

    @cache  # noqa: B019 - a stage lives as long as the run
    def floor(self, organizations: int) -> str:
        """Return the URL of the one-statement floor's database with that many organizations."""
        url = self.postgres.create_database(f"floor_{organizations}")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(floor_sql.FLOOR_SCHEMA)
            departures = DEPARTURES // organizations
            connection.execute(floor_sql.FILL_FLOOR.format(organizations=organizations, departures=departures))
        postgres.settle(url)
        return url
