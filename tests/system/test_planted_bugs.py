"""The checks can fail: each of these bugs is planted in a line of the service, and the doctor turns red.

The same story without a bug ends well: each finding is caused by the bug.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import Table, text
from support.databases import due
from support.databases.databases import drop_check
from support.world.creating import create, created
from support.world.hooks import Hooks, queue_rows
from support.world.operations import Operations
from support.world.world import HOUR, FixedClock, World, make_world

from booking_core import bookings, webhooks
from booking_core.base.clock import MINUTE
from booking_core.base.context import Actor
from booking_core.bookings import pricing as booking_pricing
from booking_core.bookings import rules as booking_rules
from booking_core.db import tables
from booking_core.db.engine import Database, Tx
from booking_core.db.statements import Statement
from booking_core.models.bookings import CancelReason, PaymentMethod, PaymentMode, PaymentSource, PaymentStatus
from booking_core.models.events import EventType
from booking_core.models.webhooks import SubscribableType, WebhookEndpointCreate
from booking_core.organizations import keys
from booking_core.payments import RefundOutcome, RefundResult, Returned
from booking_core.payments.gift_cards import service as gift_card_service
from booking_core.payments.gift_cards.rules import LockedCard
from booking_core.payments.rules import RefundRow
from booking_core.records import events
from booking_core.upkeep import doctor

EXACT = doctor.CheckOptions(skew_s=0)

Patch = Callable[[pytest.MonkeyPatch], None]
Act = Callable[[World], object]

pytestmark = pytest.mark.harmful


@pytest.fixture
def world(fresh_database_url: str) -> Iterator[World]:
    database = Database(fresh_database_url, clock=(clock := FixedClock()))
    yield make_world(database, clock)
    database.close()


# The faults ------------------------------------------------------------------------------------------------------


def scenario(world: World) -> None:
    """Run each kind of booking, payments and refunds, and a receiver of events: the scenario that a planted bug has to
    fail."""
    ops, hooks = Operations(world), Hooks(world)
    hooks.endpoint(*(EventType(f"booking.{kind}") for kind in ("created", "confirmed", "cancelled")))
    world.clock.advance(HOUR)
    experience = world.experience()
    departure, another = (
        world.departure(experience, starts_at=world.clock() + days * 24 * HOUR, seats=12) for days in (5, 6)
    )
    created(world.database, [create(world, departure, f"by-the-api-{number}") for number in range(2)])
    _, code = ops.issue(50_000)
    online = ops.check_out(departure, email="Grace@Example.com", gift_card_code=code)
    ops.pay(online["id"])
    staffed = ops.book(departure, email="alan@example.com")
    ops.reschedule(staffed["id"], another)
    world.clock.advance(HOUR)
    ops.cancel(staffed["id"])
    ops.cancel(online["id"], CancelReason.CUSTOMER)
    settle_refunds(world)
    hooks.succeed(*hooks.claim())


def settle_refunds(world: World) -> None:
    claimed = due.claim_refunds(world)
    answers = [RefundResult(each, RefundOutcome.REFUNDED, provider_refund_id="re_1") for each in claimed]
    world.database.write(lambda tx: bookings.settle_refunds(tx, answers))


def sold_out(world: World) -> None:
    departure = world.departure(world.experience(), seats=1)
    created(world.database, [create(world, departure, f"one-too-many-{number}") for number in range(2)])


def one_charge_for_two(world: World) -> None:
    ops, departure = Operations(world), world.departure(world.experience())
    for number in range(2):
        ops.pay(ops.check_out(departure, email=f"guest-{number}@example.com")["id"], "pi_1")


def held_and_booked(world: World) -> None:
    """Hold all the seats of a departure, and book one of them."""
    ops, departure = Operations(world), world.departure(world.experience(), seats=4)
    ops.hold(departure, 4)
    world.clock.advance(MINUTE)
    ops.book(departure)


def lowered_below_holds(world: World) -> None:
    """Lower the seats of a departure below the held and booked seats, as staff may, and cancel the booking."""
    ops, departure = Operations(world), world.departure(world.experience(), seats=4)
    ops.hold(departure, 3)
    booking = ops.book(departure)
    world.clock.advance(MINUTE)
    ops.set_seats(departure, 1)
    world.clock.advance(MINUTE)
    ops.cancel(booking["id"])


def paid_on_site(world: World) -> None:
    Operations(world).book(world.departure(world.experience()), payment=PaymentMode.PAY_ON_SITE)


def booked_by_a_known_guest(world: World) -> None:
    """Book for a guest who has booked before, beside another one whose customer staff changes afterwards."""
    ops, departure = Operations(world), world.departure(world.experience())
    for email in ("grace@example.com", "ada@example.com", "Ada@Example.com"):
        ops.book(departure, email=email)
        world.clock.advance(MINUTE)
    (grace,) = (row for row in world.rows(tables.customers) if row["email"] == "grace@example.com")
    ops.update_customer(grace["id"], name="Grace Hopper")


def key_with_another_scope(world: World) -> None:
    wanted = {"name": "one more", "scopes": ["bookings:erase"]}
    world.database.write(lambda tx: keys.create(tx, world.organization, **wanted, now=world.clock()))


def hold_for_ever(world: World) -> None:
    Operations(world).hold(world.departure(world.experience()), 1, for_s=74 * 366 * 86_400)


def purge_events(world: World) -> None:
    scenario(world)
    world.database.write(lambda tx: events.purge(tx, world.org, before=world.clock() - HOUR + 1, limit=3))


def purge_deliveries(world: World) -> None:
    scenario(world)
    world.clock.advance(HOUR)
    assert world.database.write(lambda tx: webhooks.purge(tx, before=world.clock(), limit=100))


def switch_off(world: World) -> None:
    hooks = Hooks(world)
    endpoint = hooks.endpoint(EventType.CUSTOMER_CREATED)
    Operations(world).book(world.departure(world.experience()))
    queue_rows(world)
    hooks.disable(endpoint)


def eleven_endpoints(world: World) -> None:
    types: list[SubscribableType] = [EventType.CUSTOMER_CREATED]
    wanted = WebhookEndpointCreate(url="https://receiver.example/hook", event_types=types)

    def work(tx: Tx) -> None:
        webhooks.create(tx, world.caller(), wanted, is_public=lambda _: True)

    for _ in range(11):
        world.database.write(work)


def twenty_one_keys(world: World) -> None:
    for _ in range(21):
        world.database.write(lambda tx: keys.create(tx, world.organization, name="one more", now=world.clock()))


# The findings ----------------------------------------------------------------------------------------------------


_MOVE, _ENTER = gift_card_service._move, gift_card_service._enter


def redeemed_alone(
    tx: Tx, actor: Actor, card: LockedCard, booking_id: str, kind: str, amount_minor: int, *, number: int = 0
) -> None:
    """Write redemptions, and no restorations."""
    if kind == "redeem":
        _MOVE(tx, actor, card, booking_id, kind, amount_minor, number=number)


def with_the_face_value(
    tx: Tx, actor: Actor, card: LockedCard, kind: str, amount_minor: int, **of_booking: object
) -> None:
    """Write the face value as the balance after each change."""
    shown = card.row._replace(balance_minor=card.row.initial_minor)
    _ENTER(tx, actor, card._replace(row=shown), kind, amount_minor, **of_booking)


def keyed_as_another(email: str) -> str:
    """Return the key of another guest for an address with capitals."""
    return email if email.islower() else "grace@example.com"


def returned_nothing(tx: Tx, refund: RefundRow, amount_minor: int, **_: object) -> Returned:
    return Returned(refund, 0, refund.payment_status)


def instead(target: str, replacement: object) -> Patch:
    """Return a patch that replaces a function of the core. Its module is looked up by its whole name, since a package
    may export a function of the same name."""
    owner, _, name = f"booking_core.{target}".rpartition(".")
    if owner in sys.modules:
        return lambda monkeypatch: monkeypatch.setattr(sys.modules[owner], name, replacement)
    return lambda monkeypatch: monkeypatch.setattr(f"{owner}.{name}", replacement)


def forgotten(target: str) -> Patch:
    """Return a patch that makes the call do nothing."""
    return instead(target, lambda *_, **__: None)


def other_numbers(replacement: object) -> Patch:
    """Replace `lock_sequences` for the publishing of events and for the packages that call it."""
    owners = ("records.events.publish", "records.events")
    patches = [instead(f"{owner}.lock_sequences", replacement) for owner in owners]

    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        for patch in patches:
            patch(monkeypatch)

    return apply


def never_written(table: Table) -> Patch:
    """Return a patch that writes the rows of a table after the commit, before which the process dies."""
    whole = Tx.insert

    def insert(self: Tx, target: Table, **row: object) -> None:
        if target is not table:
            whole(self, target, **row)

    return instead("db.engine.Tx.insert", insert)


def counted_by_max(tx: Tx, wanted: Any) -> dict[str, tuple[int, int]]:
    """Return the highest numbers in the rows, where the counters should be read."""
    highest = Statement(
        text(
            """SELECT o.id, (SELECT coalesce(max(b.booking_number), 0) FROM bookings b WHERE b.organization_id = o.id),
                      (SELECT coalesce(max(e.sequence), 0) FROM events e WHERE e.organization_id = o.id)
                 FROM organizations o"""
        )
    )
    with tx.no_autoflush():
        return {row[0]: (row[1], row[2]) for row in tx.all(highest)}


UNLIMITED_SEATS = instead("catalogue.departures.seats_available", lambda *_: 1_000_000)
PAID_ON_SITE = (PaymentMethod.PAY_ON_SITE, PaymentSource.ON_SITE, PaymentStatus.PAID)

_LOCK, _QUOTE, _PRESENT, _NEW_EVENT = (
    events.lock_sequences,
    booking_pricing.quote,
    booking_rules.present,
    events.NewEvent,
)


def one_too_many(tx: Tx, wanted: Any) -> dict[str, tuple[int, int]]:
    """Reserves one event more than is published."""
    return _LOCK(tx, {owner: (numbers, count + 1) for owner, (numbers, count) in wanted.items()})


def dearer(*arguments: Any) -> Any:
    quote = _QUOTE(*arguments)
    return quote._replace(subtotal_minor=quote.subtotal_minor + 1)


def with_link(kind: EventType, resource_id: str, shown: bytes, *extra: Any) -> events.NewEvent:
    link = b'"manage_url":"https://example.com/manage/secret"'
    return _NEW_EVENT(kind, resource_id, shown.replace(b'"manage_url":null', link), *extra)


def with_another_total(row: Any, zone: Any, manage: str | None = None) -> dict[str, Any]:
    return _PRESENT(row._replace(total_minor=row.total_minor + 1), zone, manage)


def without_seats(*arguments: Any) -> Any:
    return _QUOTE(*arguments)._replace(seats=0)


def for_another_reason(kind: EventType, resource_id: str, shown: bytes, extra: Any) -> events.NewEvent:
    return _NEW_EVENT(kind, resource_id, shown, {"reason": "admin"})


BUGS: dict[str, list[Patch]] = {
    "seats taken are the seats of pending and confirmed bookings": [
        forgotten("bookings.batch._write_seats"),
        forgotten("bookings.cancel._release_seats"),
    ],
    "booking numbers are 1 to n without a gap, and n is the counter": [other_numbers(counted_by_max)],
    "event sequences are dense up to the counter": [other_numbers(one_too_many)],
    "a booking has one event each for its creation, confirmation and cancellation": [never_written(tables.events)],
    "every API booking has the stored response of its idempotency key": [never_written(tables.idempotency)],
    "a booking has outbox rows for the mails to its guest, unless they were suppressed": [
        never_written(tables.effects)
    ],
    "a booking has outbox rows for the mails to staff where these are enabled": [never_written(tables.effects)],
    "a gift card's balance is the sum of its ledger, from its issue": [never_written(tables.gift_card_entries)],
    "each entry of a gift card's ledger has the balance after it": [
        instead("payments.gift_cards.service._enter", with_the_face_value)
    ],
    "a gift card is restored once, when the booking is cancelled": [
        instead("payments.gift_cards.service._move", redeemed_alone)
    ],
    "a payment's refunded amount agrees with its refund": [
        instead("payments.refunds.record_returned", returned_nothing)
    ],
    "each refund that returned money has one event": [forgotten("bookings.refunds._publish")],
    "an event has a delivery for each endpoint that subscribes to its type": [forgotten("webhooks.filling._insert")],
    "a subtotal is the sum of its lines, in one currency": [instead("bookings.pricing.quote", dearer)],
    "an event's body agrees with its row, and contains no secret": [
        instead("bookings.drafts.NewEvent", with_link),
        instead("bookings.rules.present", with_another_total),
        instead("bookings.cancel.NewEvent", for_another_reason),
    ],
    "payments and refunds in the timeline exist": [never_written(tables.refunds)],
    "a paid booking that was cancelled has the refund that the policy requires": [
        instead("payments.request_refund", lambda *_, **__: 0)
    ],
    "a booking takes the seats of its guests": [instead("bookings.pricing.quote", without_seats)],
    "a customer's key is the normalised e-mail address": [instead("customers.store.email_key", lambda email: email)],
    "the creation of a booking is in the timeline of its customer": [never_written(tables.timeline)],
}
"""Bugs that the scenario shows, by the invariant that finds them."""

BUGS_ELSEWHERE: dict[Act, dict[str, Patch]] = {
    purge_deliveries: {"an event has a delivery for each endpoint that subscribes to its type": lambda _: None},
    purge_events: {"no event is purged before its retention ends": lambda _: None},
    one_charge_for_two: {"a payment intent pays for one booking": forgotten("payments.service._check_unused")},
    hold_for_ever: {"no timestamp is further in the future than its limit": forgotten("bookings.storefront._check")},
    held_and_booked: {"live holds keep no more seats than were left for them": UNLIMITED_SEATS},
    booked_by_a_known_guest: {
        "a booking's customer has the e-mail address of its guest": instead(
            "bookings.capacity.email_key", keyed_as_another
        )
    },
    paid_on_site: {
        "a booking's payment method allows its payment status": instead(
            "bookings.pricing.payment", lambda *_: PAID_ON_SITE
        )
    },
    key_with_another_scope: {"the scopes of an API key exist": instead("organizations.keys.checked_scopes", frozenset)},
    switch_off: {
        "no delivery is queued for a disabled endpoint": forgotten("webhooks.following.fail_queued"),
        "an endpoint has its place in the log, and misses what occurs while it is disabled": instead(
            "webhooks.following.DISABLE", ()
        ),
    },
    eleven_endpoints: {"an organization has at most 10 endpoints": forgotten("webhooks.rules.check_limit")},
    twenty_one_keys: {"an organization has at most 20 active keys": forgotten("organizations.keys.require_room")},
}
"""Bugs that something else shows."""

PLANTED = [
    *((scenario, bug, invariant) for invariant, bugs in BUGS.items() for bug in bugs),
    *((act, bug, invariant) for act, bugs in BUGS_ELSEWHERE.items() for invariant, bug in bugs.items()),
]


def found(world: World) -> set[str]:
    findings = world.database.read(lambda tx: doctor.examine(tx, options=EXACT))
    return {finding.invariant for finding in findings}


HEALTHY = (scenario, switch_off, lowered_below_holds, paid_on_site, booked_by_a_known_guest)


@pytest.mark.parametrize("act", HEALTHY, ids=lambda act: act.__name__)
def test_without_a_bug_nothing_is_found(world: World, act: Act) -> None:
    act(world)
    assert world.rows(tables.events)
    assert found(world) == set()


@pytest.mark.exhaustive(but="sqlite")
@pytest.mark.parametrize(("act", "plant", "invariant"), PLANTED, ids=[invariant for _, _, invariant in PLANTED])
def test_a_planted_bug_is_found(
    world: World, monkeypatch: pytest.MonkeyPatch, act: Act, plant: Patch, invariant: str
) -> None:
    plant(monkeypatch)
    act(world)
    assert invariant in found(world)


def test_seats_that_nobody_guards_are_oversold_and_found(
    fresh_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop_check(fresh_database_url, "departures", "ck_departures_seats_taken")
    UNLIMITED_SEATS(monkeypatch)
    with closing(Database(fresh_database_url, clock=(clock := FixedClock()))) as database:
        sold_out(world := make_world(database, clock))
        assert found(world) == {"no departure is sold beyond its highest capacity"}


def test_the_schema_refuses_a_second_time_what_the_code_lets_through(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    UNLIMITED_SEATS(monkeypatch)
    with pytest.raises(Exception, match=r"(?i)check"):
        sold_out(world)
    assert found(world) == set()
