"""Our side: the service, set up by its operator commands and started like an operator starts it.

Nothing here depends on the service's internals: `booking` commands and HTTP fill the databases, and requests use the
public API. The operator's manual describes the commands.
"""

import json
import os
import secrets
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from bench.asking import answers
from bench.load import FRESH, Request
from bench.processes import HOST, ROOT, Server, free_port, serving

BOOKING = Path(sys.executable).with_name("booking")
EXAMPLES = ROOT / "examples"
OPERATE_TIMEOUT_S = 600
SELLER = ("--scope", "bookings:write", "--scope", "webhooks:manage")
SEATS = 1_000_000
"""More than a run can sell: the bench measures bookings, not refusals."""
_FIRST = datetime(2031, 1, 1, 6)  # noqa: DTZ001 - wall time of the shop
_STEP = timedelta(hours=6)
"""06:00, 12:00, 18:00 and midnight: an experience starts only once at a time, and no clock change affects these
times."""


@dataclass(frozen=True, slots=True)
class Shop:
    """An organization, its key, and the departures for sale."""

    slug: str
    api_key: str
    departures: tuple[str, ...]

    @property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"}

    def bookings(self) -> list[Request]:
        """Return a booking of one seat on each departure, by a guest who has booked there before, with a fresh key."""
        return [
            Request(
                "POST",
                "/api/v1/bookings",
                self.authorization | {"Idempotency-Key": FRESH},
                json.dumps(booking_body(departure, number)),
            )
            for number, departure in enumerate(self.departures)
        ]

    def get(self, path: str) -> Request:
        return Request("GET", path, self.authorization)


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
        self.env = {
            "BOOKING_DATABASE_URL": database_url,
            "BOOKING_SECRET_KEY": secrets.token_urlsafe(32),
            "BOOKING_RATE_LIMIT": "off",
            "BOOKING_LOG_FORMAT": "json",
            "BOOKING_WEBHOOK_ALLOW_HTTP": "on",
            "BOOKING_WEBHOOK_ALLOW_CIDRS": "127.0.0.0/8",
        }

    def serve(self, processes: int = 1, *, worker: bool = False) -> AbstractContextManager[Server]:
        """Run `booking serve`, by default without its worker, whose work is another entry."""
        port = free_port()
        return serving(self.command(port, processes, worker=worker), port=port, env=self.env)

    @staticmethod
    def command(port: int, processes: int = 1, *, worker: bool = False) -> list[str]:
        """Return the command line of `booking serve`."""
        workers = ["--workers", str(processes)] if processes > 1 else []
        alone = [] if worker else ["--no-worker"]
        return [str(BOOKING), "serve", "--host", HOST, "--port", str(port), *alone, *workers]

    def listen(self, shops: Sequence[Shop], urls: Sequence[str]) -> None:
        """Create an endpoint at each address for each shop, with the events of created and confirmed bookings."""
        types = ["booking.created", "booking.confirmed"]
        wanted = [
            Request("POST", "/api/v1/webhooks", shop.authorization, json.dumps({"url": url, "event_types": types}))
            for shop in shops
            for url in urls
        ]
        with self.serve() as server:
            answers(server, wanted)

    def operate(self, commands: Sequence[Sequence[str]]) -> None:
        """Run `booking` commands one after the other."""
        done = subprocess.run(
            [sys.executable, "-m", "bench.operate"],
            cwd=ROOT,
            env=os.environ | self.env,
            input=json.dumps(commands),
            capture_output=True,
            text=True,
            start_new_session=True,
            timeout=OPERATE_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"an operator command failed:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")

    def open_shops(self, number: int, departures: int, seats: int = SEATS) -> list[Shop]:
        """Create the tables, organizations with `departures` each, and a key for each that may read and book."""
        with tempfile.TemporaryDirectory(prefix="bench-shops-") as name:
            folder = Path(name)
            shops = {f"shop-{at}": tuple(str(uuid.uuid4()) for _ in range(departures)) for at in range(1, number + 1)}
            commands = [["db", "upgrade"]]
            for slug, ids in shops.items():
                catalogue = folder / f"{slug}.json"
                catalogue.write_text(json.dumps(_catalogue(ids, seats)))
                commands += _opening(folder, slug, catalogue, "--all-read", *SELLER)
            self.operate(commands)
            return [Shop(slug, _key(folder, slug), ids) for slug, ids in shops.items()]

    def open_reader(self, slug: str, catalogue: Path | None = None) -> Shop:
        """Create missing tables, and an organization with a key for reading only."""
        with tempfile.TemporaryDirectory(prefix="bench-shops-") as name:
            folder = Path(name)
            self.operate([["db", "upgrade"], *_opening(folder, slug, catalogue, "--all-read")])
            return Shop(slug, _key(folder, slug), ())


def _opening(folder: Path, slug: str, catalogue: Path | None, *scopes: str) -> list[list[str]]:
    """Return the commands that set up an organization. The secret of its key is written to the folder."""
    secret = str(folder / f"{slug}.key")
    commands = [
        ["orgs", "create", "--slug", slug, "--name", slug, "--timezone", "Europe/Oslo", "--currency", "NOK"],
        ["keys", "create", "--org", slug, "--name", "bench", *scopes, "--secret-file", secret],
    ]
    if catalogue:
        commands.append(["catalog", "import", "--org", slug, str(catalogue)])
    return commands


def _key(folder: Path, slug: str) -> str:
    return (folder / f"{slug}.key").read_text().strip()


def _catalogue(departures: Sequence[str], seats: int) -> dict[str, object]:
    price = {"amount_minor": 89000, "currency": "NOK"}
    return {
        "experiences": [
            {
                "slug": "fjord-kayak",
                "title": "Fjord kayak at first light",
                "is_published": True,
                "duration_minutes": 150,
                "price_from": price,
                "price_tiers": [{"id": "adult", "name": "Adult", "price": price, "seats_per_unit": 1}],
                "departures": [
                    {"id": each, "starts_at": f"{_FIRST + at * _STEP:%Y-%m-%dT%H:%M:%S}", "seats_total": seats}
                    | {"status": "open"}
                    for at, each in enumerate(departures)
                ],
            }
        ]
    }
