"""The story that `booking demo --once` plays: a service and a receiver in this process, and real HTTP between them.

A scene is a function that does one step and gives what came back in a few words, or raises `Amiss` when that is not
what should have come. The first such scene ends the story. Whatever happened, nothing is left running.
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

from booking_cli.commands.catalog import read_document
from booking_cli.commands.demo import HOST, LEAD_DAYS, WINDOW_DAYS, Shop, a_booking, open_shop
from booking_cli.commands.serve import make_ready
from booking_cli.framework.context import Cli
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.operator import storage
from booking_core import catalog, doctor, keys
from booking_core.clock import HOUR
from booking_core.context import Organization
from booking_core.db.engine import Database
from booking_core.models.events import EventType
from booking_core.models.money import Money
from booking_core.models.scopes import Scope
from booking_core.settings import Settings
from booking_server.app import create_app
from booking_server.protocol import HttpProtocol
from webhook_verify import VerifiedDelivery, Verifier, WebhookVerificationError

log = logging.getLogger("booking.demo")

COLUMNS = ("step", "asked", "answer", "ok")

BOOKED = (EventType.BOOKING_CREATED, EventType.BOOKING_CONFIRMED)
CANCELLED = (EventType.BOOKING_CANCELLED,)

_PATIENCE_S = 20
"""For an answer or a delivery, each of which takes some milliseconds: a machine may be busy, but not forever."""
_DEPARTS_AT = "06:10"
"""Not a time that a catalogue is likely to have."""


class Amiss(Exception):
    """What came back is not what should have come. The message is what to show: a few words."""


class Answer(NamedTuple):
    """What the service answered."""

    status: int
    headers: Any
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


class Receiver(socketserver.ThreadingTCPServer):
    """A merchant's webhook receiver: it verifies what arrives, hands it on, and answers."""

    allow_reuse_address = True
    verifier: Verifier | None = None
    """None until the endpoint is registered: the secret comes with the answer."""

    def __init__(self) -> None:
        super().__init__((HOST, 0), _Delivery)
        self.arrived: queue.SimpleQueue[VerifiedDelivery | WebhookVerificationError] = queue.SimpleQueue()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}/"


class _Delivery(BaseHTTPRequestHandler):
    """One request to the receiver."""

    server: Receiver
    timeout = _PATIENCE_S

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

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the word of the library
        """Nothing: the table tells what arrived."""


@dataclass
class Stage:
    """What the scenes share, and leave to the ones after them."""

    database: Database
    organization: Organization
    key: str
    connection: http.client.HTTPConnection
    receiver: Receiver
    endpoint_id: str = ""
    wanted: dict[str, Any] = field(default_factory=dict)
    """The body of the booking."""
    idempotency_key: str = field(default_factory=lambda: f"demo-{secrets.token_hex(8)}")
    booked: Answer | None = None
    received: list[VerifiedDelivery] = field(default_factory=list)

    @property
    def booking_id(self) -> str:
        assert self.booked is not None
        return str(self.booked.json["id"])

    def call(self, method: str, path: str, expected: int, body: Any = None, idempotency_key: str = "") -> Answer:
        """The service's answer.

        Raises:
            Amiss: its status is not the expected one.
        """
        headers = {"Authorization": f"Bearer {self.key}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if idempotency_key:
            headers["Idempotency-Key"] = idempotency_key
        self.connection.request(method, f"/api/v1{path}", json.dumps(body) if body is not None else None, headers)
        response = self.connection.getresponse()
        answer = Answer(response.status, response.headers, response.read())
        if answer.status != expected:
            raise Amiss(f"{answer.status} {_code(answer)}")
        return answer

    def wait_for(self, *types: EventType) -> str:
        """Waits until the receiver has verified an event of each of the types.

        Raises:
            Amiss: one did not come in time, or did not verify.
        """
        began = time.monotonic()
        while missing := [kind for kind in types if kind not in {each.event_type for each in self.received}]:
            try:
                arrived = self.receiver.arrived.get(timeout=max(0.0, began + _PATIENCE_S - time.monotonic()))
            except queue.Empty:
                raise Amiss(f"no {missing[0]} in {_PATIENCE_S} s") from None
            if isinstance(arrived, WebhookVerificationError):
                raise Amiss(arrived.reason)
            self.received.append(arrived)
        names = ", ".join(kind.removeprefix("booking.") for kind in types)
        return f"{names}: verified"


Scene = Callable[[Stage], str]


def play(cli: Cli, shop: Shop) -> int:
    """Plays the story in the shop, prints it, and gives the exit code."""
    with _logged(cli), tempfile.TemporaryDirectory(prefix="booking-demo-") as folder, _listener() as listener:
        settings = _settings(Path(folder), listener.getsockname()[1])
        if not settings.is_sqlite:
            shop = shop._replace(slug=f"{shop.slug}-{secrets.token_hex(4)}")  # others may have been here
        make_ready(settings)
        with storage.explained(), contextlib.closing(Database(settings.database_url)) as database:
            told = _told(cli, settings, database, listener, shop)
    cli.render.many(told, COLUMNS)
    if all(each["ok"] for each in told):
        return ExitCode.OK
    cli.render.warn(f"{told[-1]['step']}: {told[-1]['answer']} is not what should have come (-v shows the log)")
    return ExitCode.FAILED


def _told(
    cli: Cli, settings: Settings, database: Database, listener: socket.socket, shop: Shop
) -> list[dict[str, Any]]:
    """Every step up to the last one, or to the first that is not as it should be."""
    installation = storage.installation(settings)
    document = read_document(shop.catalogue)
    catalog.validate(document)
    organization, done = open_shop(cli, database, installation, shop, _with_a_departure(document))
    counted = f"{done.experiences.created} experiences, {done.departures.created} departures"
    key = _short_lived_key(database, organization)
    told = [
        {"step": "import", "asked": "booking catalog import", "answer": counted, "ok": True},
        {"step": "key", "asked": "booking keys create", "answer": f"{len(Scope)} scopes, for an hour", "ok": True},
    ]
    connection = http.client.HTTPConnection(HOST, listener.getsockname()[1], timeout=_PATIENCE_S)
    with _receiving() as receiver, _serving(settings, listener), contextlib.closing(connection):
        stage = Stage(database, organization, key, connection, receiver)
        try:
            for step, asked, scene in SCENES:
                answer, ok = _played(scene, stage)
                told.append({"step": step, "asked": asked, "answer": answer, "ok": ok})
                if not ok:
                    break
        finally:
            _tidy_up(stage)
    return told


def _tidy_up(stage: Stage) -> None:
    """Unregisters the receiver when the story ended early: on PostgreSQL it would be called for days."""
    if stage.endpoint_id:
        stage.connection.close()  # it opens anew, whatever it was in the middle of
        _played(_unregister, stage)


def _played(scene: Scene, stage: Stage) -> tuple[str, bool]:
    try:
        return scene(stage), True
    except Amiss as amiss:
        return str(amiss), False
    except (OSError, http.client.HTTPException) as error:
        log.warning("no answer", exc_info=error)
        return f"no answer ({type(error).__name__})", False
    except (LookupError, TypeError, ValueError) as error:
        log.warning("an answer of another shape", exc_info=error)
        return "an answer of another shape", False


# The scenes ----------------------------------------------------------------------------------------------------


def _me(stage: Stage) -> str:
    slug = stage.call("GET", "/me", 200).json["organization"]["slug"]
    if slug != stage.organization.slug:
        raise Amiss(f"200 {slug}")
    return f"200 {slug}"


def _register(stage: Stage) -> str:
    wanted = {"url": stage.receiver.url, "event_types": [*BOOKED, *CANCELLED]}
    endpoint = stage.call("POST", "/webhooks", 201, wanted).json
    stage.endpoint_id, stage.receiver.verifier = endpoint["id"], Verifier(endpoint["secret"])
    return f"201 {endpoint['url']}"


def _look(stage: Stage) -> str:
    first = _today() + timedelta(days=LEAD_DAYS)
    window = urlencode({"from": first, "to": first + timedelta(days=WINDOW_DAYS)})
    departures = stage.call("GET", f"/availability?{window}", 200).json["data"]
    body = a_booking(departures, lambda id_: stage.call("GET", f"/experiences/{id_}", 200).json)
    if body is None:
        raise Amiss("200 nothing to book")
    stage.wanted = body
    seats = sum(each["seats_available"] for each in departures)
    return f"200 {len(departures)} departures, {seats} seats"


def _book(stage: Stage) -> str:
    stage.booked = stage.call("POST", "/bookings", 201, stage.wanted, stage.idempotency_key)
    booking = stage.booked.json
    if booking["status"] != "confirmed":
        raise Amiss(f"201 {booking['status']}")
    total = Money.model_validate(booking["totals"]["total"])
    return f"201 confirmed, {total.to_decimal()} {total.currency}"


def _replay(stage: Stage) -> str:
    again = stage.call("POST", "/bookings", 201, stage.wanted, stage.idempotency_key)
    assert stage.booked is not None
    if again.content != stage.booked.content:
        raise Amiss("201 other bytes")
    if again.headers["Idempotent-Replayed"] != "true":
        raise Amiss("201 not marked as a replay")
    return "201 same bytes, marked replayed"


def _hear_of_booking(stage: Stage) -> str:
    return stage.wait_for(*BOOKED)


def _cancel(stage: Stage) -> str:
    key = f"{stage.idempotency_key}-cancel"
    cancelled = stage.call("POST", f"/bookings/{stage.booking_id}/cancel", 200, {"reason": "The demo ends."}, key).json
    if cancelled["status"] != "cancelled":
        raise Amiss(f"200 {cancelled['status']}")
    return "200 cancelled"


def _hear_of_cancellation(stage: Stage) -> str:
    return stage.wait_for(*CANCELLED)


def _read_feed(stage: Stage) -> str:
    query = urlencode({"resource_id": stage.booking_id, "order": "asc"})
    events = stage.call("GET", f"/events?{query}", 200).json["data"]
    if [each["type"] for each in events] != [*BOOKED, *CANCELLED]:
        raise Amiss(f"200 {len(events)} events, other ones")
    if {each["id"] for each in events} != {each.event_id for each in stage.received}:
        raise Amiss("200 not what was delivered")
    return f"200 {len(events)} events, all delivered"


def _examine(stage: Stage) -> str:
    found = stage.database.read(lambda tx: doctor.examine(tx, stage.organization.id))
    if found:
        raise Amiss(f"{len(found)} findings")
    return "all is well"


def _unregister(stage: Stage) -> str:
    stage.call("DELETE", f"/webhooks/{stage.endpoint_id}", 204)
    stage.endpoint_id = ""
    return "204"


SCENES: tuple[tuple[str, str, Scene], ...] = (
    ("me", "GET /me", _me),
    ("receiver", "POST /webhooks", _register),
    ("seats", "GET /availability", _look),
    ("book", "POST /bookings", _book),
    ("replay", "the same with the same key", _replay),
    ("deliver", "the receiver", _hear_of_booking),
    ("cancel", "POST /bookings/{id}/cancel", _cancel),
    ("deliver", "the receiver", _hear_of_cancellation),
    ("events", "GET /events", _read_feed),
    ("doctor", "booking doctor", _examine),
    ("goodbye", "DELETE /webhooks/{id}", _unregister),
)
"""Each with its name and what is asked; in so few words that the table fits 80 columns."""


# What it is played on ------------------------------------------------------------------------------------------


def _settings(folder: Path, port: int) -> Settings:
    """Those of the environment for PostgreSQL, whose worker keeps house for everybody; else those of a new file."""
    settings = storage.settings()
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


def _with_a_departure(document: Any) -> Any:
    """The catalogue and one departure in the weeks ahead: those it has will be over one day."""
    day = _today() + timedelta(days=LEAD_DAYS + WINDOW_DAYS // 2)
    for experience in document.get("experiences", ()):
        if experience.get("is_published") is not False:
            departure = {"starts_at": f"{day}T{_DEPARTS_AT}:00", "seats_total": 12}
            experience["departures"] = [*(experience.get("departures") or ()), departure]
            break
    return document


def _short_lived_key(database: Database, organization: Organization) -> str:
    """A key with every scope, for an hour: on PostgreSQL it outlives the story."""

    def work(tx: Any) -> str:
        now = tx.now()
        _, key = keys.create(
            tx, organization, name="booking demo --once", scopes=list(Scope), expires_at=now + HOUR, now=now
        )
        return key

    return database.write_once(work)


def _listener() -> socket.socket:
    """Listens before the service runs, so that the first request waits in line and nobody has to ask again."""
    return socket.create_server((HOST, 0))


@contextmanager
def _serving(settings: Settings, listener: socket.socket) -> Iterator[None]:
    """The service with its worker, in a thread."""
    config = uvicorn.Config(
        create_app(settings, worker=True),
        loop="asyncio" if sys.platform == "win32" else "uvloop",
        http=HttpProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=_PATIENCE_S,
    )
    server = uvicorn.Server(config)

    def serve() -> None:
        # A service that could not start exits, and with the listener closed whoever waits in line is told at once.
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
    """The receiver, in a thread."""
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
    """The service's log goes to stderr with --verbose, and else nowhere: stderr is for what a person must see."""
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


def _code(answer: Answer) -> str:
    """The error code of an answer, if it has one."""
    with contextlib.suppress(ValueError, LookupError, TypeError):
        return str(answer.json["code"])
    return "without an error code"


def _today() -> date:
    return datetime.now(UTC).date()
