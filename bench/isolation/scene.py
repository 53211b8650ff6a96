"""The service with two organizations: the offender, and its neighbour, whose operations are measured."""

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from support.databases.databases import connect, is_sqlite
from support.receivers.receivers import Receivers, hang
from support.receivers.smtp import HANG, OK, MailServer, Received
from support.receivers.stripe_ledger import KEY, Fault, Ledger, stripe
from support.world.creating import create, created
from support.world.hooks import Hooks
from support.world.world import DAY, SECRET, FixedClock, World, make_world

from bench.isolation import bulk
from bench.isolation.operations import READS, Neighbour, Operation
from bench.isolation.processes import ServiceProcess, crowd, request
from booking_core.base.clock import system_clock
from booking_core.base.settings import Settings
from booking_core.db.engine import Database
from booking_core.models.events import EventType

DEPARTURES = 30
HANGING = "hangs.example"
"""The mail server never responds about a recipient of this domain."""


@dataclass(frozen=True, slots=True)
class Offender:
    """The organization that misbehaves, with the ids that its requests need."""

    world: World
    key: str
    experience: str
    departures: tuple[str, ...]

    @property
    def departure(self) -> str:
        return self.departures[0]


class Scene:
    """A database with both organizations, the service in front of it, and the servers that the service calls."""

    def __init__(self, url: str, folder: Path, *, cancellations: int, settings: dict[str, Any]) -> None:
        self.url = url
        self.folder = folder
        self._settings = settings
        self._cancellations = cancellations
        self._stack = ExitStack()
        self._service: ServiceProcess | None = None

    @property
    def is_sqlite(self) -> bool:
        return is_sqlite(self.url)

    @property
    def _port(self) -> int:
        assert self._service is not None
        return self._service.port

    # Setting up ------------------------------------------------------------------------------------------------

    def __enter__(self) -> "Scene":
        with ExitStack() as stack:
            self.receivers = stack.enter_context(Receivers())
            self.mail_server = stack.enter_context(MailServer())
            self.ledger: Ledger = stack.enter_context(stripe(rate=1.0, kinds=(Fault.TIMEOUT_AFTER,)))
            self.database = stack.enter_context(contextlib.closing(Database(self.url)))
            stack.callback(self._kill)
            self.offender = self._make_offender()
            self.neighbour = self._make_neighbour()
            stack.callback(self.neighbour.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _make_offender(self) -> Offender:
        world = make_world(
            self.database, FixedClock(system_clock()), notify_staff=False, staff_email=f"staff@{HANGING}"
        )
        experience = world.experience()
        departures = tuple(_departure(world, experience, number) for number in range(8))
        return Offender(world, world.key(), experience, departures)

    def _make_neighbour(self) -> Neighbour:
        world = make_world(self.database, FixedClock(system_clock()), notify_staff=False)
        experience = world.experience()
        departures = [_departure(world, experience, number) for number in range(DEPARTURES)]
        neighbour = Neighbour(world, departures, self._bookings(world, departures))
        receiver = self.receivers.open(neighbour.receive)
        neighbour.endpoint = Hooks(world).endpoint(EventType.BOOKING_CREATED, url=receiver.url)

        def on_recipient(address: str) -> str:
            return HANG if address.endswith(HANGING) else OK

        def on_message(mail: Received) -> str:
            return neighbour.take_mail(mail) if mail.recipient.endswith("quiet.example") else OK

        self.mail_server.on_recipient, self.mail_server.on_message = on_recipient, on_message
        return neighbour

    def _bookings(self, world: World, departures: Sequence[str]) -> list[str]:
        """Make the bookings that the neighbour lists and cancels."""
        quiet: dict[str, Any] = {"send_confirmation_email": False, "notify_staff": False}
        for start in range(0, self._cancellations, 32):
            numbers = range(start, min(start + 32, self._cancellations))
            made = [create(world, departures[n % DEPARTURES], f"prepared-{n:06}", **quiet) for n in numbers]
            created(self.database, made)
        with connect(self.url) as connection:
            found = connection.execute(f"SELECT id FROM bookings WHERE organization_id = '{world.org}'").fetchall()
        return [str(row[0]) for row in found]

    # The service -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the service, and run the neighbour's operations once: the service compiles its statements then."""
        bulk.analyze(self.url)
        self._service = ServiceProcess(self.settings, self.folder / "service.log")
        self.neighbour.connect(self._service.port)
        self.neighbour.measure((*READS, Operation.BOOK, Operation.CANCEL), rounds=1)

    @property
    def settings(self) -> Settings:
        """The settings of an installation, which allow receivers on this machine."""
        usual = Settings(
            database_url=self.url,
            secret_key=SECRET,
            secret_key_check="warn",  # rows created in the database contain no sealed values
            smtp_url=self.mail_server.url,
            mail_from="tours@example.com",
            stripe_api_key=KEY,
            stripe_base_url=self.ledger.base_url,
            webhook_allow_http=True,
            webhook_allow_cidrs=("127.0.0.0/8",),
        )
        return replace(usual, **self._settings)

    def _kill(self) -> None:
        if self._service is not None:
            self._service.kill()
            self._service = None

    # Parts of the offender -------------------------------------------------------------------------------------

    @contextmanager
    def crowd(self, requests: Sequence[bytes], clients: int) -> Iterator[None]:
        """Let clients of the offender call the service while the body runs."""
        with crowd(self._port, requests, clients):
            yield

    def get(self, path: str) -> bytes:
        """Return a rendered request of the offender."""
        return request("GET", f"/api/v1{path}", self.offender.key)

    def send(self, method: str, path: str, body: bytes) -> bytes:
        """Return a rendered request of the offender with a body."""
        return request(method, f"/api/v1{path}", self.offender.key, body)

    def open_hanging_endpoint(self) -> None:
        """Make an endpoint of the offender whose receiver never answers."""
        self.hanging = self.receivers.open(lambda _: hang)
        Hooks(self.offender.world).endpoint(EventType.BOOKING_CREATED, url=self.hanging.url)


def _departure(world: World, experience: str, number: int) -> str:
    return world.departure(experience, seats=100_000, starts_at=world.clock() + (number + 2) * DAY)


@contextmanager
def held(url: str, *statements: str) -> Iterator[None]:
    """Hold the locks of these statements, on SQLite the writer, in a transaction that is open while the body runs."""
    with connect(url) as connection:
        if is_sqlite(url):
            connection.execute("BEGIN IMMEDIATE")
        else:
            connection.autocommit = False
            for statement in statements:
                connection.execute(statement)
        try:
            yield
        finally:
            connection.execute("ROLLBACK")
