"""Two organizations of one service: the offender, and its neighbour, whose operations are measured."""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import chain, islice

import orjson
from support.databases.databases import connect, is_sqlite
from support.receivers.receivers import OK as ACCEPT
from support.receivers.receivers import Answer, Receipt, Receivers
from support.receivers.smtp import HANG, OK, MailServer, Received
from support.serving.servers import new_world
from support.world.hooks import Hooks
from support.world.operations import Operations

from bench.delivering import QUIET
from bench.load import FRESH, Plan, Request, drive_in_process, percentile, sending, sent_at
from bench.measure import Reading
from bench.processes import GIVE_UP_S, wait_for
from bench.service import Service, Shop, answer, answers
from booking_core.base.clock import system_clock
from booking_core.models.events import EventType

ROUNDS = 60
"""The requests of each operation."""
MEASUREMENTS = 3
"""The first one loads everything; another is without the misbehaviour, and one beside it."""
LONGEST_S = 60.0
"""The time for all of them."""
PATIENCE_S = 20.0
"""A delivery, a mail or an expiry that takes longer is missing: it waits for a misbehaviour."""
READY_S = 1.0
"""The time until a crowd is connected."""
MEASURED, HANGING = "measured.example", "hangs.example"
"""The domains of the guests whose bookings are measured, and of mails that the mail server never answers."""
READS = {"me": "/me", "list": "/bookings", "availability": "/availability?from=2031-01-01"}
ANSWERED = frozenset({"200", "201"})


class Scene:
    """The service with its worker, both organizations, and the servers that the service calls."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self.url, self.is_sqlite = url, is_sqlite(url)
        self._lags: dict[str, dict[str, list[float]]] = {}
        service = Service(url)
        self.receivers = stack.enter_context(Receivers())
        service.env |= self._mail_settings(stack.enter_context(MailServer()))
        self.offender = stack.enter_context(new_world(url, staff_email=f"staff@{HANGING}"))
        self.shop = Shop.of(self.offender, 1)
        neighbour = stack.enter_context(new_world(url, staff_email=None))
        self._neighbour = Shop.of(neighbour, ROUNDS)
        check_out = Operations(neighbour).check_out
        self._unpaid = [check_out(departure)["id"] for departure in self._neighbour.departures[:MEASUREMENTS]]
        hook = Hooks(neighbour).endpoint(EventType.BOOKING_CREATED, url=self.receivers.open(self._receive).url)
        self._queued = self._neighbour.get(f"/api/v1/webhooks/{hook}/deliveries?status=queued")
        self.server = stack.enter_context(service.serve(worker=True))
        bookings = answers(self.server, self._neighbour.bookings(**QUIET) * MEASUREMENTS)
        paths = (f"/api/v1/bookings/{booking['id']}/cancel" for booking in bookings)
        self._cancellations = (self._neighbour.post(path, {}) for path in paths)
        self.measure(writes=True)  # everything is loaded once

    def _mail_settings(self, server: MailServer) -> dict[str, str]:
        server.on_recipient = lambda address: HANG if address.endswith(HANGING) else OK
        server.on_message = self._take_mail
        return {"BOOKING_SMTP_URL": server.url, "BOOKING_MAIL_FROM": "tours@example.com"}

    @contextmanager
    def crowd(self, requests: Sequence[Request], clients: int) -> Iterator[None]:
        """Let clients of the offender send requests while the block runs."""
        with sending(Plan(self.server.port, requests, clients, 0.0, GIVE_UP_S)):
            time.sleep(READY_S)
            yield

    # Arrivals for the neighbour --------------------------------------------------------------------------------

    def _receive(self, receipt: Receipt) -> Answer:
        self._record("delivery", orjson.loads(receipt.body)["data"]["object"]["customer"]["email"])
        return ACCEPT

    def _take_mail(self, mail: Received) -> str:
        self._record("mail", mail.recipient)
        return OK

    def _record(self, name: str, email: str) -> None:
        """Record the time from the sending of a booking to now."""
        fresh, _, domain = email.partition("@")
        if domain == MEASURED:
            self._lags[name][fresh].append(time.time() - sent_at(fresh))

    # Measurements ----------------------------------------------------------------------------------------------

    def measure(self, *, writes: bool) -> Reading:
        """Send the requests of the neighbour, one at a time, and wait for their deliveries, mails and expiry."""
        self._lags = {"delivery": defaultdict(list), "mail": defaultdict(list)}
        requests = {name: [self._neighbour.get(f"/api/v1{path}")] for name, path in READS.items()}
        if writes:
            guest = {"name": "Ada Lovelace", "email": f"{FRESH}@{MEASURED}"}
            requests["book"] = self._neighbour.bookings(customer=guest)
            requests["cancel"] = list(islice(self._cancellations, ROUNDS))
        plan = Plan(self.server.port, (), 1, 0.0, LONGEST_S, max_requests=ROUNDS)
        results = {name: drive_in_process(replace(plan, requests=sent)) for name, sent in requests.items()}
        figures = {f"{name} ms": result.p50_ms for name, result in results.items()}
        failures = [f"{name}: {text}" for name, result in results.items() for text in result.failures(ANSWERED)]
        if writes:
            failures += self._missing(results["book"].statuses.get("201", 0))
            for name, lags in self._lags.items():
                figures[f"{name} ms"] = percentile(sorted(chain.from_iterable(lags.values())), 0.5) * 1e3
            figures["expiry ms"] = self._expiry_s() * 1e3
        return Reading(figures, failures)

    def _missing(self, bookings: int) -> list[str]:
        """Wait until each booking's delivery and mail has arrived once, and each delivery is recorded as sent; without
        the record it would be sent again."""

        def have_arrived() -> bool:
            return all(len(lags) == bookings for lags in self._lags.values()) and not self._unrecorded()

        with suppress(TimeoutError):  # the missing ones are counted
            wait_for(have_arrived, "deliveries and mails", PATIENCE_S)
        once = {name: sum(len(times) == 1 for times in lags.values()) for name, lags in self._lags.items()}
        failures = [f"{name}: {count} of {bookings} once" for name, count in once.items() if count != bookings]
        return failures + [f"delivery: {count} not recorded" for count in [self._unrecorded()] if count]

    def _unrecorded(self) -> int:
        return len(answer(self.server, self._queued)["data"])

    def _expiry_s(self) -> float:
        """Let an unpaid checkout expire, and measure the time until it is cancelled, which releases its seats."""
        booking_id, began = self._unpaid.pop(), time.perf_counter()
        with connect(self.url) as connection:
            connection.execute(f"UPDATE bookings SET expires_at = {system_clock()} WHERE id = '{booking_id}'")
            status = f"SELECT status FROM bookings WHERE id = '{booking_id}'"
            wait_for(lambda: connection.execute(status).fetchone() != ("pending",), "an expiry", PATIENCE_S)
        return time.perf_counter() - began
