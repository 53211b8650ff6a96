"""The service with two organizations: the offender, and its neighbour, whose operations are measured."""

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from support.creating import create, created
from support.databases import connect, is_sqlite
from support.hooks import Hooks
from support.receivers import Answer, Receipt, Receiver, Receivers
from support.smtp import HANG, OK, MailServer, Received
from support.stripe_ledger import KEY, Fault, Ledger, stripe
from support.world import DAY, SECRET, FixedClock, World, make_world

from booking_core.base.clock import system_clock
from booking_core.base.settings import Settings
from booking_core.db.engine import Database
from booking_core.models.events import EventType
from isolation import bulk
from isolation.operations import READS, Effort, Neighbour, Operation
from isolation.processes import Crowd, Plant, ServiceProcess, crowd, request

DEPARTURES = 30
HANGING = "hangs.example"
"""The mail server never responds about a recipient of this domain."""
FIRST_REQUESTS = Effort(rounds=1, budget_s=20.0, patience_s=0.0)
"""The first operations, during which the service compiles its statements."""
_QUEUES = ("effects", "mails", "deliveries", "attempts", "webhook_leases", "refunds")


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
    """A database with both organizations, the service in front of it, and the servers that the service calls.

    Args:
        is_full: misbehave at full size; otherwise at the size that still shows each defect.
    """

    def __init__(self, url: str, folder: Path, *, is_full: bool, cancellations: int, settings: dict[str, Any]) -> None:
        self.url = url
        self.folder = folder
        self.is_full = is_full
        self._settings = settings
        self._cancellations = cancellations
        self._stack = ExitStack()
        self._service: ServiceProcess | None = None
        self._plants: tuple[Plant, ...] = ()
        self.answers: Counter[str] = Counter()
        """The statuses of the responses to the offender."""

    @property
    def is_sqlite(self) -> bool:
        return is_sqlite(self.url)

    @property
    def port(self) -> int:
        assert self._service is not None
        return self._service.port

    @property
    def service(self) -> ServiceProcess:
        assert self._service is not None
        return self._service

    def size(self, full: int, reduced: int) -> int:
        """Return the size of a misbehaviour in this run."""
        return full if self.is_full else reduced

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

    def start(self, plants: Sequence[Plant] = ()) -> None:
        """Start or restart the service."""
        self._plants = tuple(plants)
        bulk.analyze(self.url)
        self.restart()

    def restart(self) -> None:
        """Restart the service in the middle of its work, and wait until it responds."""
        self._kill()
        self._service = ServiceProcess(self.settings, self.folder / "service.log", self._plants)
        self.neighbour.connect(self._service.port)
        self.neighbour.measure(FIRST_REQUESTS, (*READS, Operation.BOOK, Operation.CANCEL))

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

    def forget_queues(self) -> None:
        """Delete the offender's queues and endpoints."""
        self._kill()
        org = self.offender.world.org
        with connect(self.url) as connection:
            for table in _QUEUES:
                connection.execute(f"DELETE FROM {table} WHERE organization_id = '{org}'")
            connection.execute(
                f"UPDATE webhook_endpoints SET status = 'disabled', deleted_at = {system_clock()}"
                f" WHERE organization_id = '{org}' AND deleted_at IS NULL"
            )
            connection.execute(
                f"UPDATE organizations SET timezone = 'Europe/Oslo', notify_staff = false WHERE id = '{org}'"
            )

    # Parts of the offender -------------------------------------------------------------------------------------

    def crowd(self, requests: Sequence[bytes], clients: int, **options: Any) -> AbstractContextManager[Any]:
        """Let clients of the offender call the service while the body runs."""
        return self._counted(Crowd(tuple(requests), clients, **options))

    @contextmanager
    def _counted(self, plan: Crowd) -> Iterator[None]:
        with crowd(self.port, plan) as statuses:
            yield
        self.answers.update(statuses)

    def get(self, path: str) -> bytes:
        """Return a rendered request of the offender."""
        return request("GET", f"/api/v1{path}", self.offender.key)

    def send(self, method: str, path: str, body: bytes) -> bytes:
        """Return a rendered request of the offender with a body."""
        return request(method, f"/api/v1{path}", self.offender.key, body)

    def endpoint(self, answers: "Answer | None" = None, **columns: Any) -> str:
        """Make an endpoint of the offender; without an answer no server listens at its address."""
        url = self.receiver(answers).url if answers else "http://127.0.0.1:9/hook"
        hooks = Hooks(self.offender.world)
        return hooks.endpoint(EventType.BOOKING_CREATED, **({"url": url} | columns))

    def receiver(self, answers: Answer) -> Receiver:
        """Open a receiver that gives every delivery this answer."""

        def choose(_: Receipt) -> Answer:
            return answers

        return self.receivers.open(choose)


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
