"""The service: a database with organizations, made as the tests make them, and `booking serve` in front of it.

Requests use the public API only.
"""

import json
import sys
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from support.serving.servers import free_port, new_world
from support.world.hooks import Hooks
from support.world.world import HOUR, SECRET, World

from bench.load import FRESH, Request
from bench.processes import HOST, Server, serving
from booking_core.db import migrate
from booking_core.models.events import EventType
from booking_core.models.scopes import Scope

BOOKING = Path(sys.executable).with_name("booking")
SEATS = 1_000_000
"""More than a run can sell: the bench measures bookings, not refusals."""
FIRST_DEPARTURE = 1_925_000_400_000_000
"""2031-01-01 05:00 UTC: an instant in the far future, in microseconds."""
STEP = 6 * HOUR
"""The time between two departures of an organization."""
READING = frozenset(scope for scope in Scope if scope.endswith(":read"))


@dataclass(frozen=True, slots=True)
class Shop:
    """An organization, its key, and the departures for sale."""

    id: str
    api_key: str
    departures: tuple[str, ...] = ()

    @classmethod
    def of(cls, world: World, departures: int, seats: int = SEATS) -> "Shop":
        """Make departures of an organization, and a key."""
        experience = world.experience()
        starts = (FIRST_DEPARTURE + number * STEP for number in range(departures))
        ids = (world.departure(experience, seats=seats, starts_at=start) for start in starts)
        return cls(world.org, world.key(), tuple(ids))

    @property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"}

    def bookings(self, **fields: object) -> list[Request]:
        """Return a booking of one seat on each departure, by a guest who has booked there before, with a fresh key."""
        return [
            self.post("/api/v1/bookings", booking_body(departure, number) | fields)
            for number, departure in enumerate(self.departures)
        ]

    def get(self, path: str) -> Request:
        return Request("GET", path, self.authorization)

    def post(self, path: str, body: dict[str, object]) -> Request:
        return Request("POST", path, self.authorization | {"Idempotency-Key": FRESH}, json.dumps(body))


def bookings_of(shops: Sequence[Shop], **fields: object) -> list[Request]:
    """Return a booking of each departure of the shops."""
    return [request for shop in shops for request in shop.bookings(**fields)]


def booking_body(departure: str, number: int) -> dict[str, object]:
    """Return the body of a client's booking; the floors get the same."""
    return {
        "experience_date_id": departure,
        "guests": [{"tier_id": "adult", "count": 1}],
        "customer": {"name": "Ingrid Solheim", "email": f"guest{number}@example.com", "phone": "+4790000000"},
        "note": "Arrives by the early ferry, needs a large life vest.",
        "payment": "pay_on_site",
    }


class Service:
    """A database of the service, with methods to fill and to serve it."""

    NOWHERE = f"http://{HOST}:40009/hook"
    """For endpoints that get deliveries and are never called: there is no worker."""

    def __init__(self, database_url: str) -> None:
        self.database_url = database_url
        migrate.upgrade(database_url)
        self.env = {
            "BOOKING_DATABASE_URL": database_url,
            "BOOKING_SECRET_KEY": SECRET,
            "BOOKING_SECRET_KEY_CHECK": "warn",  # the rows of a new organization have no sealed value
            "BOOKING_RATE_LIMIT": "off",
            "BOOKING_LOG_FORMAT": "json",
            "BOOKING_WEBHOOK_ALLOW_HTTP": "on",
            "BOOKING_WEBHOOK_ALLOW_CIDRS": "127.0.0.0/8",
        }

    def serve(self, *, worker: bool = False, processes: int = 1) -> AbstractContextManager[Server]:
        """Run `booking serve`, by default without its worker, whose work is another entry."""
        port = free_port()
        return serving(self.command(port, worker=worker, processes=processes), port=port, env=self.env)

    @staticmethod
    def command(port: int, *, worker: bool = False, processes: int = 1) -> list[str]:
        """Return the command line of `booking serve`."""
        workers = ["--workers", str(processes)] if processes > 1 else []
        alone = [] if worker else ["--no-worker"]
        return [str(BOOKING), "serve", "--host", HOST, "--port", str(port), *alone, *workers]

    def open_shops(self, number: int, departures: int, *, urls: Sequence[str] = ()) -> list[Shop]:
        """Make that many organizations."""
        return [self.open_shop(departures, urls=urls) for _ in range(number)]

    def open_shop(self, departures: int, *, seats: int = SEATS, urls: Sequence[str] = ()) -> Shop:
        """Make an organization with departures, and an endpoint for its bookings at each of the addresses."""
        with new_world(self.database_url, staff_email=None) as world:
            for url in urls:
                Hooks(world).endpoint(EventType.BOOKING_CREATED, EventType.BOOKING_CONFIRMED, url=url)
            return Shop.of(world, departures, seats)


def answers(server: Server, requests: Sequence[Request]) -> list[Any]:
    """Return the JSON of several responses, outside of any measurement; each must be a 2xx."""
    results = []
    with httpx.Client(base_url=f"http://{HOST}:{server.port}", timeout=30) as client:
        for request in requests:
            headers = {name: value.replace(FRESH, uuid.uuid4().hex) for name, value in request.headers.items()}
            headers["Content-Type"] = "application/json"
            response = client.request(request.method, request.path, content=request.body, headers=headers)
            if not response.is_success:
                log = server.log.read_text()[-2000:]
                raise RuntimeError(f"{request.path} answers {response.status_code}: {response.text[:500]}\n{log}")
            results.append(response.json())
    return results


def answer(server: Server, request: Request) -> Any:
    """Return the JSON of one response."""
    return answers(server, [request])[0]
