"""A sandbox over HTTP: its clock, its keys and its captured mails. The work of its worker: `test_sandboxes.py`."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from support.api.api import Api, body_of, booking_body, error_of
from support.api.refusals import conflict_reason, nothing_changes, reason_of
from support.databases import due
from support.receivers.stripe_ledger import stripe
from support.world import checkouts
from support.world.checkouts import checkout_body
from support.world.mails import SENDER
from support.world.world import DAY, HOUR, NOON, FixedClock, World

from booking_core import bookings, notifications, organizations
from booking_core.base import tokens
from booking_core.base.clock import MINUTE, SECOND
from booking_core.base.context import Organization
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.models.scopes import Scope
from booking_core.organizations import keys

NOON_TEXT = "2026-11-21T13:00:00+01:00"
AHEAD_S = 731 * 86_400


def advance(sandbox: Api, **body: Any) -> Any:
    return sandbox.post("/sandbox/clock/advance", body)


@pytest.mark.one_database
def test_a_new_sandbox_shows_the_real_time(sandbox: Api) -> None:
    due = {"bookings": 0, "departures": 0, "payments": 0, "refunds": 0, "mails": 0, "deliveries": 0}
    expected = {"now": NOON_TEXT, "offset_seconds": 0, "status": "ready", "due": due}
    assert sandbox.get("/sandbox/clock").json() == expected


def test_everything_that_a_sandbox_does_is_dated_by_its_clock(sandbox: Api, api: Api) -> None:
    departure = sandbox.world.departure(sandbox.world.experience(), starts_at=NOON + 30 * DAY)
    assert advance(sandbox, seconds=86_400).json()["now"] == "2026-11-22T13:00:00+01:00"
    booking = sandbox.book(departure).json()
    assert booking["created_at"] == "2026-11-22T13:00:00+01:00"
    assert {event["created_at"] for event in sandbox.get("/events").json()["data"]} == {"2026-11-22T13:00:00+01:00"}
    assert sandbox.cancel(booking["id"]).json()["updated_at"] == "2026-11-22T13:00:00+01:00"
    live = api.book(api.world.departure(api.world.experience())).json()
    assert live["created_at"] == NOON_TEXT


def test_a_departure_that_the_clock_has_passed_is_no_longer_sold(sandbox: Api) -> None:
    departure = sandbox.world.departure(sandbox.world.experience(), starts_at=NOON + HOUR)
    assert sandbox.get(f"/departures/{departure}").json()["status"] == "open"
    advance(sandbox, seconds=3600)
    assert sandbox.get(f"/departures/{departure}").json()["status"] == "closed"
    assert error_of(sandbox.book(departure)) == (409, "conflict")


def test_the_seats_of_a_hold_are_free_after_its_end(sandbox: Api, api: Api) -> None:
    for tenant, status in ((sandbox, 201), (api, 409)):
        departure = tenant.world.departure(tenant.world.experience(), seats=1)
        row = {"departure_id": departure, "seats": 1, "created_at": NOON, "expires_at": NOON + HOUR}
        tenant.world.insert(tables.holds, **row)
        assert tenant.book(departure).status_code == 409
        if tenant is sandbox:
            advance(sandbox, seconds=3600)
        assert tenant.book(departure).status_code == status


def test_the_clock_moves_to_an_instant(sandbox: Api) -> None:
    assert advance(sandbox, to="2026-12-24T09:00").json()["now"] == "2026-12-24T09:00:00+01:00"
    clock = sandbox.get("/sandbox/clock").json()
    moved = datetime.fromisoformat("2026-12-24T09:00:00+01:00") - datetime.fromisoformat(NOON_TEXT)
    assert timedelta(seconds=clock["offset_seconds"]) == moved


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"to": "2026-11-21T12:59:59+01:00"}, (422, "validation_failed")),
        ({"seconds": AHEAD_S, "to": NOON_TEXT}, (400, "validation_failed")),
        ({"to": "soon"}, (400, "validation_failed")),
        ({}, (400, "validation_failed")),
        ({"seconds": 0}, (400, "validation_failed")),
        ({"seconds": -1}, (400, "validation_failed")),
        ({"seconds": AHEAD_S + 1}, (400, "validation_failed")),
        ({"seconds": 1.5}, (400, "validation_failed")),
    ],
)
def test_an_advance_that_is_refused_moves_nothing(sandbox: Api, body: Any, expected: tuple[int, str]) -> None:
    assert error_of(advance(sandbox, **body)) == expected
    assert sandbox.get("/sandbox/clock").json()["offset_seconds"] == 0


@pytest.mark.one_database
def test_the_clock_goes_as_far_ahead_as_it_may_and_no_further(sandbox: Api) -> None:
    assert advance(sandbox, seconds=AHEAD_S - 60).status_code == 200
    refused = advance(sandbox, seconds=61)
    assert (error_of(refused), reason_of(refused)) == ((422, "validation_failed"), "too_far_ahead")
    assert advance(sandbox, seconds=60).json()["offset_seconds"] == AHEAD_S


@pytest.mark.one_database
def test_a_live_organization_has_no_clock_to_move_and_no_captured_mails(api: Api) -> None:
    with nothing_changes(api.world, leaving_out=("idempotency",)):  # refusals are kept for their keys
        for refused in (
            api.get("/sandbox/clock"),
            api.post("/sandbox/clock/advance", {"seconds": 60}),
            api.get("/sandbox/mails"),
        ):
            assert conflict_reason(refused) == "not_a_sandbox"


def test_the_clock_of_another_sandbox_stays(sandbox: Api, new_world: Callable[..., World]) -> None:
    other = Api(sandbox.client, new_world(clock_offset=0))
    advance(sandbox, seconds=60)
    assert other.get("/sandbox/clock").json()["offset_seconds"] == 0


@pytest.mark.one_database
def test_every_key_reads_the_clock_and_only_writers_move_it(sandbox: Api) -> None:
    reader = sandbox.with_scopes(Scope.EXPERIENCES_READ)
    assert reader.get("/sandbox/clock").status_code == 200
    assert error_of(advance(reader, seconds=60)) == (403, "insufficient_scope")
    assert error_of(reader.get("/sandbox/mails")) == (403, "insufficient_scope")


@pytest.mark.one_database
def test_captured_mails_are_listed_page_by_page(sandbox: Api) -> None:
    sandbox.book(sandbox.world.departure(sandbox.world.experience()))
    world = sandbox.world
    write = lambda tx, owner, rows: notifications.write(tx, world.installation, owner, rows, sender=SENDER)  # noqa: E731
    world.database.write(lambda tx: due.process(tx, world.org, notifications.OWED, write))
    assert sandbox.get("/sandbox/mails").json()["data"] == []
    for row in world.rows(tables.mails):
        world.change(tables.mails, row["id"], status="sent", sent_at=NOON, completed_at=NOON, next_attempt_at=None)
    first, second = sandbox.pages("/sandbox/mails", limit=1, order="asc")
    mails = {mail["kind"]: mail for page in (first, second) for mail in page["data"]}
    assert mails.keys() == {"booking_confirmation_mail", "staff_booking_mail"}
    mail = mails["booking_confirmation_mail"]
    assert mail["recipient"] == "ada@example.com"
    assert "/manage/" in mail["text"]
    assert "/manage/" in mail["html"]
    newest = sandbox.get("/sandbox/mails").json()["data"]
    assert newest == [*second["data"], *first["data"]]


# Payments ------------------------------------------------------------------------------------------------------------


def check_out(sandbox: Api) -> dict[str, Any]:
    departure = sandbox.world.departure(sandbox.world.experience(), starts_at=NOON + 30 * DAY)
    return dict(body_of(sandbox.post("/checkouts", checkout_body(departure, 1)), 201))


def pay(sandbox: Api, checkout_id: str, *card: str) -> Any:
    return sandbox.post(f"/sandbox/checkouts/{checkout_id}/pay", {"payment_method": card[0]} if card else None)


def test_a_checkout_of_a_sandbox_has_an_intent_without_stripe(sandbox: Api) -> None:
    with stripe() as ledger, checkouts.calling(sandbox.client, ledger):
        checkout = check_out(sandbox)
        payment = checkout["payment"]
        assert payment["intent_id"].startswith("pi_test_")
        assert payment["client_secret"].startswith(f"{payment['intent_id']}_secret_")
        assert payment["publishable_key"] is None
        assert payment["amount"] == checkout["booking"]["totals"]["total"]
        assert sandbox.get(f"/checkouts/{checkout['id']}").json()["payment"] == payment
        assert pay(sandbox, checkout["id"]).json()["status"] == "succeeded"
        assert ledger.requests == []
    assert sandbox.world.examine() == []


@pytest.mark.one_database
def test_a_declined_card_leaves_the_checkout_open_for_another_card(sandbox: Api) -> None:
    checkout = check_out(sandbox)
    for _ in range(2):
        declined = pay(sandbox, checkout["id"], "pm_card_chargeDeclined").json()
        assert (declined["status"], declined["error"]) == ("declined", "card_declined")
        assert declined["checkout"] == checkout | {"booking": declined["checkout"]["booking"]}
        assert declined["checkout"]["booking"]["status"] == "pending"
    paid = pay(sandbox, checkout["id"]).json()
    assert (paid["status"], paid["error"], paid["checkout"]["payment"]["client_secret"]) == ("succeeded", None, None)
    assert paid["checkout"]["booking"]["payment"]["status"] == "paid"
    assert sandbox.event_types() == ["customer.created", "booking.created", "booking.confirmed"]
    assert conflict_reason(pay(sandbox, checkout["id"])) == "paid_already"
    assert sandbox.world.examine() == []


def test_a_payment_after_the_end_of_the_checkout_is_returned(sandbox: Api) -> None:
    checkout = check_out(sandbox)
    advance(sandbox, seconds=31 * 60)
    assert sandbox.get("/sandbox/clock").json()["due"]["bookings"] == 1

    def abandon(tx: Tx) -> None:
        tx.instant = NOON + 31 * MINUTE
        bookings.abandon(tx, sandbox.world.installation, sandbox.world.org, [checkout["id"]])

    sandbox.world.database.write(abandon)
    paid = pay(sandbox, checkout["id"]).json()
    assert (paid["status"], paid["checkout"]["booking"]["status"]) == ("succeeded", "cancelled")
    (refund,) = sandbox.world.rows(tables.refunds)
    assert (refund["status"], refund["amount_minor"]) == ("requested", 89_000)


def test_only_checkouts_of_the_own_sandbox_are_paid_by_test_cards(
    sandbox: Api, api: Api, new_world: Callable[..., World]
) -> None:
    checkout, departure = check_out(sandbox), sandbox.world.departure(sandbox.world.experience(), starts_at=NOON + DAY)
    other = Api(sandbox.client, new_world(clock_offset=0))
    assert error_of(pay(other, checkout["id"])) == (404, "not_found")
    assert error_of(pay(sandbox, sandbox.book(departure).json()["id"])) == (404, "not_found")
    assert conflict_reason(pay(api, checkout["id"])) == "not_a_sandbox"
    assert error_of(pay(sandbox, checkout["id"], "pm_card_amex")) == (400, "validation_failed")
    assert error_of(pay(sandbox.with_scopes(Scope.BOOKINGS_WRITE), checkout["id"])) == (403, "insufficient_scope")
    assert pay(sandbox.with_scopes(Scope.CHECKOUTS_WRITE), checkout["id"]).status_code == 200


# Keys ----------------------------------------------------------------------------------------------------------------


@pytest.mark.one_database
def test_a_key_of_a_sandbox_says_so(sandbox: Api, api: Api) -> None:
    def new_key(world: World) -> str:
        work = lambda tx: keys.create(tx, world.organization, name="made", now=NOON)  # noqa: E731
        return world.database.write(work)[1]

    assert new_key(sandbox.world).startswith("svc_test_")
    assert not new_key(api.world).startswith("svc_test_")
    assert len(new_key(sandbox.world)) == len(new_key(api.world)) == 44
    prefix = sandbox.get("/me").json()["key"]["prefix"]
    assert sandbox.key.startswith(prefix)
    assert len(prefix) == len("svc_test_") + 8


@pytest.mark.one_database
@pytest.mark.parametrize("is_test", [True, False])
def test_a_key_of_the_wrong_kind_is_refused(
    new_world: Callable[..., World], api: Api, is_test: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = new_world(clock_offset=None if is_test else 0)
    new_key = tokens.new_api_key
    monkeypatch.setattr(tokens, "new_api_key", lambda cell="", **_: new_key(cell, is_test=is_test))
    mixed_up = Api(api.client, world, world.key())
    assert error_of(mixed_up.get("/me")) == (401, "api_key_invalid")
    departure = world.departure(world.experience())
    assert error_of(mixed_up.post("/bookings", booking_body(departure))) == (401, "api_key_invalid")


def test_a_key_expires_by_the_clock_of_its_sandbox(sandbox: Api, clock: FixedClock) -> None:
    short = sandbox.with_scopes(Scope.BOOKINGS_READ, expires_at=clock() + HOUR)
    assert short.get("/me").status_code == 200
    advance(sandbox, seconds=3600)
    assert error_of(short.get("/me")) == (401, "api_key_expired")


@pytest.mark.one_database
def test_no_setting_makes_a_sandbox_live_or_a_live_organization_a_sandbox(sandbox: Api, api: Api) -> None:
    for tenant in (sandbox, api):
        world = tenant.world
        stored: Organization = world.database.read(lambda tx, world=world: organizations.by_id(tx, world.org))
        assert "clock_offset" not in organizations.present_settings(stored)


# Cost ----------------------------------------------------------------------------------------------------------------


def test_a_sandbox_whose_clock_was_moved_costs_a_request_no_statement_more(
    sandbox: Api, api: Api, statements: list[str]
) -> None:
    def costs(tenant: Api) -> list[int]:
        departure = tenant.world.departure(tenant.world.experience(), starts_at=NOON + 30 * DAY)
        counts = []
        for send in (lambda: tenant.get("/me"), lambda: tenant.get("/bookings"), lambda: tenant.book(departure)):
            send()
            statements.clear()
            send()
            counts.append(len(statements))
        return counts

    assert advance(sandbox, seconds=HOUR // SECOND).status_code == 200
    assert costs(sandbox) == costs(api)
