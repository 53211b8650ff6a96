"""Misbehaviours by requests and commands that write."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from support.operations import Operations
from support.receivers import hang, wait_until

from isolation import bulk, processes
from isolation.measuring import Misbehaviour
from isolation.operations import READS
from isolation.processes import FRESH, request
from isolation.world import SECRET, Scene, held

_KEYS = 32
_FRESH = FRESH.decode()


def booking(departure: str, *, email: str = f"{_FRESH}@example.com", note: str | None = None) -> bytes:
    """Return the body of a booking without mails."""
    body = {
        "experience_date_id": departure,
        "guests": [{"tier_id": "adult", "count": 1}],
        "customer": {"name": "Ada Lovelace", "email": email},
        "payment": "pay_on_site",
        "send_confirmation_email": False,
        "notify_staff": False,
        "note": note,
    }
    return json.dumps(body, ensure_ascii=False).encode()


def _book(scene: Scene, departures: int = 1) -> list[bytes]:
    return [scene.send("POST", "/bookings", booking(each)) for each in scene.offender.departures[:departures]]


@contextmanager
def _rush(scene: Scene) -> Iterator[None]:
    """Book with all clients at once. The processor time to read their requests is not measured."""
    with scene.crowd(_book(scene), 500, times=1):
        scene.neighbour.probe()
        yield


@contextmanager
def _steady_load(scene: Scene) -> Iterator[None]:
    with scene.crowd(_book(scene, 8), 64):
        yield


@contextmanager
def _many_keys(scene: Scene) -> Iterator[None]:
    """Read and book with a key for each client: no rate limit stops them."""
    requests = []
    for number, key in enumerate(scene.offender.world.key() for _ in range(_KEYS)):
        departure = scene.offender.departures[number % 8]
        requests += [
            request("GET", "/api/v1/bookings?limit=100", key),
            request("POST", "/api/v1/bookings", key, booking(departure)),
        ]
    with scene.crowd(requests, _KEYS):
        yield


@contextmanager
def _locked_departure(scene: Scene) -> Iterator[None]:
    departure = scene.offender.departure
    locked = f"SELECT 1 FROM departures WHERE id = '{departure}' FOR UPDATE"
    with held(scene.url, locked), scene.crowd(_book(scene), 8):
        yield


@contextmanager
def _frozen_sibling(scene: Scene) -> Iterator[None]:
    """Hold the locks of a process that is frozen after its last lock: a departure and the organization's numbers."""
    org, departure = scene.offender.world.org, scene.offender.departure
    locked = (
        f"SELECT 1 FROM departures WHERE id = '{departure}' FOR UPDATE",
        f"SELECT 1 FROM counters WHERE organization_id = '{org}' FOR UPDATE",
    )
    with held(scene.url, *locked), scene.crowd(_book(scene, 8), 8):
        yield


@contextmanager
def _same_key(scene: Scene) -> Iterator[None]:
    """Send one booking from many clients at once, all with the same Idempotency-Key."""
    body = booking(scene.offender.departure, email="ada@example.com")
    asked = scene.send("POST", "/bookings", body).replace(FRESH, b"0" * 32)
    with scene.crowd([asked], 32):
        yield


@contextmanager
def _huge_notes(scene: Scene) -> Iterator[None]:
    note = "🛶" * 2000
    requests = [scene.send("POST", "/bookings", booking(each, note=note)) for each in scene.offender.departures]
    with scene.crowd(requests, 32):
        yield


@contextmanager
def _one_new_customer(scene: Scene) -> Iterator[None]:
    customer = b'{"name": "Ada Lovelace", "email": "same@example.com"}'
    with scene.crowd([scene.send("POST", "/customers", customer)], 32):
        yield


@contextmanager
def _holds(scene: Scene) -> Iterator[None]:
    """Hold seats of eight departures until the limit of holds refuses, and book with holds that do not exist."""
    hold = '{{"experience_date_id": "{}", "seats": 1, "expires_in_seconds": 5}}'
    held_of = [scene.send("POST", "/holds", hold.format(each).encode()) for each in scene.offender.departures[:8]]
    absent = json.loads(booking(scene.offender.departure)) | {"hold_id": str(uuid.UUID(int=0))}
    with scene.crowd([*held_of, scene.send("POST", "/bookings", json.dumps(absent).encode())], 32):
        yield


# Commands --------------------------------------------------------------------------------------------------------


def _catalogue(departures: int) -> dict[str, object]:
    """Return a catalogue file with that many departures, of fifty new experiences."""
    price = {"amount_minor": 89000, "currency": "NOK"}
    first, each, tag = datetime(2031, 1, 1, 6), departures // 50, bulk.new_ids().tag
    starts = [(first + timedelta(hours=6 * at)).strftime("%Y-%m-%dT%H:%M:%S") for at in range(each)]
    tiers = [{"id": "adult", "name": "Adult", "price": price, "seats_per_unit": 1}]
    return {
        "experiences": [
            {
                "slug": f"imported-{tag}-{number}",
                "title": "Imported",
                "is_published": True,
                "duration_minutes": 150,
                "price_from": price,
                "price_tiers": tiers,
                "departures": [{"starts_at": start, "seats_total": 12, "status": "open"} for start in starts],
            }
            for number in range(50)
        ]
    }


@contextmanager
def _import(scene: Scene) -> Iterator[None]:
    file = scene.folder / "catalogue.json"
    file.write_text(json.dumps(_catalogue(scene.size(100_000, 10_000))))
    slug = scene.offender.world.organization.slug
    environment = {"BOOKING_DATABASE_URL": scene.url, "BOOKING_SECRET_KEY": SECRET}
    log = scene.folder / "import.log"
    imported = f"SELECT count(*) FROM departures WHERE organization_id = '{scene.offender.world.org}'"
    before = bulk.value(scene.url, imported)
    with processes.command(["catalog", "import", "--org", slug, str(file)], environment, log):
        wait_until(lambda: bulk.value(scene.url, imported) > before, f"the import has begun: see {log}")
        yield


# Endpoints -------------------------------------------------------------------------------------------------------


def _long_queue(scene: Scene, endpoints: int) -> list[str]:
    """Return endpoints that hang, each with a quarter of a million waiting events."""
    found = [scene.endpoint(hang) for _ in range(endpoints)]
    bulk.waiting(scene.url, scene.offender.world, scene.size(250_000, 15_000))
    return found


@contextmanager
def _switch_off_and_on(scene: Scene) -> Iterator[None]:
    (endpoint,) = _long_queue(scene, 1)
    bodies = (b'{"status": "disabled"}', b'{"status": "enabled"}')
    with scene.crowd([scene.send("PATCH", f"/webhooks/{endpoint}", body) for body in bodies], 4):
        yield


@contextmanager
def _delete(scene: Scene) -> Iterator[None]:
    asked = [scene.send("DELETE", f"/webhooks/{each}", b"") for each in _long_queue(scene, 2)]
    with scene.crowd(asked, 2, times=1):
        yield


@contextmanager
def _recover(scene: Scene) -> Iterator[None]:
    (endpoint,) = _long_queue(scene, 1)
    everything = b'{"since": "2026-01-01T00:00:00Z"}'
    switched = [
        scene.send("PATCH", f"/webhooks/{endpoint}", b'{"status": "disabled"}'),
        scene.send("PATCH", f"/webhooks/{endpoint}", b'{"status": "enabled"}'),
    ]
    with scene.crowd(switched, 1, times=2, pause_s=0.1):
        _until_enabled(scene, endpoint)
    with scene.crowd([scene.send("POST", f"/webhooks/{endpoint}/recover", everything)], 10):
        yield


def _until_enabled(scene: Scene, endpoint: str) -> None:
    """Wait until the endpoint was disabled and enabled again, which takes longer with a longer queue."""
    enabled = f"SELECT status FROM webhook_endpoints WHERE id = '{endpoint}' AND enabled_at > created_at"
    wait_until(lambda: bulk.value(scene.url, enabled) == "enabled", "the endpoint is switched on again")


@contextmanager
def _moves(scene: Scene) -> Iterator[None]:
    """Move eight bookings between two departures, and change their parties, from all clients at once."""
    ops, departures = Operations(scene.offender.world), scene.offender.departures[:2]
    requests = []
    for booked in [ops.book(departures[0])["id"] for _ in range(8)]:
        for departure in departures:
            move = json.dumps({"departure_id": departure}).encode()
            requests.append(scene.send("POST", f"/bookings/{booked}/reschedule", move))
            requests.append(scene.send("POST", f"/bookings/{booked}/reschedule/preview", move))
        for count in (1, 2):
            party = json.dumps({"guests": [{"tier_id": "adult", "count": count}]}).encode()
            requests.append(scene.send("POST", f"/bookings/{booked}/party", party))
    with scene.crowd(requests, 8):
        yield


MISBEHAVIOURS = (
    Misbehaviour("rush", "500 clients book one departure at the same moment", _rush),
    Misbehaviour("steady-load", "64 clients book without a pause", _steady_load),
    Misbehaviour("many-keys", "32 clients read and book without a pause, each with its own key", _many_keys),
    Misbehaviour(
        "locked-departure",
        "a departure is locked by a transaction that stays open, and eight clients book it",
        _locked_departure,
        on_sqlite=READS,
    ),
    Misbehaviour(
        "frozen-sibling",
        "a process that is frozen holds a departure and the organization's numbers",
        _frozen_sibling,
        on_sqlite=READS,
    ),
    Misbehaviour("same-key", "32 clients send one booking with one Idempotency-Key", _same_key),
    Misbehaviour("moves", "eight clients move eight bookings to and fro, and change their parties", _moves),
    Misbehaviour("huge-notes", "32 clients book with the longest note", _huge_notes),
    Misbehaviour("holds", "32 clients hold seats, and book with holds that do not exist", _holds),
    Misbehaviour("one-new-customer", "32 clients create the same customer", _one_new_customer),
    Misbehaviour("import", "a catalogue of 100,000 departures is imported", _import),
    Misbehaviour("switch-endpoint", "an endpoint with 250,000 events is disabled and enabled", _switch_off_and_on),
    Misbehaviour("delete-endpoint", "two endpoints with 250,000 events are deleted", _delete),
    Misbehaviour("recover-endpoint", "ten clients recover an endpoint with 250,000 events", _recover),
)
