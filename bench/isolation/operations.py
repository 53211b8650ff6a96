"""The operations of the neighbour, with their times and failures while the offender misbehaves."""

import http.client
import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import orjson
from support.databases.databases import connect
from support.receivers.receivers import OK as ACCEPT
from support.receivers.receivers import Answer, Receipt
from support.receivers.smtp import OK as TAKE
from support.receivers.smtp import Received
from support.world.operations import Operations
from support.world.world import World

from bench.isolation.processes import HOST
from booking_core.base.clock import system_clock

PATIENCE_S = 20.0
"""An answer, a delivery, a mail or an expiry that takes longer counts as missing: it waits for a misbehaviour."""
LOOK_AGAIN_S = 0.01
LOG_AGAIN_S = 0.1
"""The same for a poll that is a request, which counts against the rate limit."""


class Operation(StrEnum):
    """The operations of the neighbour; the last three are measured from the response to one of its requests."""

    ME = "me"
    LIST = "list"
    AVAILABILITY = "availability"
    BOOK = "book"
    CANCEL = "cancel"
    DELIVERY = "delivery"
    """From the booking's answer to the request at the neighbour's webhook receiver."""
    MAIL = "mail"
    """From the booking's answer to the guest's mail at the mail server."""
    EXPIRY = "expiry"
    """From the expiry of an unpaid checkout to its cancellation, which releases the seats."""


READS = (Operation.ME, Operation.LIST, Operation.AVAILABILITY)
USUAL = tuple(operation for operation in Operation if operation is not Operation.EXPIRY)


@dataclass(slots=True)
class Measured:
    """The measurements of each operation, and the failures that a well-behaved organization must never see."""

    seconds: dict[Operation, list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, operation: Operation, seconds: float) -> None:
        self.seconds.setdefault(operation, []).append(seconds)


class Neighbour:
    """An organization with bookings, a webhook endpoint and guests, and a client that calls for it."""

    def __init__(self, world: World, departures: list[str], to_cancel: list[str]) -> None:
        self.world = world
        self.endpoint = ""
        self.key = world.key()
        self._departures = itertools.cycle(departures)
        self._to_cancel = deque(to_cancel)
        check_out = Operations(world).check_out
        self._unpaid = [check_out(departures[0], email=f"late{n}@quiet.example")["id"] for n in range(2)]
        self._numbers = itertools.count()
        self._connection: http.client.HTTPConnection | None = None
        self._lock = threading.Lock()
        self._delivered: dict[str, list[float]] = {}
        self._mailed: dict[str, list[float]] = {}

    # Received --------------------------------------------------------------------------------------------------

    def receive(self, receipt: Receipt) -> Answer:
        """Record a delivery, and accept it."""
        at, booking_id = time.perf_counter(), orjson.loads(receipt.body)["data"]["object"].get("id", "")
        with self._lock:
            self._delivered.setdefault(booking_id, []).append(at)
        return ACCEPT

    def take_mail(self, mail: Received) -> str:
        """Record a mail, and accept it."""
        with self._lock:
            self._mailed.setdefault(mail.recipient, []).append(time.perf_counter())
        return TAKE

    # Requests --------------------------------------------------------------------------------------------------

    def connect(self, port: int) -> None:
        """Call the service at this port from here on."""
        self.close()
        self._connection = http.client.HTTPConnection(HOST, port, timeout=PATIENCE_S)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    def measure(self, operations: Collection[Operation], *, rounds: int, patience_s: float = PATIENCE_S) -> Measured:
        """Run all operations round by round, then wait for their deliveries, mails and expiries."""
        measured = Measured()
        booked: dict[str, tuple[str, float]] = {}
        expiring = self._begin_expiry() if Operation.EXPIRY in operations else None
        for _ in range(rounds):
            self._round(operations, measured, booked)
        self._await_consequences(operations, measured, booked, patience_s)
        if expiring:
            self._await_expiry(*expiring, measured, patience_s)
        self._to_cancel.extend(booked)  # a cancellation no longer affects their mails, which were sent
        return measured

    def _round(
        self, operations: Collection[Operation], measured: Measured, booked: dict[str, tuple[str, float]]
    ) -> None:
        today = time.strftime("%Y-%m-%d", time.gmtime())
        paths = {
            Operation.ME: "/me",
            Operation.LIST: "/bookings",
            Operation.AVAILABILITY: f"/availability?from={today}",
        }
        for operation, path in paths.items():
            if operation in operations:
                self._call(operation, "GET", path, None, measured)
        if Operation.BOOK in operations:
            email = f"guest{next(self._numbers)}@quiet.example"
            made = self._call(Operation.BOOK, "POST", "/bookings", self._booking(email), measured)
            if made:
                booked[made["id"]] = email, time.perf_counter()
        if Operation.CANCEL in operations:
            self._call(Operation.CANCEL, "POST", f"/bookings/{self._to_cancel.popleft()}/cancel", {}, measured)

    def _booking(self, email: str) -> dict[str, Any]:
        return {
            "experience_date_id": next(self._departures),
            "guests": [{"tier_id": "adult", "count": 1}],
            "customer": {"name": "Ada Lovelace", "email": email},
            "payment": "pay_on_site",
        }

    def _call(self, operation: Operation, method: str, path: str, body: Any, measured: Measured) -> Any:
        """Send a request and record its time; return the response body if it succeeded."""
        assert self._connection is not None
        headers = {"Authorization": f"Bearer {self.key}"}
        if body is not None:
            headers |= {"Content-Type": "application/json", "Idempotency-Key": f"{self.world.org}-{time.time_ns()}"}
        sent = time.perf_counter()
        try:
            content = None if body is None else orjson.dumps(body)
            self._connection.request(method, f"/api/v1{path}", body=content, headers=headers)
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            measured.failures.append(f"{operation}: no answer ({type(error).__name__})")
            measured.add(operation, time.perf_counter() - sent)
            return None
        measured.add(operation, time.perf_counter() - sent)
        if answer.status >= 300:
            measured.failures.append(f"{operation}: answered {answer.status} {content[:120]!r}")
            return None
        return orjson.loads(content)

    # Results ---------------------------------------------------------------------------------------------------

    def _await_consequences(
        self,
        operations: Collection[Operation],
        measured: Measured,
        booked: dict[str, tuple[str, float]],
        patience_s: float,
    ) -> None:
        wanted = []
        if Operation.DELIVERY in operations:
            wanted += [(Operation.DELIVERY, self._delivered, key, at) for key, (_, at) in booked.items()]
        if Operation.MAIL in operations:
            wanted += [(Operation.MAIL, self._mailed, email, at) for email, at in booked.values()]
        until = time.perf_counter() + patience_s
        while any(key not in seen for _, seen, key, _ in wanted) and time.perf_counter() < until:
            time.sleep(LOOK_AGAIN_S)
        missing: Counter[Operation] = Counter()
        for operation, seen, key, at in wanted:
            times = seen.get(key, [])
            missing[operation] += not times
            measured.add(operation, max(0.0, times[0] - at) if times else time.perf_counter() - at)
            if len(times) > 1:
                measured.failures.append(f"{operation}: sent {len(times)} times")
        measured.failures += [
            f"{name}: {count} missing after {patience_s:g} s" for name, count in missing.items() if count
        ]
        if Operation.DELIVERY in operations and not missing[Operation.DELIVERY]:
            self._await_records(measured, until)

    def _await_records(self, measured: Measured, until: float) -> None:
        """Wait until the log shows each delivery as received: without the record it would be sent again."""
        while (queued := self._queued()) and time.perf_counter() < until:
            time.sleep(LOG_AGAIN_S)
        if queued:
            measured.failures.append(f"delivery: {queued} received and not recorded")

    def _queued(self) -> int:
        """Return the number of queued deliveries in the log, at most a page."""
        path = f"/webhooks/{self.endpoint}/deliveries?status=queued"
        log = self._call(Operation.DELIVERY, "GET", path, None, apart := Measured())
        assert log is not None, apart.failures
        return len(log["data"])

    def _begin_expiry(self) -> tuple[str, float]:
        """Let an unpaid checkout expire now."""
        booking_id = self._unpaid.pop()
        with connect(self._url) as connection:
            connection.execute(f"UPDATE bookings SET expires_at = {system_clock()} WHERE id = '{booking_id}'")
        return booking_id, time.perf_counter()

    def _await_expiry(self, booking_id: str, since: float, measured: Measured, patience_s: float) -> None:
        until = time.perf_counter() + patience_s
        with connect(self._url) as connection:
            status = f"SELECT status FROM bookings WHERE id = '{booking_id}'"
            while connection.execute(status).fetchone()[0] == "pending":
                if time.perf_counter() > until:
                    measured.failures.append(f"expiry: the seats were not given back within {patience_s:g} s")
                    break
                time.sleep(LOOK_AGAIN_S)
        measured.add(Operation.EXPIRY, time.perf_counter() - since)

    @property
    def _url(self) -> str:
        return self.world.database.url.render_as_string(hide_password=False)
