"""The self-test of `booking demo --once`: a service with a webhook receiver in this process, and the SDK as its client.

The story yields the result of each step in a few words, or raises. The first failed step ends the self-test. The
service is stopped in any case.
"""

import contextlib
import logging
import queue
import secrets
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import Request, Response

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
    create_key,
    create_with_catalogue,
    demo_organizations,
)
from booking_core.base.clock import HOUR
from booking_core.base.context import Organization
from booking_core.base.settings import Settings
from booking_core.catalogue import transfer
from booking_core.db.engine import Database
from booking_core.models.events import EventType
from booking_core.models.scopes import Scope
from booking_core.upkeep import doctor
from booking_sdk import APIConnectionError, APIStatusError, BookingClient, BookingError
from booking_server.app import create_app
from booking_server.transport.protocol import HttpProtocol
from webhook_verify import Verifier, WebhookVerificationError

log = logging.getLogger("booking.demo")

COLUMNS = ("step", "asked", "answer", "ok")

BOOKED = (EventType.BOOKING_CREATED, EventType.BOOKING_CONFIRMED)
CANCELLED = (EventType.BOOKING_CANCELLED,)

_TIMEOUT_S = 20
"""For a response or a delivery. Each takes some milliseconds, and longer on a busy machine."""
_DEPARTS_AT = "06:10"
"""A time that a catalogue is unlikely to have."""


STEPS = (
    ("me", "GET /me"),
    ("receiver", "POST /webhooks"),
    ("seats", "GET /availability"),
    ("book", "POST /bookings"),
    ("replay", "the same with the same key"),
    ("deliver", "the receiver"),
    ("cancel", "POST /bookings/{id}/cancel"),
    ("deliver", "the receiver"),
    ("events", "GET /events"),
    ("doctor", "booking doctor"),
    ("goodbye", "DELETE /webhooks/{id}"),
)
"""The name and the request of each step of the story, short enough for a table of 80 columns."""


class StepFailed(Exception):
    """A step had another result than expected. The message is that result, in a few words."""


class Receiver:
    """A webhook receiver beside the API that puts the body and the headers of each delivery into a queue."""

    path = "/demo/hook"

    def __init__(self, port: int) -> None:
        # Not the host of the service, to which no webhook is sent.
        self.url = f"http://localhost:{port}{self.path}"
        self.arrived: queue.SimpleQueue[tuple[bytes, list[tuple[str, str]]]] = queue.SimpleQueue()

    async def receive(self, request: Request) -> Response:
        """Accept a delivery."""
        self.arrived.put((await request.body(), request.headers.items()))
        return Response(status_code=204)

    def wait_for(self, verifier: Verifier, *types: EventType) -> list[str]:
        """Wait for a delivery of each type, verify each, and return the ids of the events.

        Raises:
            StepFailed: a delivery is late.
            WebhookVerificationError: its signature is wrong.
        """
        ids: dict[str, str] = {}
        while missing := [kind for kind in types if kind not in ids]:
            try:
                delivery = verifier.verify(*self.arrived.get(timeout=_TIMEOUT_S))
            except queue.Empty:
                raise StepFailed(f"no {missing[0]} in {_TIMEOUT_S} s") from None
            ids[delivery.event_type] = delivery.event_id
        return list(ids.values())


def run(cli: Cli, catalogue: Path | None) -> int:
    """Run the self-test with a catalogue file or an example, write its steps, and return the exit code."""
    demo = demo_organizations(catalogue)[0]
    # Listens before the service runs: the first request waits instead of failing.
    listener = socket.create_server((HOST, 0))
    with _logged(cli), tempfile.TemporaryDirectory(prefix="booking-demo-") as folder, listener:
        settings = _settings(Path(folder), listener.getsockname()[1])
        if not settings.is_sqlite:  # an earlier self-test may have used the slug
            demo = demo._replace(slug=f"{demo.slug}-{secrets.token_hex(4)}")
        service.prepare(settings)
        with storage.translate_errors(), contextlib.closing(Database(settings.database_url)) as database:
            rows = _run_steps(cli, settings, database, listener, demo)
    cli.render.many(rows, COLUMNS)
    if all(row["ok"] for row in rows):
        return ExitCode.OK
    cli.render.warn(f"{rows[-1]['step']} failed: {rows[-1]['answer']} (use -v to see the log)")
    return ExitCode.FAILED


def _run_steps(
    cli: Cli, settings: Settings, database: Database, listener: socket.socket, demo: DemoOrganization
) -> list[dict[str, Any]]:
    """Return a row for every step, up to the first that failed."""
    document = _with_departure(read_document(demo.catalogue))
    transfer.validate(document)
    installation = secret_keys.load_installation(settings)
    organization, summary = create_with_catalogue(cli, database, installation, demo, document)
    # PostgreSQL keeps the key, so it expires.
    key = create_key(database, organization.slug, "booking demo --once", lifetime=HOUR)
    counted = f"{summary.experiences.created} experiences, {summary.departures.created} departures"
    rows = [
        {"step": "import", "asked": "booking catalog import", "answer": counted, "ok": True},
        {"step": "key", "asked": "booking keys create", "answer": f"{len(Scope)} scopes, for an hour", "ok": True},
    ]
    client = BookingClient(key, base_url=settings.public_url, timeout=_TIMEOUT_S, max_retries=0)
    receiver = Receiver(listener.getsockname()[1])
    with _serving(settings, listener, receiver), client:
        story = _story(client, receiver, database, organization)
        for name, request in STEPS:
            answer, ok = _next(story)
            rows.append({"step": name, "asked": request, "answer": answer, "ok": ok})
            if not ok:
                break
    return rows


def _next(story: Iterator[str]) -> tuple[str, bool]:
    """Return the result of the next step, and whether it is the expected one."""
    try:
        return next(story), True
    except StepFailed as failure:
        return str(failure), False
    except WebhookVerificationError as error:
        return error.reason, False
    except APIStatusError as error:
        return f"{error.status_code} {error.code or 'without an error code'}", False
    except APIConnectionError as error:
        log.warning("no answer", exc_info=error)
        return f"no answer ({type(error).__name__})", False
    except (BookingError, LookupError, TypeError, ValueError) as error:
        log.warning("unexpected response", exc_info=error)
        return "unexpected response", False


def _story(client: BookingClient, receiver: Receiver, database: Database, organization: Organization) -> Iterator[str]:
    """Yield the result of each step.

    The endpoint is deleted also after a failure, since on PostgreSQL it would get deliveries for days.
    """
    slug = client.me().organization.slug
    yield _expect(slug == organization.slug, f"200 {slug}")
    endpoint = client.webhooks.create(url=receiver.url, event_types=[*BOOKED, *CANCELLED])
    try:
        yield f"201 {endpoint.url}"
        yield from _booking_story(client, receiver, Verifier(endpoint.secret))
        findings = database.read(lambda tx: doctor.examine(tx, organization.id))
        yield _expect(not findings, "all is well", f"{len(findings)} findings")
    finally:
        client.webhooks.delete(endpoint.id)
    yield "204"


def _booking_story(client: BookingClient, receiver: Receiver, verifier: Verifier) -> Iterator[str]:
    """Yield the results of the steps with the booking, from the seats to its events."""
    request, seats = _find_seats(client)
    yield _expect(bool(request), seats, "200 nothing to book")
    booked = client.with_raw_response(client.bookings.create, **request)
    booking = booked.parse()
    total = booking.totals.total
    yield _expect(booking.status == "confirmed", f"201 {booking.status}, {total.to_decimal()} {total.currency}")
    again = client.with_raw_response(client.bookings.create, **request)
    is_same = again.body == booked.body and again.meta.idempotent_replayed
    yield _expect(is_same, "201 same bytes, marked replayed", "201 other bytes, or not marked as a replay")
    delivered = receiver.wait_for(verifier, *BOOKED)
    yield "created, confirmed: verified"
    cancelled = client.bookings.cancel(booking.id, reason="The demo ends.")
    yield _expect(cancelled.status == "cancelled", f"200 {cancelled.status}")
    delivered += receiver.wait_for(verifier, *CANCELLED)
    yield "cancelled: verified"
    events = client.events.list(resource_id=booking.id, order="asc").data
    is_same = [event.type for event in events] == [*BOOKED, *CANCELLED] and {event.id for event in events} == {
        *delivered
    }
    yield _expect(is_same, f"200 {len(events)} events, all delivered", f"200 {len(events)} events, other ones")


def _expect(is_expected: bool, answer: str, otherwise: str | None = None) -> str:
    """Return the answer of a step.

    Raises:
        StepFailed: it is not the expected one.
    """
    if not is_expected:
        raise StepFailed(otherwise or answer)
    return answer


def _find_seats(client: BookingClient) -> tuple[dict[str, Any], str]:
    """Return the arguments of a booking, empty if there is nothing to book; and a sentence about the seats."""
    first = _today() + timedelta(days=LEAD_DAYS)
    page = client.availability.list(date_from=first, date_to=first + timedelta(days=WINDOW_DAYS))
    departures = [departure.model_dump(mode="json") for departure in page.data]
    request = booking_request(departures, lambda id_: client.experiences.get(id_).model_dump(mode="json"))
    seats = sum(departure.seats_available for departure in page.data)
    key = {"idempotency_key": f"demo-{secrets.token_hex(8)}"}
    return {**request, **key} if request else {}, f"200 {len(departures)} departures, {seats} seats"


def _settings(folder: Path, port: int) -> Settings:
    """Return the settings of the environment if they name PostgreSQL, else settings for a new SQLite file."""
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


@contextmanager
def _serving(settings: Settings, listener: socket.socket, receiver: Receiver) -> Iterator[None]:
    """Run the service with its worker and the receiver in a thread."""
    app = create_app(settings, worker=True)
    app.add_api_route(receiver.path, receiver.receive, methods=["POST"])
    quiet: dict[str, Any] = {"log_config": None, "access_log": False, "timeout_graceful_shutdown": _TIMEOUT_S}
    server = uvicorn.Server(uvicorn.Config(app, http=HttpProtocol, ws="none", lifespan="on", **quiet))

    def serve() -> None:
        # If the service cannot start, it exits; closing the listener fails the waiting request at once.
        with listener, contextlib.suppress(SystemExit):
            server.run(sockets=[listener])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def _logged(cli: Cli) -> Iterator[None]:
    """Write the service's log to stderr with --verbose, and discard it otherwise."""
    is_shown = cli.options.verbose and not cli.render.is_json
    root, before = logging.getLogger(), logging.getLogger().level
    handler = logging.StreamHandler() if is_shown else logging.NullHandler()
    handler.setFormatter(logging.Formatter("%(levelname)-7s %(name)s  %(message)s"))
    root.setLevel(logging.INFO if is_shown else before)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def _today() -> date:
    return datetime.now(UTC).date()
