"""The day of a departure: its manifest, check-in and no-show."""

from typing import Any

import pytest
from support.api.api import Api, body_of
from support.api.refusals import conflict_reason, nothing_changes, refused
from support.world.operations import Operations
from support.world.world import DAY, NOON

from booking_core import bookings
from booking_core.base.clock import MINUTE
from booking_core.db import tables
from booking_core.models import limits
from booking_core.models.bookings import PaymentMode
from booking_core.models.manifests import Manifest

SEATS = 100  # of the fixture `departure`


def attended(api: Api, booking_id: str, verb: str, **arguments: Any) -> dict[str, Any]:
    return dict(body_of(api.call("POST", f"/bookings/{booking_id}/{verb}", **arguments)))


@pytest.mark.parametrize(
    ("verb", "field", "other", "kinds"),
    [
        ("check-in", "checked_in_at", "no_show_at", ["booking_checked_in", "booking_check_in_undone"]),
        ("no-show", "no_show_at", "checked_in_at", ["booking_no_show", "booking_no_show_undone"]),
    ],
)
def test_the_first_time_counts_until_it_is_taken_back(
    api: Api, ops: Operations, departure: str, verb: str, field: str, other: str, kinds: list[str]
) -> None:
    booking = api.book(departure).json()
    api.world.clock.advance(MINUTE)
    first = attended(api, booking["id"], verb)
    assert (first[field], first[other], first["updated_at"]) == (first["updated_at"], None, "2026-11-21T13:01:00+01:00")
    assert first | {field: None, "updated_at": booking["updated_at"]} == booking
    assert ops.noted(booking["id"]) == sorted(["booking_created", kinds[0]])
    api.world.clock.advance(MINUTE)
    with nothing_changes(api.world):
        assert attended(api, booking["id"], verb, json={"undo": False}) == first
    undone = attended(api, booking["id"], verb, json={"undo": True})
    assert (undone[field], undone["updated_at"]) == (None, "2026-11-21T13:02:00+01:00")
    with nothing_changes(api.world):
        assert attended(api, booking["id"], verb, json={"undo": True}) == undone
    assert [kind for kind in ops.noted(booking["id"]) if kind != "booking_created"] == sorted(kinds)
    assert ops.event_types(booking["id"]) == ["booking.created", "booking.confirmed", *["booking.updated"] * 2]


def test_the_last_word_of_staff_counts(api: Api, departure: str) -> None:
    booking_id = api.book(departure).json()["id"]
    attended(api, booking_id, "no-show")
    assert attended(api, booking_id, "check-in")["no_show_at"] is None
    assert attended(api, booking_id, "no-show")["checked_in_at"] is None
    row = api.world.row(tables.bookings, booking_id)
    assert (row["checked_in_at"], row["no_show_at"]) == (None, NOON)


@pytest.mark.parametrize("verb", ["check-in", "no-show"])
def test_only_confirmed_bookings_come_or_do_not_come(api: Api, ops: Operations, departure: str, verb: str) -> None:
    pending, cancelled = ops.check_out(departure)["id"], api.book(departure).json()["id"]
    api.cancel(cancelled)
    with nothing_changes(api.world):
        for booking_id, reason in ((pending, "booking_pending"), (cancelled, "booking_cancelled")):
            answer = api.call("POST", f"/bookings/{booking_id}/{verb}", json={})
            assert conflict_reason(answer) == reason
        for body in ({"undo": "yes"}, {"undo": 1}):
            refused(api.call("POST", f"/bookings/{pending}/{verb}", json=body), 400, "validation_failed")


def test_a_move_to_another_departure_clears_what_was_of_the_first(api: Api, ops: Operations, departure: str) -> None:
    booking_id = api.book(departure).json()["id"]
    attended(api, booking_id, "no-show")
    moved = ops.reschedule(booking_id, api.world.departure(api.world.experience(), starts_at=NOON + 4 * DAY))
    assert (moved["no_show_at"], moved["checked_in_at"]) == (None, None)
    assert api.world.row(tables.bookings, booking_id)["no_show_at"] is None


def test_a_check_in_takes_statements_only_for_locks_and_its_write(
    api: Api, departure: str, statements: list[str]
) -> None:
    booking_id = api.book(departure).json()["id"]
    statements.clear()
    attended(api, booking_id, "check-in")
    # The key; locked, read; the sequence of the event; written
    assert len(statements) == (5 if not api.world.database.is_sqlite else 7)
    statements.clear()
    attended(api, booking_id, "check-in")
    assert len(statements) == 3


def test_a_manifest_has_the_fields_of_its_model_and_unpaid_amounts(api: Api, ops: Operations, departure: str) -> None:
    partly = ops.book(departure, 2, payment=PaymentMode.PAY_ON_SITE)["id"]
    ops.act(lambda tx, actor: bookings.record_payment(tx, actor, partly, amount_minor=100_000))
    pending = ops.check_out(departure, email="grace@example.com")["id"]
    api.world.change(tables.bookings, partly, booking_number=3)
    manifest = api.get(f"/departures/{departure}/manifest").json()
    assert Manifest.model_validate(manifest).to_json() == manifest
    unpaid = [(row["id"], row["unpaid"]["amount_minor"]) for row in manifest["data"]]
    assert unpaid == [(pending, 89_000), (partly, 78_000)], "by number where the names are equal"
    assert manifest["totals"]["unpaid"] == [{"amount_minor": 167_000, "currency": "NOK"}]
    for booking in manifest["data"]:
        unpaid_amount = booking.pop("unpaid")
        assert unpaid_amount["currency"] == "NOK"
        assert booking == api.get(f"/bookings/{booking['id']}").json() | {"manage_url": None}
    available = api.get(f"/departures/{departure}").json()
    assert {name: manifest["departure"][name] for name in available} == available


def test_a_manifest_takes_five_statements_however_many_come(api: Api, departure: str, statements: list[str]) -> None:
    for _ in range(3):
        api.book(departure)
    statements.clear()
    assert len(api.get(f"/departures/{departure}/manifest").json()["data"]) == 3
    assert len(statements) == 5  # the key, the departure, its experience, the counts, the bookings


def test_more_bookings_than_a_manifest_holds_are_refused(
    api: Api, ops: Operations, departure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        api.book(departure)
    render = bookings.render_manifest
    monkeypatch.setattr(bookings, "render_manifest", lambda *arguments: render(*arguments, limit=2))
    assert conflict_reason(api.get(f"/departures/{departure}/manifest")) == "manifest_too_large"
    assert len(ops.act(lambda tx, actor: bookings.manifest(tx, actor, departure))["data"]) == 3
    assert limits.MANIFEST_BOOKINGS_MAX == 1_000
