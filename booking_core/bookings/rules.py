"""What a booking costs, how many seats it takes, and how it is shown. No storage, no clock."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import orjson

from booking_core.clock import MINUTE, Zone
from booking_core.context import Organization
from booking_core.errors import Malformed, Unprocessable
from booking_core.experiences import Tier
from booking_core.models.base import UUID_PATTERN
from booking_core.models.bookings import (
    AddOnInput,
    GuestLineInput,
    PaymentMethod,
    PaymentMode,
    PaymentSource,
    PaymentStatus,
)
from booking_core.models.limits import AMOUNT_MINOR_MAX

Charge = PaymentMode | Literal[PaymentMethod.CARD]
"""How a booking is to be paid: as through the API, or by card at the storefront."""


_UUID = re.compile(UUID_PATTERN)


def is_id(text: str) -> bool:
    """Whether the text can be an id; PostgreSQL would take anything else for an error of ours."""
    return _UUID.fullmatch(text) is not None


class BookingRow(NamedTuple):
    """A booking with what is shown of its departure and experience, as every query selects it."""

    created_at: int
    id: str
    booking_number: int | None
    status: str
    source: str | None
    updated_at: int
    experience_id: str
    experience_title: str
    experience_slug: str
    departure_id: str
    starts_at: int
    ends_at: int | None
    duration_minutes: int | None
    guest_name: str | None
    guest_email: str | None
    guest_phone: str | None
    guests: str
    add_ons: str
    currency: str
    subtotal_minor: int
    discount_minor: int
    gift_card_minor: int
    total_minor: int
    payment_method: str
    payment_source: str
    payment_status: str
    note: str | None
    manage_key_id: str | None
    manage_expires_at: int | None


class AddOn(NamedTuple):
    label: str
    price_minor: int


@dataclass(frozen=True, slots=True)
class Offer:
    """What can be bought at a departure, and in which currency."""

    currency: str
    tiers: Mapping[str, Tier]
    add_ons: Mapping[str, AddOn]


@dataclass(frozen=True, slots=True)
class Quote:
    """What a request costs and takes. The lines are JSON texts, as they are stored and shown."""

    guests: str
    add_ons: str
    seats: int
    subtotal_minor: int


@lru_cache(maxsize=4096)
def _add_ons(text: str) -> dict[str, AddOn]:
    return {item["id"]: AddOn(item["label"], item["price"]["amount_minor"]) for item in orjson.loads(text)}


def offer(currency: str, tiers: Mapping[str, Tier], add_ons: str) -> Offer:
    """Return the offer of a departure: its tiers, and the experience's add-ons as they are stored."""
    return Offer(currency, tiers, _add_ons(add_ons))


def quote(
    organization: Organization, offered: Offer, guests: Sequence[GuestLineInput], add_ons: Sequence[AddOnInput]
) -> Quote:
    """Prices the lines of a request.

    Raises:
        Unprocessable: an unknown tier or add-on, the add-ons app is off, or the sum is beyond 64 bits.
    """
    guest_lines, guests_minor, seats = _guest_lines(offered, guests)
    add_on_lines, add_ons_minor = _add_on_lines(organization, offered, add_ons)
    subtotal = guests_minor + add_ons_minor
    if subtotal > AMOUNT_MINOR_MAX:
        raise Unprocessable.at("guests", "The total is larger than an amount can be.", "amount_overflow")
    return Quote(orjson.dumps(guest_lines).decode(), orjson.dumps(add_on_lines).decode(), seats, subtotal)


def discounted(subtotal_minor: int, discount_minor: int) -> int:
    """What is left to be paid.

    Raises:
        Malformed: the discount is negative.
        Unprocessable: it is more than there is to pay.
    """
    if discount_minor < 0:
        raise Malformed.at("discount", "must not be negative", "negative")
    if discount_minor > subtotal_minor:
        raise Unprocessable.at("discount", "The discount is larger than the subtotal.", "discount_too_large")
    return subtotal_minor - discount_minor


def _money(amount_minor: int, currency: str) -> dict[str, Any]:
    return {"amount_minor": amount_minor, "currency": currency}


_NAMED_MAX = 10


def unknown(field: str, noun: str, offered: Collection[str]) -> Unprocessable:
    """Return the refusal of a tier or an add-on that the experience does not have; it names those that it has."""
    named = ", ".join(sorted(offered)[:_NAMED_MAX]) + (", ..." if len(offered) > _NAMED_MAX else "")
    there = f"; it has {named}" if offered else ""
    reason = "unknown_" + noun.removeprefix("price ").replace("-", "_")
    return Unprocessable.at(field, f"The experience has no such {noun}{there}.", reason)


def _guest_lines(offered: Offer, lines: Sequence[GuestLineInput]) -> tuple[list[dict[str, Any]], int, int]:
    shown, amount, seats = [], 0, 0
    for i, line in enumerate(lines):
        tier = offered.tiers.get(line.tier_id)
        if tier is None:
            raise unknown(f"guests.{i}.tier_id", "price tier", offered.tiers)
        amount += tier.price_minor * line.count
        seats += tier.seats_per_unit * line.count
        price = _money(tier.price_minor, offered.currency)
        shown.append({"tier_id": line.tier_id, "tier_label": tier.label, "count": line.count, "unit_price": price})
    return shown, amount, seats


def _add_on_lines(
    organization: Organization, offered: Offer, lines: Sequence[AddOnInput]
) -> tuple[list[dict[str, Any]], int]:
    if lines and not organization.add_ons_app:
        raise Unprocessable.at("add_ons", "The Add-ons app is off for this organization.", "add_ons_app_disabled")
    shown, amount = [], 0
    for i, line in enumerate(lines):
        add_on = offered.add_ons.get(line.id)
        if add_on is None:
            raise unknown(f"add_ons.{i}.id", "add-on", offered.add_ons)
        amount += add_on.price_minor * line.count
        price = _money(add_on.price_minor, offered.currency)
        shown.append({"id": line.id, "label": add_on.label, "count": line.count, "unit_price": price})
    return shown, amount


def payment(
    mode: Charge, total_minor: int, gift_card_minor: int = 0
) -> tuple[PaymentMethod, PaymentSource, PaymentStatus]:
    """Method, source and status of a new booking (decision B7). When nothing is left to pay it is paid, by the gift
    card if there was one."""
    if total_minor == 0:
        method = PaymentMethod.GIFT_CARD if gift_card_minor else PaymentMethod.FREE
        return method, PaymentSource.EXTERNAL, PaymentStatus.PAID
    if mode is PaymentMethod.CARD:
        return PaymentMethod.CARD, PaymentSource.STRIPE, PaymentStatus.PENDING
    if mode is PaymentMode.PAY_ON_SITE:
        return PaymentMethod.PAY_ON_SITE, PaymentSource.ON_SITE, PaymentStatus.UNPAID
    if mode is PaymentMode.INVOICE:
        return PaymentMethod.INVOICE, PaymentSource.EXTERNAL, PaymentStatus.UNPAID
    return PaymentMethod.EXTERNAL_PAID, PaymentSource.EXTERNAL, PaymentStatus.PAID


def unpaid_minor(row: BookingRow, recorded_minor: int) -> int:
    """Return what the guest has still to pay for a booking of which so much was received by hand."""
    is_open = row.payment_status in (PaymentStatus.UNPAID, PaymentStatus.PENDING)
    return row.total_minor - recorded_minor if is_open else 0


def on_site_fee(organization: Organization, mode: Charge, total_minor: int) -> int:
    """The platform's fee on money that the guest pays on arrival, rounded half up to the minor unit."""
    if mode is not PaymentMode.PAY_ON_SITE:
        return 0
    # Exactly the percentage that was typed, however many digits it has.
    part, of = Decimal(str(organization.on_site_fee_percent)).as_integer_ratio()
    return (2 * total_minor * part + 100 * of) // (200 * of)


def present(row: BookingRow, zone: Zone, manage: str | None = None) -> dict[str, Any]:
    """The booking as the API shows it, `manage_url` last. The lines are stored as they are shown."""
    iso, currency = zone.iso, row.currency
    ends_at = row.ends_at if row.ends_at is not None else row.starts_at + (row.duration_minutes or 0) * MINUTE
    return {
        "id": row.id,
        "booking_number": row.booking_number,
        "status": row.status,
        "source": row.source,
        "created_at": iso(row.created_at),
        "updated_at": iso(row.updated_at),
        "experience": {"id": row.experience_id, "title": row.experience_title, "slug": row.experience_slug},
        "departure": {"id": row.departure_id, "starts_at": iso(row.starts_at), "ends_at": iso(ends_at)},
        "customer": {"name": row.guest_name, "email": row.guest_email, "phone": row.guest_phone},
        "guests": orjson.Fragment(row.guests),
        "add_ons": orjson.Fragment(row.add_ons),
        "totals": {
            "subtotal": _money(row.subtotal_minor, currency),
            "discount": _money(row.discount_minor, currency),
            "gift_card": _money(row.gift_card_minor, currency),
            "total": _money(row.total_minor, currency),
        },
        "payment": {"method": row.payment_method, "source": row.payment_source, "status": row.payment_status},
        "note": row.note,
        "manage_url": manage,
    }


_NO_LINK = b"null}"


def with_link(shown: bytes, manage: str | None) -> bytes:
    """The rendered booking with the guest's link in the place of its last field, null. One rendering serves the
    events, which never hold the link, and the answer, which does."""
    return shown if manage is None else shown[: -len(_NO_LINK)] + orjson.dumps(manage) + b"}"
