"""The price, the seats and the shape of a booking."""

import base64
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.world.world import ADULT, DAY, DRYSUIT, FAMILY, HOUR, NOON, organization_row

from booking_core.base import tokens
from booking_core.base.clock import zone
from booking_core.base.context import Installation, Organization
from booking_core.base.errors import Malformed, Unprocessable
from booking_core.base.guest_links import ManageLinks
from booking_core.base.tokens import SecretKeys
from booking_core.bookings import capacity, pricing, rules, terms
from booking_core.bookings.rules import BookingRow, LockedDeparture
from booking_core.bookings.store import BookingWithPayment
from booking_core.models.bookings import AddOnInput, Booking, GuestLineInput, PaymentMethod, PaymentMode

TIERS, ADD_ONS = orjson.dumps([ADULT, FAMILY]).decode(), orjson.dumps([DRYSUIT]).decode()
ORGANIZATION = Organization(**organization_row(NOON, on_site_fee_percent=2.5))


Lines = list[tuple[str, int]]


def leaving(**over: Any) -> LockedDeparture:
    """Return a departure of ten seats, tomorrow."""
    columns: dict[str, Any] = dict.fromkeys(LockedDeparture._fields)
    state = {"starts_at": NOON + DAY, "status": "open", "seats_total": 10, "seats_taken": 0}
    return LockedDeparture(**(columns | state | {"currency": "NOK", "price_tiers": TIERS, "add_ons": ADD_ONS} | over))


DEPARTURE = leaving()


def priced(
    guests: Lines, add_ons: Lines | None = None, *, at: LockedDeparture = DEPARTURE, of: Organization = ORGANIZATION
) -> pricing.Quote:
    seated = [GuestLineInput(tier_id=tier, count=count) for tier, count in guests]
    return pricing.quote(of, at, seated, [AddOnInput(id=add_on, count=count) for add_on, count in add_ons or ()])


# Prices and seats ------------------------------------------------------------------------------------------------


def test_the_tier_sets_price_and_seats_of_its_lines() -> None:
    quote = priced([("adult", 1), ("family", 2), ("adult", 2)], [("drysuit", 4)])
    assert quote.seats == 3 + 2 * 4
    assert quote.subtotal_minor == 3 * 89000 + 2 * 250000 + 4 * 15000
    lines = [(line["tier_label"], line["count"]) for line in orjson.loads(quote.guests)]
    assert lines == [("Adult", 1), ("Family", 2), ("Adult", 2)]
    assert orjson.loads(quote.add_ons)[0]["unit_price"] == {"amount_minor": 15000, "currency": "NOK"}


@given(st.lists(st.tuples(st.sampled_from(["adult", "family"]), st.integers(1, 2**31 - 1)), min_size=1, max_size=100))
def test_any_lines_add_up_exactly_however_large(guests: Lines) -> None:
    quote = priced(guests)
    assert quote.seats == sum(count * {"adult": 1, "family": 4}[tier] for tier, count in guests)
    lines = orjson.loads(quote.guests)
    assert quote.subtotal_minor == sum(line["count"] * line["unit_price"]["amount_minor"] for line in lines)


def test_a_sum_beyond_64_bits_is_refused() -> None:
    tiers = [ADULT | {"price": {"amount_minor": 2**63 - 2, "currency": "NOK"}}]
    tiers += [ADULT | {"id": "penny", "price": {"amount_minor": 1, "currency": "NOK"}}]
    dear = leaving(price_tiers=orjson.dumps(tiers).decode())
    for price in (lambda guests: priced(guests, at=dear), lambda guests: changed(row(guests="[]"), guests, at=dear)):
        assert price([("adult", 1), ("penny", 1)]).subtotal_minor == 2**63 - 1
        with pytest.raises(Unprocessable) as refusal:
            price([("adult", 1), ("penny", 2)])
        assert refusal.value.details[0].reason == "amount_overflow"


@pytest.mark.parametrize(
    ("guests", "add_ons", "field", "reason"),
    [
        ([("adult", 1), ("nobody", 1)], None, "guests.1.tier_id", "unknown_tier"),
        ([("standard", 1)], None, "guests.0.tier_id", "unknown_tier"),
        ([("adult", 1)], [("yacht", 1)], "add_ons.0.id", "unknown_add_on"),
    ],
)
def test_what_is_not_offered_is_refused_by_name(guests: Lines, add_ons: Lines | None, field: str, reason: str) -> None:
    with pytest.raises(Unprocessable) as refusal:
        priced(guests, add_ons)
    assert [(detail.field, detail.reason) for detail in refusal.value.details] == [(field, reason)]


@pytest.mark.parametrize(
    ("tiers", "hint"),
    [
        ("", ""),
        ("ab", "; it has a, b"),
        ("abcdefghij", "; it has a, b, c, d, e, f, g, h, i, j"),
        ("abcdefghijk", "; it has a, b, c, d, e, f, g, h, i, j, ..."),
    ],
)
def test_the_message_lists_the_first_ten_tiers(tiers: str, hint: str) -> None:
    offered = orjson.dumps([ADULT | {"id": tier} for tier in tiers]).decode()
    with pytest.raises(Unprocessable) as refusal:
        priced([("adult", 1)], at=leaving(price_tiers=offered))
    assert refusal.value.details[0].message == f"The experience has no such price tier{hint}."


def test_without_the_add_ons_app_every_add_on_is_refused() -> None:
    without = replace(ORGANIZATION, add_ons_app=False)
    assert priced([("adult", 1)], [], of=without).subtotal_minor == 89000
    with pytest.raises(Unprocessable) as refusal:
        priced([("adult", 1)], [("drysuit", 1)], of=without)
    assert refusal.value.details[0].reason == "add_ons_app_disabled"


def test_an_experience_without_tiers_sells_one_called_standard() -> None:
    quote = priced([("standard", 3)], at=leaving(price_tiers="[]", price_minor=8000, currency="JPY"))
    assert (quote.seats, quote.subtotal_minor) == (3, 24000)
    (line,) = orjson.loads(quote.guests)
    assert line["unit_price"] == {"amount_minor": 8000, "currency": "JPY"}
    assert line["tier_label"] == "standard"


def test_an_experience_without_tiers_and_price_sells_nothing() -> None:
    with pytest.raises(Unprocessable):
        priced([("standard", 1)], at=leaving(price_tiers="[]"))


# What can be booked (decision B4) --------------------------------------------------------------------------------

CANCELLED, CLOSED, STARTED = "departure_cancelled", "departure_closed", "departure_started"


@pytest.mark.parametrize(
    ("columns", "before", "expected"),
    [
        pytest.param({}, 1, [], id="until the instant it starts"),
        pytest.param({}, 0, [STARTED], id="started"),
        pytest.param({"status": "closed"}, HOUR, [CLOSED], id="closed by staff"),
        pytest.param({"status": "cancelled"}, HOUR, [CANCELLED], id="cancelled"),
        pytest.param({"status": "cancelled"}, 0, [CANCELLED, STARTED], id="cancelled and started"),
        pytest.param({"hours_before_booking_closes": 3}, 3 * HOUR + 1, [], id="before its lead time"),
        pytest.param({"hours_before_booking_closes": 3}, 3 * HOUR, [CLOSED], id="within its lead time"),
        pytest.param({"hours_before_booking_closes": 3}, 0, [STARTED], id="started within its lead time"),
        pytest.param({"hours_before_booking_closes": 3, "status": "closed"}, HOUR, [CLOSED] * 2, id="closed twice"),
        pytest.param({"price_tiers": "[]", "price_from_minor": None}, HOUR, [CLOSED], id="without a price"),
        pytest.param({"price_tiers": "[]", "price_from_minor": 0}, HOUR, [], id="free"),
    ],
)
def test_a_departure_is_booked_before_it_starts_and_closes(
    columns: dict[str, Any], before: int, expected: list[str]
) -> None:
    at = NOON + DAY - before
    refusals = capacity.refusals(leaving(**columns), ORGANIZATION, at)
    assert [refusal.reason for refusal in refusals] == expected
    late = capacity.refusals(leaving(**columns), ORGANIZATION, at, for_sale=False)
    assert [refusal.reason for refusal in late] == [reason for reason in expected if reason != CLOSED]


def test_the_lead_time_of_the_organization_is_that_of_departures_without_one() -> None:
    organization, at = replace(ORGANIZATION, hours_before_booking_closes=2), NOON + DAY - HOUR
    assert [refusal.reason for refusal in capacity.refusals(DEPARTURE, organization, at)] == [CLOSED]
    assert capacity.refusals(leaving(hours_before_booking_closes=0), organization, at) == []


@pytest.mark.parametrize(
    ("booked", "on_hold", "sold", "count", "available"),
    [
        (0, 0, 0, 10, None),
        (0, 0, 0, 11, 10),
        (4, 3, 2, 1, None),
        (4, 3, 2, 2, 1),
        (10, 0, 0, 0, None),
        (12, 0, 0, 1, 0),
    ],
)
def test_seats_that_are_taken_held_or_just_sold_are_not_available(
    booked: int, on_hold: int, sold: int, count: int, available: int | None
) -> None:
    refused = capacity.refusals_of_seats(leaving(seats_taken=booked), count, seats_held=on_hold, seats_sold=sold)
    assert [refusal.seats_available for refusal in refused] == ([] if available is None else [available])


# Payment ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("charge", "total", "gift_card", "expected"),
    [
        (PaymentMode.PAY_ON_SITE, 1, 0, ("pay_on_site", "on_site", "unpaid")),
        *((PaymentMode.INVOICE, 1, gift_card, ("invoice", "external", "unpaid")) for gift_card in (0, 500)),
        (PaymentMode.EXTERNAL_PAID, 1, 0, ("external_paid", "external", "paid")),
        (PaymentMethod.CARD, 1, 500, ("card", "stripe", "pending")),
        *((charge, 0, 0, ("free", "external", "paid")) for charge in (*PaymentMode, PaymentMethod.CARD)),
        *((charge, 0, 500, ("gift_card", "external", "paid")) for charge in (PaymentMode.INVOICE, PaymentMethod.CARD)),
    ],
)
def test_payment_method_source_and_status_follow_decision_b7(
    charge: pricing.Charge, total: int, gift_card: int, expected: tuple[str, str, str]
) -> None:
    assert pricing.payment(charge, total, gift_card) == expected


def test_a_discount_lies_between_nothing_and_everything() -> None:
    assert [pricing.apply_discount(100, discount) for discount in (0, 1, 100)] == [100, 99, 0]
    with pytest.raises(Unprocessable) as larger:
        pricing.apply_discount(100, 101)
    assert larger.value.details[0].reason == "discount_too_large"
    with pytest.raises(Malformed):
        pricing.apply_discount(100, -1)


@pytest.mark.parametrize(
    ("percent", "total", "fee"),
    [
        *(
            (0.125, 1_000_000, 1_250),
            (0.005, 1_000_000, 50),
            (2.675, 100_000, 2_675),
            (0.29, 10_000, 29),
            (100.0, 7, 7),
            (0.01, 4_999, 0),
            (0.01, 5_000, 1),
        ),
        *((2.5, total, fee) for total, fee in ((0, 0), (19, 0), (20, 1), (59, 1), (60, 2), (89000, 2225))),
    ],
)
def test_the_fee_on_site_uses_the_exact_percentage_rounded_half_up(percent: float, total: int, fee: int) -> None:
    organization = replace(ORGANIZATION, on_site_fee_percent=percent)
    assert pricing.on_site_fee(organization, PaymentMode.PAY_ON_SITE, total) == fee
    assert pricing.on_site_fee(organization, PaymentMode.INVOICE, total) == 0
    assert pricing.on_site_fee(organization, PaymentMode.EXTERNAL_PAID, total) == 0


# The guest's link ------------------------------------------------------------------------------------------------


def row(**over: Any) -> BookingRow:
    return BookingRow(
        **dict.fromkeys(BookingRow._fields)
        | {
            "created_at": NOON,
            "id": tokens.new_id(),
            "booking_number": 7,
            "status": "confirmed",
            "source": "api",
            "updated_at": NOON,
            "experience_id": tokens.new_id(),
            "experience_title": "Fjord kayak",
            "experience_slug": "fjord-kayak",
            "departure_id": tokens.new_id(),
            "starts_at": NOON + DAY,
            "duration_minutes": 90,
            "guest_name": "Ada",
            "guest_email": "ada@example.com",
            "guests": priced([("adult", 1)]).guests,
            "add_ons": "[]",
            "currency": "NOK",
            "subtotal_minor": 89000,
            "discount_minor": 0,
            "gift_card_minor": 0,
            "total_minor": 89000,
            "payment_method": "invoice",
            "payment_source": "external",
            "payment_status": "unpaid",
            "manage_key_id": SecretKeys("first").first_id,
            "manage_expires_at": NOON + DAY,
        }
        | over
    )


def links(*keys: str) -> ManageLinks:
    return ManageLinks(Installation(SecretKeys(*keys), "https://book.example.com"), ORGANIZATION.id)


def test_a_link_names_the_booking_and_holds_128_secret_bits() -> None:
    booking = row()
    link = links("first").of(booking, NOON, NOON)
    address, _, token = link.rpartition("/")
    assert address == "https://book.example.com/manage"
    data = base64.urlsafe_b64decode(token)
    assert len(data) == 16 + 16 + 16
    assert data[16:32].hex() == booking.id.replace("-", "")
    assert links("first").of(booking, NOON, NOON) == link
    assert links("another").make(booking.id, SecretKeys("another").first_id) != link


def test_a_link_lives_until_it_expires_and_as_long_as_its_key() -> None:
    booking = row()
    assert links("first").of(booking, NOON, NOON + DAY - 1)
    assert links("first").of(booking, NOON, NOON + DAY) is None
    assert links("second", "first").of(booking, NOON, NOON) == links("first").of(booking, NOON, NOON)
    assert links("second").of(booking, NOON, NOON) is None
    assert links("first").of(booking, NOON + 2 * DAY, NOON + 2 * DAY - 1)  # the departure was moved
    assert links("first").of(booking, NOON + 2 * DAY, NOON + 2 * DAY) is None
    assert links("first").of(row(manage_key_id=None), NOON + DAY, NOON) is None
    assert links("first").of(row(manage_expires_at=None), NOON + DAY, NOON) is None


# A changed party --------------------------------------------------------------------------------------------------


def changed(
    before: BookingRow, guests: Lines, add_ons: Lines | None = None, *, at: LockedDeparture = DEPARTURE, seats: int = 9
) -> pricing.PartyQuote:
    seated = [GuestLineInput(tier_id=tier, count=count) for tier, count in guests]
    added = None if add_ons is None else [AddOnInput(id=add_on, count=count) for add_on, count in add_ons]
    return pricing.quote_party(ORGANIZATION, at, before, seats, seated, added)


def test_a_smaller_party_keeps_the_lines_of_other_tiers() -> None:
    before = row(guests=priced([("adult", 2), ("family", 1)]).guests)
    quote = changed(before, [("adult", 1), ("family", 1)])
    assert [(line["tier_id"], line["count"]) for line in orjson.loads(quote.guests)] == [("adult", 1), ("family", 1)]
    assert (quote.seats, quote.subtotal_minor) == (8, 89000 + 250000)
    assert (quote.is_same, quote.has_more_guests) == (False, False)


def test_one_guest_more_is_a_larger_party_though_others_leave() -> None:
    before = row(guests=priced([("adult", 2), ("family", 1)]).guests)
    assert changed(before, [("adult", 3)]).has_more_guests


def test_a_party_in_another_order_is_the_same() -> None:
    before = row(guests=priced([("adult", 2), ("family", 1)]).guests)
    quote = changed(before, [("family", 1), ("adult", 2)])
    assert (quote.is_same, quote.has_more_guests, quote.guests) == (True, False, before.guests)


def test_a_gift_card_pays_at_most_the_amount_due() -> None:
    before = row(guests=priced([("adult", 2)]).guests, discount_minor=80000, gift_card_minor=50000)
    quote = changed(before, [("adult", 1)])
    assert (quote.discount_minor, quote.gift_card_minor, quote.total_minor) == (80000, 9000, 0)


def test_a_smaller_party_takes_no_fewer_seats_than_none() -> None:
    wider = leaving(price_tiers=orjson.dumps([ADULT | {"seats_per_unit": 4}]).decode())
    assert changed(row(guests=priced([("adult", 2)]).guests), [("adult", 1)], at=wider, seats=2).seats == 0


def test_guests_of_a_tier_no_longer_sold_all_stay() -> None:
    before, without = row(guests=priced([("adult", 1)]).guests), leaving(price_tiers=orjson.dumps([FAMILY]).decode())
    for guests, field in (([("adult", 2)], "guests.0.tier_id"), ([("family", 1)], "guests")):
        with pytest.raises(Unprocessable) as refusal:
            changed(before, guests, at=without)
        assert [(detail.field, detail.reason) for detail in refusal.value.details] == [(field, "unknown_tier")]


def test_an_add_on_no_longer_sold_stays_and_gets_no_more() -> None:
    order, without = priced([("adult", 2)], [("drysuit", 2)]), leaving(add_ons="[]")
    before = row(guests=order.guests, add_ons=order.add_ons)
    assert changed(before, [("adult", 1)], [("drysuit", 2)], at=without).add_ons == order.add_ons
    with pytest.raises(Unprocessable) as refusal:
        changed(before, [("adult", 1)], [("drysuit", 3)], at=without)
    assert refusal.value.details[0].reason == "unknown_add_on"


# As it is shown --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "over",
    [
        {},
        {"booking_number": None, "source": None, "guest_name": None, "guest_email": None, "guests": "[]"},
        {"ends_at": NOON + 2 * DAY, "note": "Two\nlines", "status": "cancelled", "guest_phone": "+47 900"},
        {"ends_at": None, "duration_minutes": None, "add_ons": priced([("adult", 1)], [("drysuit", 2)]).add_ons},
    ],
)
def test_what_is_shown_is_exactly_the_wire_model(over: dict[str, Any]) -> None:
    for link in (None, "https://book.example.com/manage/x"):
        booking = BookingWithPayment(row(**over), 0, None)
        rendered_terms = terms.render(booking, ORGANIZATION, NOON)
        rendered = orjson.dumps(rules.present(booking.row, zone("Europe/Oslo"), rendered_terms, link))
        assert orjson.loads(rendered) == Booking.model_validate_json(rendered).to_json()


def test_the_terms_of_like_bookings_are_those_of_their_organizations() -> None:
    others = [
        replace(ORGANIZATION, refund_late_percent=40),
        replace(ORGANIZATION, refund_full_until_hours=48),
        replace(ORGANIZATION, timezone="America/St_Johns"),
    ]
    bookings = [row(), row(status="cancelled"), row(starts_at=NOON + DAY // 3), row(currency="SEK")]
    rendered = {
        terms.render(BookingWithPayment(booking, 0, None), organization, NOON)
        for organization in (ORGANIZATION, *others, replace(ORGANIZATION))
        for booking in bookings
    }
    assert len(rendered) == 4 * len(bookings)


def test_the_link_completes_a_booking_that_was_rendered_as_in_events() -> None:
    booking, oslo, terms = row(note='ends with "manage_url":null}'), zone("Europe/Oslo"), b'{"allowed":true}'
    without = orjson.dumps(rules.present(booking, oslo, terms))
    for link in ('https://book.example.com/manage/"quoted"', None):
        assert rules.with_link(without, link) == orjson.dumps(rules.present(booking, oslo, terms, link))
