"""Misbehaviours of integrations: checkouts, Stripe's webhooks, sandboxes, redelivery, limits of endpoints."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import httpx
from support.checkouts import Webhooks, checkout_body, configure
from support.databases import run
from support.receivers import plain, wait_until
from support.world import DAY

from booking_core.base.clock import SECOND, system_clock
from booking_core.db import tables
from booking_core.models.limits import SANDBOX_CLOCK_AHEAD_S_MAX
from isolation import bulk
from isolation.measuring import Misbehaviour
from isolation.processes import FRESH, HOST
from isolation.world import Scene
from webhook_verify import sign

ACCEPTING = plain(200)


@contextmanager
def _checkouts_that_hang(scene: Scene) -> Iterator[None]:
    """Begin checkouts without pause, with a Stripe that creates each payment and never responds."""
    configure(scene.offender.world)
    guest = {"name": "Ada Lovelace", "email": f"{FRESH.decode()}@example.com"}
    bodies = [json.dumps(checkout_body(each, 1, customer=guest)).encode() for each in scene.offender.departures]
    with scene.crowd([scene.send("POST", "/checkouts", body) for body in bodies], 64):
        yield


@contextmanager
def _stripe_webhooks(scene: Scene) -> Iterator[None]:
    """Send events of one account from many connections: signed events of unknown payments, and forged events."""
    world = scene.offender.world
    configure(world)
    path = f"/stripe/webhooks/{world.org}"
    webhooks = Webhooks(scene.ledger, world.org)
    genuine, signature = _event(webhooks, 1)
    taken = httpx.post(f"http://{HOST}:{scene.port}{path}", content=genuine, headers={"Stripe-Signature": signature})
    assert taken.status_code == 200, taken.text
    with scene.crowd([_rendered(path, *_event(webhooks, number)) for number in range(32)], 32):
        yield


def _event(webhooks: Webhooks, number: int) -> tuple[bytes, str]:
    """Return an event with its signature, which is valid for odd numbers."""
    intent = {"id": f"pi_{number}", "object": "payment_intent", "amount": 1, "amount_received": 1, "currency": "nok"}
    metadata = {"organization_id": webhooks.organization_id, "booking_id": bulk.new_ids()(number)}
    shown = intent | {"metadata": metadata, "status": "succeeded"}
    body = json.dumps(webhooks.of("payment_intent.succeeded", shown)).encode()
    secret = webhooks.secret if number % 2 else "whsec_of_nobody"
    return body, sign(body, secret, timestamp=system_clock() // SECOND)


def _rendered(path: str, body: bytes, signature: str) -> bytes:
    lines = (f"POST {path} HTTP/1.1", f"Host: {HOST}", f"Stripe-Signature: {signature}")
    lines += ("Content-Type: application/json", f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@contextmanager
def _sandbox_years_ahead(scene: Scene) -> Iterator[None]:
    """Move the clock of a sandbox ahead by two years: thousands of checkouts and mails become due."""
    world, url, soon = scene.offender.world, scene.url, system_clock() + 30 * DAY
    run(url, f"UPDATE organizations SET clock_offset = 0, notify_staff = true WHERE id = '{world.org}'")
    count = scene.size(20_000, 1_000)
    ids = bulk.bookings(
        url,
        world,
        scene.offender.departure,
        scene.offender.experience,
        count,
        status="pending",
        payment_status="pending",
        expires_at=soon,
    )
    payment = {
        "organization_id": world.org,
        "id": ids.of(url),
        "booking_id": ids.of(url),
        "status": "pending",
        "amount_minor": 89000,
    }
    now = dict.fromkeys(("created_at", "updated_at"), system_clock())
    bulk.insert(url, tables.payments, count, payment | {"currency": "NOK"} | now)
    body = json.dumps({"seconds": SANDBOX_CLOCK_AHEAD_S_MAX - 86_400}).encode()
    sandbox = replace(world, organization=replace(world.organization, clock_offset=0))
    head = {"Authorization": f"Bearer {sandbox.key()}", "Content-Type": "application/json"}
    advance = f"http://{HOST}:{scene.port}/api/v1/sandbox/clock/advance"
    moved = httpx.post(advance, content=body, headers=head)
    assert moved.status_code == 200, moved.text
    over = f"SELECT count(*) FROM bookings WHERE organization_id = '{world.org}' AND status = 'cancelled'"
    wait_until(lambda: bulk.value(url, over) > 0, "a checkout was cancelled")
    yield


@contextmanager
def _redelivery(scene: Scene) -> Iterator[None]:
    """Request the redelivery of each of 10,000 events."""
    world = scene.offender.world
    bulk.events(scene.url, world, scene.size(10_000, 2_000))
    endpoint = scene.endpoint(ACCEPTING)
    with bulk.connect(scene.url) as connection:
        rows = connection.execute(f"SELECT id FROM events WHERE organization_id = '{world.org}'").fetchall()
    path = f"/webhooks/{endpoint}/redeliver"
    requests = [scene.send("POST", path, json.dumps({"event_id": str(row[0])}).encode()) for row in rows]
    with scene.crowd(requests, 32):
        yield


@contextmanager
def _limited_endpoint(scene: Scene) -> Iterator[None]:
    """Let an endpoint with the lowest limit have a queue that takes days."""
    receiver = scene.receiver(ACCEPTING)
    scene.endpoint(url=receiver.url, max_per_second=1)
    bulk.waiting(scene.url, scene.offender.world, scene.size(250_000, 15_000))
    wait_until(lambda: bool(receiver.receipts), "the receiver was called")
    yield


MISBEHAVIOURS = (
    Misbehaviour("hanging-checkouts", "64 clients begin checkouts at a Stripe that hangs", _checkouts_that_hang),
    Misbehaviour("stripe-webhooks", "32 connections send events of one Stripe account", _stripe_webhooks),
    Misbehaviour("sandbox-years-ahead", "a sandbox's clock is moved by two years", _sandbox_years_ahead),
    Misbehaviour("redelivery", "32 clients ask for 10,000 events once more", _redelivery),
    Misbehaviour("limited-endpoint", "an endpoint with one request a second has 250,000 events", _limited_endpoint),
)
