"""The guest's pages: content, cancellation and errors."""

import re
from typing import Any

import pytest
from support.api.api import Api
from support.api.endpoints import DOCUMENT
from support.browser.guest_pages import Guest, text_of
from support.world.operations import Operations
from support.world.world import HOUR, FixedClock

from booking_core import bookings, notifications
from booking_core.db import tables
from booking_server.execution.executor import busy
from booking_server.transport.admission import Admission

pytestmark = pytest.mark.one_database


@pytest.fixture
def guest(api: Api) -> Guest:
    return Guest(api)


# The booking -----------------------------------------------------------------------------------------------------


def test_the_page_shows_the_booking(api: Api) -> None:
    guest = Guest(api, guests=[{"tier_id": "adult", "count": 2}], add_ons=[{"id": "drysuit", "count": 1}])
    response = guest.open()
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    page_text = text_of(response)
    for text in (
        "Fjord Tours", "Fjord kayak", "Confirmed", f"Booking {guest.booking['booking_number']}", "Ada Lovelace",
        "Monday 23 November 2026, 13:00–15:30", "Europe/Oslo, UTC+01:00", "2 × Adult", "890.00 NOK each",
        "1,780.00 NOK",
        "1 × Dry suit", "Total 1,930.00 NOK", "To be paid on arrival", "Cancel this booking", "staff@example.com",
    ):  # fmt: skip
        assert text in page_text


def test_the_pages_have_no_scripts_and_strict_headers(guest: Guest) -> None:
    for after in ("", "/cancel"):
        response = guest.open(after)
        assert not re.search(r"<script|<img|<link|<iframe|\son\w+=|\ssrc=|javascript:", response.text)
        headers = response.headers
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["form-action"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert set(policy) == {"default-src", "style-src", "form-action", "base-uri", "frame-ancestors"}
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["referrer-policy"] == "no-referrer"
        assert headers.get_list("cache-control") == ["no-store"]
        assert "noindex" in headers["x-robots-tag"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(
    "typed",
    [
        *("<script>alert(1)</script>", '"><b onmouseover=x>', "{{ 7 * 7 }}"),
        *("שלום \u202eevil", "Ada\u2028x", "👩‍🚀", "x" * 200),
    ],
)
def test_text_of_guests_and_organizations_is_escaped(api: Api, typed: str) -> None:
    world = api.world
    guest = Guest(api, departure_id=world.departure(world.experience(title=typed, address=typed)))
    world.change(tables.bookings, guest.booking["id"], guest_name=typed, cancel_note=typed)
    world.change(tables.organizations, world.org, name=typed)
    for after in ("", "/cancel"):
        response = guest.open(after)
        assert response.status_code == 200
        assert "<script" not in response.text
        assert "<b onm" not in response.text
        assert " ".join(typed.split()) in text_of(response).replace("&#34;", '"') or "<" in typed
        assert response.text.count("<main>") == response.text.count("</main>") == 1


def test_a_legacy_booking_without_number_and_lines_is_shown(guest: Guest) -> None:
    legacy = {"booking_number": None, "source": None, "guests": "[]", "add_ons": "[]", "guest_name": None}
    guest.api.world.change(tables.bookings, guest.booking["id"], **legacy)
    assert guest.open().status_code == 200


# Cancelling ------------------------------------------------------------------------------------------------------


def test_a_get_changes_nothing(guest: Guest) -> None:
    before = guest.row
    for after in ("", "/cancel", "?cancel=1", "/cancel?offer=0"):
        assert guest.open(after).status_code == 200
        assert guest.call("HEAD", guest.path + after).status_code == 200
    assert guest.row == before


def test_the_guest_cancels_with_the_form(guest: Guest, clock: FixedClock) -> None:
    form = guest.open("/cancel")
    assert "Cancel this booking?" in text_of(form)
    assert f'action="{guest.path}/cancel"' in form.text
    clock.advance(1)
    redirect = guest.confirm(re.findall(r'name="offer" value="(\d+)"', form.text)[0])
    assert (redirect.status_code, redirect.headers["location"]) == (303, guest.path)
    row = guest.row
    assert (row["status"], row["cancel_reason"], row["cancelled_at"]) == ("cancelled", "customer", clock())
    page_text = text_of(guest.open())
    assert "Cancelled It was cancelled as you asked." in page_text
    assert "Cancel this booking" not in page_text
    assert "Nothing to pay" in page_text
    assert guest.api.event_types()[-1] == "booking.cancelled"
    assert guest.api.world.examine() == []


def test_a_cancellation_on_the_page_reads_its_booking_once(guest: Guest, statements: list[str]) -> None:
    guest.confirm()
    assert guest.row["status"] == "cancelled"
    columns = "SELECT bookings.id, bookings.customer_id, bookings.seats"
    assert sum(text.startswith(columns) for text in statements) == 1


def test_cancelling_twice_is_one_cancellation(guest: Guest) -> None:
    assert [guest.confirm().status_code for _ in range(3)] == [303, 303, 303]
    assert guest.api.event_types().count("booking.cancelled") == 1
    (departure,) = guest.api.world.rows(tables.departures)
    assert departure["seats_taken"] == 0
    assert "Cancel this booking?" not in text_of(guest.open("/cancel"))


@pytest.mark.parametrize(
    ("late_percent", "at_gateway", "hours_before", "text", "offer"),
    [
        (30, 0, 25, "890.00 NOK is returned to your card.", 89000),
        (30, 0, 23, "267.00 NOK of 890.00 NOK is returned to your card.", 26700),
        (50, 30000, 25, "590.00 NOK is returned to your card.", 59000),
        (50, 30000, 23, "445.00 NOK of 590.00 NOK is returned to your card.", 44500),
        (0, 89000, 25, "What you paid was returned before.", 0),
        (0, 0, 1, "too late for a refund: of the 890.00 NOK that you paid nothing is returned", 0),
    ],
    ids=["all", "a part", "the rest", "a part of the rest", "nothing is left", "too late"],
)
def test_the_offered_refund_is_the_one_that_becomes_owed(
    guest: Guest, clock: FixedClock, late_percent: int, at_gateway: int, hours_before: int, text: str, offer: int
) -> None:
    world = guest.api.world
    world.change(tables.organizations, world.org, refund_late_percent=late_percent)
    guest.pay_by_card()
    if at_gateway:
        guest.refund_at_gateway(at_gateway)
    (departure,) = world.rows(tables.departures)
    clock.at = departure["starts_at"] - hours_before * HOUR
    terms = guest.api.get(f"/bookings/{guest.booking['id']}").json()["cancellation"]
    assert terms["refundable_amount"]["amount_minor"] == offer
    assert text in text_of(guest.open("/cancel"))
    assert guest.confirm(offer).status_code == 303
    assert [row["amount_minor"] for row in world.rows(tables.refunds)] == ([offer] if offer else [])
    notice = f"{text.partition(' NOK')[0]} NOK will be returned to you, normally to the card that paid."
    assert (notice in text_of(guest.open())) is (offer > 0)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"status": "needs_review", "last_error": "no_gateway"}, "Fjord Tours will make the refund by hand."),
        ({"status": "failed", "first_sent_at": 1}, "It could not be returned to the card that paid, so Fjord Tours"),
        ({"status": "needs_review", "first_sent_at": 1}, "Fjord Tours is checking whether it has reached the card"),
        ({"status": "succeeded", "first_sent_at": 1}, "890.00 NOK was returned to the card that paid."),
        ({"status": "settled", "settled_minor": 89000}, "890.00 NOK was returned to you by Fjord Tours."),
    ],
)
def test_the_page_shows_the_state_of_the_refund(guest: Guest, columns: dict[str, Any], text: str) -> None:
    guest.pay_by_card()
    assert guest.confirm(89000).status_code == 303
    world = guest.api.world
    (refund,) = world.rows(tables.refunds)
    world.change(tables.refunds, refund["id"], **columns)
    page_text = text_of(guest.open())
    assert text in page_text
    assert "did not accept" not in page_text


def test_a_payment_by_hand_is_returned_by_hand(guest: Guest) -> None:
    """The booking of the fixture is paid on site."""
    ops, booking_id = Operations(guest.api.world), guest.booking["id"]
    ops.act(lambda tx, actor: bookings.record_payment(tx, actor, booking_id, amount_minor=40000))
    assert "400.00 NOK paid, 490.00 NOK to be paid on arrival" in text_of(guest.open())
    assert "400.00 NOK is returned to you by Fjord Tours." in text_of(guest.open("/cancel"))
    assert guest.confirm(0).status_code == 409
    assert guest.confirm(40000).status_code == 303
    (refund,) = guest.api.world.rows(tables.refunds)
    assert (refund["amount_minor"], refund["status"]) == (40000, "needs_review")
    assert "400.00 NOK is to be returned to you. Fjord Tours will make the refund by hand." in text_of(guest.open())


def test_a_currency_with_three_decimals_offers_an_amount_that_can_be_returned(guest: Guest) -> None:
    world = guest.api.world
    guest.pay_by_card(12345)
    (payment,) = world.rows(tables.payments)
    world.change(tables.payments, payment["id"], currency="KWD")
    world.change(tables.bookings, guest.booking["id"], currency="KWD")
    assert "12.340 KWD of 12.345 KWD is returned to your card." in text_of(guest.open("/cancel"))
    assert guest.confirm(12340).status_code == 303
    assert [row["amount_minor"] for row in world.rows(tables.refunds)] == [12340]


@pytest.mark.parametrize("body", [{"offer": "89000"}, {"offer": "x"}, {"offer": ""}, {}, {"other": "0"}])
def test_a_cancellation_with_another_offer_is_refused(guest: Guest, clock: FixedClock, body: dict[str, str]) -> None:
    guest.pay_by_card()
    clock.advance(47 * HOUR)  # meanwhile the time of the full refund had ended
    response = guest.call("POST", f"{guest.path}/cancel", data=body)
    assert response.status_code == 409
    assert "has changed since you opened this page" in text_of(response)
    assert guest.row["status"] == "confirmed"


def test_the_page_names_the_amount_that_returns_to_the_gift_card(guest: Guest) -> None:
    part = {"gift_card_minor": 10000, "total_minor": 79000}
    guest.api.world.change(tables.bookings, guest.booking["id"], **part)
    assert "100.00 NOK goes back to your gift card" in text_of(guest.open("/cancel"))


def test_a_booking_that_has_begun_cannot_be_cancelled(guest: Guest, clock: FixedClock) -> None:
    clock.advance(48 * HOUR)
    page_text = text_of(guest.open())
    assert "It has begun, so it can no longer be cancelled here." in page_text
    assert "Cancel this booking" not in page_text
    assert text_of(guest.open("/cancel")) == page_text
    assert guest.confirm().status_code == 409
    assert guest.row["status"] == "confirmed"


# Deadlines -------------------------------------------------------------------------------------------------------

DEADLINES = {"guest_cancel_until_hours": 24, "guest_move_until_hours": 36}
"""The departure of the fixture is on Monday 23 November at 13:00 in Oslo, in 48 hours."""
CANCEL, MOVE = "Cancel this booking", "Move to another time"


def set_deadlines(guest: Guest, **hours: int | None) -> None:
    guest.api.world.change(tables.organizations, guest.api.world.org, **hours)


def buttons(guest: Guest) -> list[str]:
    html = guest.open().text
    return [name for name in (CANCEL, MOVE) if f">{name}</a>" in html]


@pytest.mark.parametrize(
    ("locale", "cancel", "move"),
    [
        ("en", "You can cancel online until Sunday 22 November 2026, 13:00.", "Sunday 22 November 2026, 01:00."),
        (
            "de",
            "Sie können bis Sonntag, 22. November 2026, 13:00 online stornieren.",
            "22. November 2026, 01:00 online",
        ),
        ("fr", "Vous pouvez annuler en ligne jusqu’au dimanche 22 novembre 2026, 13:00.", "22 novembre 2026, 01:00."),
        ("es", "Puede cancelar en línea hasta el domingo, 22 de noviembre de 2026, 13:00.", "noviembre de 2026, 1:00."),
        ("it", "Può annullare online fino a domenica 22 novembre 2026, 13:00.", "22 novembre 2026, 01:00."),
        ("nb", "Du kan avbestille på nettet frem til søndag 22. november 2026, 13:00.", "22. november 2026, 01:00."),
    ],
)
def test_the_page_says_until_when_in_every_language(guest: Guest, locale: str, cancel: str, move: str) -> None:
    set_deadlines(guest, **DEADLINES)
    page_text = text_of(guest.open(f"?lang={locale}"))
    assert cancel in page_text
    assert move in page_text


@pytest.mark.parametrize(
    ("locale", "cancel", "move"),
    [
        ("en", "You could cancel online until Sunday 22 November 2026, 13:00.", "You could move the booking online"),
        ("de", "Sie konnten bis Sonntag, 22. November 2026, 13:00 online stornieren.", "Sie konnten die Buchung bis"),
        ("fr", "Vous pouviez annuler en ligne jusqu’au dimanche 22 novembre 2026, 13:00.", "Vous pouviez changer de"),
        ("es", "Podía cancelar en línea hasta el domingo, 22 de noviembre de 2026, 13:00.", "Podía cambiar de fecha"),
        ("it", "Poteva annullare online fino a domenica 22 novembre 2026, 13:00.", "Poteva spostare la prenotazione"),
        (
            "nb",
            "Du kunne avbestille på nettet frem til søndag 22. november 2026, 13:00.",
            "Du kunne flytte bestillingen",
        ),
    ],
)
def test_a_passed_deadline_is_past_tense_and_names_the_company(
    guest: Guest, clock: FixedClock, locale: str, cancel: str, move: str
) -> None:
    set_deadlines(guest, **DEADLINES)
    guest.api.world.change(tables.organizations, guest.api.world.org, contact_phone="+47 55 12 34 56")
    clock.advance(24 * HOUR)
    text = text_of(guest.open(f"?lang={locale}"))
    assert cancel in text
    assert move in text
    assert text.count("Fjord Tours (+47 55 12 34 56, staff@example.com)") == 2


@pytest.mark.parametrize(
    ("percent", "text"),
    [
        (0, "You could cancel free of charge until Sunday 22 November 2026, 13:00. Now nothing is returned."),
        (30, "You could cancel free of charge until Sunday 22 November 2026, 13:00. Now 30% of what you paid is"),
    ],
    ids=["nothing", "a-part"],
)
def test_the_terms_say_what_is_returned_after_their_deadline(guest: Guest, percent: int, text: str) -> None:
    guest.api.world.change(tables.organizations, guest.api.world.org, refund_late_percent=percent)
    guest.pay_by_card()
    guest.api.world.clock.advance(24 * HOUR)
    assert "You can cancel free of charge until Sunday 22 November 2026, 13:00." in text_of(guest.open())
    guest.api.world.clock.advance(1)
    assert text in text_of(guest.open())


def test_the_moment_is_in_the_zone_of_the_organization(guest: Guest) -> None:
    set_deadlines(guest, **DEADLINES)
    guest.api.world.change(tables.organizations, guest.api.world.org, timezone="America/New_York")
    assert "You can cancel online until Sunday 22 November 2026, 07:00." in text_of(guest.open())


def test_each_button_goes_at_its_own_deadline(guest: Guest, clock: FixedClock) -> None:
    set_deadlines(guest, **DEADLINES)
    clock.advance(12 * HOUR - 1)
    assert buttons(guest) == [CANCEL, MOVE]
    clock.advance(1)
    assert buttons(guest) == [CANCEL]
    clock.advance(12 * HOUR)
    assert buttons(guest) == []
    set_deadlines(guest, guest_cancel_until_hours=48, guest_move_until_hours=0)
    assert buttons(guest) == [MOVE]


def test_guests_who_may_not_cancel_are_asked_to_call(guest: Guest) -> None:
    set_deadlines(guest, guest_cancel_until_hours=None)
    assert buttons(guest) == []
    assert "To cancel, please ask us." in text_of(guest.open())


@pytest.mark.parametrize("page", ["cancel", "move"])
def test_a_form_that_arrives_at_the_deadline_changes_nothing(guest: Guest, clock: FixedClock, page: str) -> None:
    set_deadlines(guest, guest_cancel_until_hours=24, guest_move_until_hours=24)
    world, before = guest.api.world, guest.row
    other = world.departure(before["experience_id"], starts_at=clock() + 96 * HOUR)
    clock.advance(24 * HOUR - 1)
    assert "<form" in guest.open(f"/{page}").text
    clock.advance(1)
    assert text_of(guest.open(f"/{page}")) == text_of(guest.open())
    response = guest.call("POST", f"{guest.path}/{page}?lang=de", data={"offer": "0", "departure": other})
    assert (response.status_code, response.headers["content-type"]) == (409, "text/html; charset=utf-8")
    page_text = text_of(response)
    assert "Das ist hier nicht mehr möglich. Es wurde nichts geändert." in page_text
    assert "bis Sonntag, 22. November 2026, 13:00" in page_text
    assert guest.row == before
    assert "booking.cancelled" not in guest.api.event_types()


@pytest.mark.parametrize("page", ["cancel", "move"])
def test_a_deadline_that_passes_while_the_booking_is_locked_is_kept(
    guest: Guest, clock: FixedClock, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    set_deadlines(guest, guest_cancel_until_hours=24, guest_move_until_hours=24)
    other = guest.api.world.departure(guest.row["experience_id"], starts_at=clock() + 96 * HOUR)
    clock.advance(24 * HOUR - 1)
    before, lock = guest.row, bookings.lock

    def wait_and_lock(*arguments: Any) -> Any:
        clock.advance(1)
        return lock(*arguments)

    monkeypatch.setattr(bookings, "lock", wait_and_lock)
    response = guest.call("POST", f"{guest.path}/{page}", data={"offer": "0", "departure": other})
    assert (response.status_code, guest.row) == (409, before)


def test_an_unpaid_booking_can_be_cancelled_too(guest: Guest) -> None:
    guest.api.world.change(
        tables.bookings, guest.booking["id"], status="pending", payment_method="card", payment_source="stripe",
        payment_status="pending", confirmed_at=None,
    )  # fmt: skip
    assert "Waiting for the payment" in text_of(guest.open())
    assert guest.confirm().status_code == 303
    assert guest.row["status"] == "cancelled"


@pytest.mark.parametrize(
    "body",
    [b"offer=0" * 1000, b"\xff\xfe\x00", b"&" * 200, b"offer=%ff%00", b'{"offer": 0}', b"offer=0&" * 20 + b"offer=1"],
)
def test_an_invalid_form_cancels_nothing(guest: Guest, body: bytes) -> None:
    assert guest.call("POST", f"{guest.path}/cancel", content=body).status_code == 409
    assert guest.row["status"] == "confirmed"


def test_a_body_that_is_too_large_is_refused(guest: Guest) -> None:
    response = guest.call("POST", f"{guest.path}/cancel", content=b"x" * 300_000)
    assert response.status_code == 413
    assert response.headers["content-type"].startswith("text/html")


# Errors ----------------------------------------------------------------------------------------------------------


def wrong_paths(path: str) -> list[str]:
    token = path.rpartition("/")[2]
    return [
        *(f"/manage/{text}" for text in ("", "x", "/", "/cancel", "%00", "%ff%fe", "%E2%80%A8", "{{7*7}}", "A" * 64)),
        *(f"/manage/{text}" for text in ("a" * 5000, token[:-1], token.swapcase())),
        *(f"/manage/{token}{end}" for end in (".", "/", "%0A", "/cancel/", "/other")),
    ]


def test_all_invalid_links_get_the_same_page(guest: Guest) -> None:
    pages = set()
    for path in wrong_paths(guest.path):
        for method in ("GET", "POST"):
            target = path if method == "GET" or path.endswith("/cancel") else f"{path}/cancel"
            response = guest.call(method, target)
            assert response.status_code == 404, target
            assert response.headers["content-type"].startswith("text/html")
            assert response.headers["referrer-policy"] == "no-referrer"
            pages.add(response.text)
    (page,) = pages
    assert "This link does not work" in page


def test_an_expired_link_gets_the_same_page(guest: Guest) -> None:
    world = guest.api.world
    page = guest.call("GET", "/manage/x").text
    world.clock.at = guest.row["manage_expires_at"]
    for response in (guest.open(), guest.open("/cancel"), guest.confirm()):
        assert (response.status_code, response.text) == (404, page)
    assert guest.row["status"] == "confirmed"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_refused(guest: Guest, method: str) -> None:
    response = guest.call(method, guest.path)
    assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD, POST")
    assert guest.call("POST", guest.path).status_code == 405
    assert guest.row["status"] == "confirmed"


def test_the_pages_are_not_part_of_the_api(guest: Guest) -> None:
    assert not [path for path in DOCUMENT["paths"] if "manage" in path]
    assert guest.call("GET", "/manage").json()["code"] == "not_found"


def test_an_unavailable_database_gets_a_page(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    from booking_core.base.errors import Unavailable

    def away(*_: object, **__: object) -> None:
        raise Unavailable

    monkeypatch.setattr(notifications, "open_link", away)
    response = guest.open()
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert "Please try again" in text_of(response)


def test_an_unknown_outcome_of_a_cancellation_is_reported(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is lost after the commit and before its response."""
    from booking_core.base.errors import Unavailable

    write = guest.api.world.database.write

    def lost(fn: Any) -> None:
        write(fn)
        raise Unavailable

    monkeypatch.setattr(guest.api.world.database, "write", lost)
    response = guest.confirm()
    assert (response.status_code, guest.row["status"]) == (503, "cancelled")
    assert "Nothing was changed" not in text_of(response)
    assert "Your change may have been made" in text_of(response)


@pytest.mark.parametrize(
    ("method", "language", "text"),
    [
        ("GET", "", "The page is not available at the moment. Nothing was changed."),
        ("GET", "?lang=de", "Die Seite ist im Moment nicht erreichbar. Es wurde nichts geändert."),
        ("POST", "?lang=fr", "Votre modification est peut-être enregistrée, peut-être pas."),
    ],
)
def test_a_failure_gets_a_page_in_the_language_of_the_guest(
    guest: Guest, monkeypatch: pytest.MonkeyPatch, method: str, language: str, text: str
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(notifications, "open_link", fail)
    response = guest.call(method, f"{guest.path}/cancel{language}")
    assert (response.status_code, response.headers["content-type"]) == (500, "text/html; charset=utf-8")
    assert text in text_of(response)
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["cache-control"] == "no-store"


def test_an_overloaded_service_gets_a_page(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Admission, "refusal", lambda *_: busy(3.0, "late"))
    response = guest.open("?lang=it")
    assert (response.status_code, response.headers["retry-after"]) == (503, "3")
    assert "La pagina al momento non è disponibile." in text_of(response)


@pytest.mark.usefixtures("postgresql_only")
def test_a_change_during_the_cancellation_is_shown_first(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Staff moves the booking to a departure without a refund, just before the page locks it."""
    world, open_link = guest.api.world, notifications.open_link
    guest.pay_by_card()
    soon = world.departure(world.experience(), starts_at=world.clock() + HOUR)
    ops, targets = Operations(world), [soon]

    def open_and_move(*arguments: Any) -> Any:
        view = open_link(*arguments)
        if targets:
            ops.reschedule(guest.booking["id"], targets.pop())
        return view

    monkeypatch.setattr(notifications, "open_link", open_and_move)
    response = guest.confirm(89000)
    assert (response.status_code, guest.row["status"]) == (409, "confirmed")
    assert "nothing is returned" in text_of(response)
