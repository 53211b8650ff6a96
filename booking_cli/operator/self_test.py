"""The self-test of `booking demo --once`: a service and a webhook receiver in this process, with HTTP between them.

A step is a function that returns its result in a few words, or raises `StepFailed`. The first failed step ends the
self-test. The service and the receiver are stopped in any case.
"""

import contextlib
import http.client
import json
import logging
import queue
import secrets
import socket
import socketserver
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import uvicorn

from booking_cli.framework.context import Cli
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.operator import secret_keys, service, storage
from booking_cli.operator.catalog_import import read_document
from booking_cli.operator.demo_organizations import (
    HOST,
    LEAD_DAYS,
    WINDOW_DAYS,
    DemoOrganization,
    booking_request,
    create_with_catalogue,
)
from booking_core.base.clock import HOUR
from booking_core.base.context import Organization
from booking_core.base.settings import Settings
from booking_core.catalogue import catalog
from booking_core.db.engine import Database
from booking_core.models.events import EventType
from booking_core.models.money import Money
from booking_core.models.scopes import Scope
from booking_core.organizations import keys
from booking_core.upkeep import doctor
from booking_server.app import create_app
from booking_server.http.protocol import HttpProtocol
from webhook_verify import VerifiedDelivery, Verifier, WebhookVerificationError

log = logging.getLogger("booking.demo")

COLUMNS = ("step", "asked", "answer", "ok")

BOOKED = (EventType.BOOKING_CREATED, EventType.BOOKING_CONFIRMED)
CANCELLED = (EventType.BOOKING_CANCELLED,)

_TIMEOUT_S = 20
"""For a response or a delivery. Each takes some milliseconds, and longer on a busy machine."""
_DEPARTS_AT = "06:10"
"""A time that a catalogue is unlikely to have."""


class StepFailed(Exception):
    """A step had another result than expected. The message is that result, in a few words."""


class Response(NamedTuple):
    """A response of the service."""

    status: int
    headers: Any
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


class Receiver(socketserver.ThreadingTCPServer):
    """A webhook receiver that verifies each delivery and puts it into a queue."""

    allow_reuse_address = True
    verifier: Verifier | None = None
    """None until the endpoint is registered, since the response holds the secret."""

    def __init__(self) -> None:
        super().__init__((HOST, 0), _Delivery)
        self.arrived: queue.SimpleQueue[VerifiedDelivery | WebhookVerificationError] = queue.SimpleQueue()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}/"


class _Delivery(BaseHTTPRequestHandler):
    """Handles a request to the receiver."""

    server: Receiver
    timeout = _TIMEOUT_S

    def do_POST(self) -> None:
        assert self.server.verifier is not None
        body, headers = self.rfile.read(int(self.headers["Content-Length"])), self.headers.items()
        try:
            arrived: VerifiedDelivery | WebhookVerificationError = self.server.verifier.verify(body, headers)
        except WebhookVerificationError as error:
            arrived = error
        self.send_response(400 if isinstance(arrived, WebhookVerificationError) else 204)
        self.end_headers()
        self.server.arrived.put(arrived)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        """Log nothing."""


@dataclass
class State:
    """The state that the steps share."""

    database: Database
    organization: Organization
    key: str
    connection: http.client.HTTPConnection
    receiver: Receiver
    endpoint_id: str = ""
    booking_request_body: dict[str, Any] = field(default_factory=dict)
    """The body of the booking request."""
    idempotency_key: str = field(default_factory=lambda: f"demo-{secrets.token_hex(8)}")
    booked: Response | None = None
    received: list[VerifiedDelivery] = field(default_factory=list)

    @property
    def booking_id(self) -> str:
        assert self.booked is not None
        return str(self.booked.json["id"])

    def call(self, method: str, path: str, expected: int, body: Any = None, idempotency_key: str = "") -> Response:
        """Send a request and return the response.

        Raises:
            StepFailed: the status is not the expected one.
        """
        headers = {"Authorization": f"Bearer {self.key}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if idempotency_key:
            headers["Idempotency-Key"] = idempotency_key
        self.connection.request(method, f"/api/v1{path}", json.dumps(body) if body is not None else None, headers)
        response = self.connection.getresponse()
        answer = Response(response.status, response.headers, response.read())
        if answer.status != expected:
            raise StepFailed(f"{answer.status} {_code(answer)}")
        return answer

    def wait_for(self, *types: EventType) -> str:
        """Wait until the receiver has verified an event of each type.

        Raises:
            StepFailed: a delivery is late, or its signature is wrong.
        """
        began = time.monotonic()
        while missing := [kind for kind in types if kind not in {each.event_type for each in self.received}]:
            try:
                arrived = self.receiver.arrived.get(timeout=max(0.0, began + _TIMEOUT_S - time.monotonic()))
            except queue.Empty:
                raise StepFailed(f"no {missing[0]} in {_TIMEOUT_S} s") from None
            if isinstance(arrived, WebhookVerificationError):
                raise StepFailed(arrived.reason)
            self.received.append(arrived)
        names = ", ".join(kind.removeprefix("booking.") for kind in types)
        return f"{names}: verified"


Step = Callable[[State], str]


def run(cli: Cli, demo: DemoOrganization) -> int:
    """Run the self-test, write its steps, and return the exit code."""
    with _logged(cli), tempfile.TemporaryDirectory(prefix="booking-demo-") as folder, _listener() as listener:
        settings = _settings(Path(folder), listener.getsockname()[1])
        if not settings.is_sqlite:
            demo = demo._replace(
                slug=f"{demo.slug}-{secrets.token_hex(4)}"
            )  # an earlier self-test may have used the slug
        service.prepare(settings)
        with storage.translate_errors(), contextlib.closing(Database(settings.database_url)) as database:
            rows = _run_steps(cli, settings, database, listener, demo)
    cli.render.many(rows, COLUMNS)
    if all(each["ok"] for each in rows):
        return ExitCode.OK
    cli.render.warn(f"{rows[-1]['step']} failed: {rows[-1]['answer']} (use -v to see the log)")
    return ExitCode.FAILED


def _run_steps(
    cli: Cli, settings: Settings, database: Database, listener: socket.socket, demo: DemoOrganization
) -> list[dict[str, Any]]:
    """Return a row for every step, up to the first that failed."""
    installation = secret_keys.load_installation(settings)
    document = read_document(demo.catalogue)
    catalog.validate(document)
    organization, summary = create_with_catalogue(cli, database, installation, demo, _with_departure(document))
    counted = f"{summary.experiences.created} experiences, {summary.departures.created} departures"
    key = _short_lived_key(database, organization)
    rows = [
        {"step": "import", "asked": "booking catalog import", "answer": counted, "ok": True},
        {"step": "key", "asked": "booking keys create", "answer": f"{len(Scope)} scopes, for an hour", "ok": True},
    ]
    connection = http.client.HTTPConnection(HOST, listener.getsockname()[1], timeout=_TIMEOUT_S)
    with _receiving() as receiver, _serving(settings, listener), contextlib.closing(connection):
        state = State(database, organization, key, connection, receiver)
        try:
            for name, asked, step in STEPS:
                answer, ok = _run_step(step, state)
                rows.append({"step": name, "asked": asked, "answer": answer, "ok": ok})
                if not ok:
                    break
        finally:
            _clean_up(state)
    return rows


def _clean_up(state: State) -> None:
    """Delete the endpoint if a step failed. On PostgreSQL it would get deliveries for days."""
    if state.endpoint_id:
        state.connection.close()  # a request may be in progress; the next one opens it again
        _run_step(_unregister, state)


def _run_step(step: Step, state: State) -> tuple[str, bool]:
    try:
        return step(state), True
    except StepFailed as failure:
        return str(failure), False
    except (OSError, http.client.HTTPException) as error:
        log.warning("no answer", exc_info=error)
        return f"no answer ({type(error).__name__})", False
    except (LookupError, TypeError, ValueError) as error:
        log.warning("unexpected response", exc_info=error)
        return "unexpected response", False


def _me(state: State) -> str:
    slug = state.call("GET", "/me", 200).json["organization"]["slug"]
    if slug != state.organization.slug:
        raise StepFailed(f"200 {slug}")
    return f"200 {slug}"


def _register(state: State) -> str:
    body = {"url": state.receiver.url, "event_types": [*BOOKED, *CANCELLED]}
    endpoint = state.call("POST", "/webhooks", 201, body).json
    state.endpoint_id, state.receiver.verifier = endpoint["id"], Verifier(endpoint["secret"])
    return f"201 {endpoint['url']}"


def _find_seats(state: State) -> str:
    first = _today() + timedelta(days=LEAD_DAYS)
    window = urlencode({"from": first, "to": first + timedelta(days=WINDOW_DAYS)})
    departures = state.call("GET", f"/availability?{window}", 200).json["data"]
    body = booking_request(departures, lambda id_: state.call("GET", f"/experiences/{id_}", 200).json)
    if body is None:
        raise StepFailed("200 nothing to book")
    state.booking_request_body = body
    seats = sum(each["seats_available"] for each in departures)
    return f"200 {len(departures)} departures, {seats} seats"


def _book(state: State) -> str:
    state.booked = state.call("POST", "/bookings", 201, state.booking_request_body, state.idempotency_key)
    booking = state.booked.json
    if booking["status"] != "confirmed":
        raise StepFailed(f"201 {booking['status']}")
    total = Money.model_validate(booking["totals"]["total"])
    return f"201 confirmed, {total.to_decimal()} {total.currency}"


def _replay(state: State) -> str:
    again = state.call("POST", "/bookings", 201, state.booking_request_body, state.idempotency_key)
    assert state.booked is not None
    if again.content != state.booked.content:
        raise StepFailed("201 other bytes")
    if again.headers["Idempotent-Replayed"] != "true":
        raise StepFailed("201 not marked as a replay")
    return "201 same bytes, marked replayed"


def _receive_booking_events(state: State) -> str:
    return state.wait_for(*BOOKED)


def _cancel(state: State) -> str:
    key = f"{state.idempotency_key}-cancel"
    cancelled = state.call("POST", f"/bookings/{state.booking_id}/cancel", 200, {"reason": "The demo ends."}, key).json
    if cancelled["status"] != "cancelled":
        raise StepFailed(f"200 {cancelled['status']}")
    return "200 cancelled"


def _receive_cancellation_event(state: State) -> str:
    return state.wait_for(*CANCELLED)


def _read_feed(state: State) -> str:
    query = urlencode({"resource_id": state.booking_id, "order": "asc"})
    events = state.call("GET", f"/events?{query}", 200).json["data"]
    if [each["type"] for each in events] != [*BOOKED, *CANCELLED]:
        raise StepFailed(f"200 {len(events)} events, other ones")
    if {each["id"] for each in events} != {each.event_id for each in state.received}:
        raise StepFailed("200 not what was delivered")
    return f"200 {len(events)} events, all delivered"


def _examine(state: State) -> str:
    found = state.database.read(lambda tx: doctor.examine(tx, state.organization.id))
    if found:
        raise StepFailed(f"{len(found)} findings")
    return "all is well"


def _unregister(state: State) -> str:
    state.call("DELETE", f"/webhooks/{state.endpoint_id}", 204)
    state.endpoint_id = ""
    return "204"


STEPS: tuple[tuple[str, str, Step], ...] = (
    ("me", "GET /me", _me),
    ("receiver", "POST /webhooks", _register),
    ("seats", "GET /availability", _find_seats),
    ("book", "POST /bookings", _book),
    ("replay", "the same with the same key", _replay),
    ("deliver", "the receiver", _receive_booking_events),
    ("cancel", "POST /bookings/{id}/cancel", _cancel),
    ("deliver", "the receiver", _receive_cancellation_event),
    ("events", "GET /events", _read_feed),
    ("doctor", "booking doctor", _examine),
    ("goodbye", "DELETE /webhooks/{id}", _unregister),
)
"""Each step with its name and its request, short enough for a table of 80 columns."""


def _settings(folder: Path, port: int) -> Settings:
    """Return the settings of the environment if they name PostgreSQL, else those of a new SQLite file."""
    settings = storage.load_settings()
    if settings.is_sqlite:
        settings = Settings(database_url=f"sqlite:///{folder / 'booking.db'}")
    return replace(
        settings,
        public_url=f"http://{HOST}:{port}",
        rate_limit=None,
        rate_limit_store="memory://",
        webhook_allow_http=True,
        webhook_allow_cidrs=(*settings.webhook_allow_cidrs, "127.0.0.0/8"),
    )


def _with_departure(document: Any) -> Any:
    """Add a departure in the next weeks to the catalogue, since its own will be over one day."""
    day = _today() + timedelta(days=LEAD_DAYS + WINDOW_DAYS // 2)
    for experience in document.get("experiences", ()):
        if experience.get("is_published") is not False:
            departure = {"starts_at": f"{day}T{_DEPARTS_AT}:00", "seats_total": 12}
            experience["departures"] = [*(experience.get("departures") or ()), departure]
            break
    return document


def _short_lived_key(database: Database, organization: Organization) -> str:
    """Return a key with every scope that expires after an hour, since PostgreSQL keeps it."""

    def work(tx: Any) -> str:
        now = tx.now()
        _, key = keys.create(
            tx, organization, name="booking demo --once", scopes=list(Scope), expires_at=now + HOUR, now=now
        )
        return key

    return database.write_once(work)


def _listener() -> socket.socket:
    """Listen before the service runs, so that the first request waits instead of failing."""
    return socket.create_server((HOST, 0))


@contextmanager
def _serving(settings: Settings, listener: socket.socket) -> Iterator[None]:
    """Run the service with its worker in a thread."""
    config = uvicorn.Config(
        create_app(settings, worker=True),
        loop="asyncio" if sys.platform == "win32" else "uvloop",
        http=HttpProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=_TIMEOUT_S,
    )
    server = uvicorn.Server(config)

    def serve() -> None:
        # If the service cannot start, it exits; closing the listener fails the waiting request at once.
        with listener, contextlib.suppress(SystemExit):
            server.run(sockets=[listener])

    thread = threading.Thread(target=serve, name="service")
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def _receiving() -> Iterator[Receiver]:
    """Run the receiver in a thread."""
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever, args=(0.05,), name="receiver")
        thread.start()
        try:
            yield receiver
        finally:
            receiver.shutdown()
            thread.join()


@contextmanager
def _logged(cli: Cli) -> Iterator[None]:
    """Write the service's log to stderr with --verbose, and discard it otherwise."""
    root, before = logging.getLogger(), logging.getLogger().level
    handler: logging.Handler = logging.NullHandler()
    if cli.options.verbose and not cli.render.is_json:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)-7s %(name)s  %(message)s"))
        root.setLevel(logging.INFO)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def _code(answer: Response) -> str:
    """Return the error code of a response."""
    with contextlib.suppress(ValueError, LookupError, TypeError):
        return str(answer.json["code"])
    return "without an error code"


def _today() -> date:
    return datetime.now(UTC).date()
