"""Prices of a booking: its lines, discount, payment and fee. No storage, no clock."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import orjson

from booking_core.base.context import Organization
from booking_core.base.errors import Malformed, Unprocessable
from booking_core.bookings.rules import BookingRow, LockedDeparture, money
from booking_core.catalogue import experiences
from booking_core.catalogue.experiences import Tier
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
"""A payment mode of the API, or a card payment at the storefront."""


class AddOn(NamedTuple):
    label: str
    price_minor: int


@dataclass(frozen=True, slots=True)
class Offer:
    """The tiers and add-ons that a departure sells, and their currency."""

    currency: str
    tiers: Mapping[str, Tier]
    add_ons: Mapping[str, AddOn]


@dataclass(frozen=True, slots=True)
class Quote:
    """The price and the seats of a request. The lines are JSON texts, as they are stored and shown."""

    guests: str
    add_ons: str
    seats: int
    subtotal_minor: int


@lru_cache(maxsize=4096)
def _add_ons(text: str) -> dict[str, AddOn]:
    return {item["id"]: AddOn(item["label"], item["price"]["amount_minor"]) for item in orjson.loads(text)}


def offer(currency: str, tiers: Mapping[str, Tier], add_ons: str) -> Offer:
    """Return the offer of a departure from its tiers and the stored add-ons of its experience."""
    return Offer(currency, tiers, _add_ons(add_ons))


def offer_of(departure: LockedDeparture) -> Offer:
    """Return the offer of a departure."""
    return offer(departure.currency, tiers_of(departure), departure.add_ons)


def price(
    organization: Organization,
    departure: LockedDeparture,
    guests: Sequence[GuestLineInput],
    add_ons: Sequence[AddOnInput] | None,
) -> Quote:
    """Price the lines of a request at a departure.

    Raises:
        Unprocessable: a line is not offered, or the sum exceeds 64 bits.
    """
    return quote(organization, offer_of(departure), guests, add_ons or ())


def add_ons_of(departure: LockedDeparture) -> Mapping[str, AddOn]:
    """Return the add-ons that the experience of a departure sells."""
    return _add_ons(departure.add_ons)


def tiers_of(departure: LockedDeparture) -> Mapping[str, Tier]:
    """Return the tiers that a departure sells, at its prices."""
    return experiences.tiers(departure.price_tiers, departure.price_from_minor, departure.price_minor, departure.prices)


def quote(
    organization: Organization, offered: Offer, guests: Sequence[GuestLineInput], add_ons: Sequence[AddOnInput]
) -> Quote:
    """Price the lines of a request.

    Raises:
        Unprocessable: a tier or add-on is unknown, the add-ons app is off, or the sum exceeds 64 bits.
    """
    priced, problems = evaluate(organization, offered, guests, add_ons)
    for problem in problems:
        raise problem
    return priced


def evaluate(
    organization: Organization, offered: Offer, guests: Sequence[GuestLineInput], add_ons: Sequence[AddOnInput]
) -> tuple[Quote, list[Unprocessable]]:
    """Price the lines of a request that are offered, and return each reason why it has no price as a whole."""
    problems: list[Unprocessable] = []
    guest_lines, guests_minor, seats = _guest_lines(offered, guests, problems)
    add_on_lines, add_ons_minor = _add_on_lines(organization, offered, add_ons, problems)
    subtotal = guests_minor + add_ons_minor
    if subtotal > AMOUNT_MINOR_MAX:
        problems.append(Unprocessable.at("guests", "The total is larger than an amount can be.", "amount_overflow"))
    priced = Quote(orjson.dumps(guest_lines).decode(), orjson.dumps(add_on_lines).decode(), seats, subtotal)
    return priced, problems


def list_price(row: BookingRow, departure: LockedDeparture) -> int | None:
    """Return the price of a booking's lines by the present prices of a departure.

    It is None where the departure has another currency, or does not offer one of the tiers and add-ons.
    """
    tiers = tiers_of(departure)
    known = {f"tier {tier_id}": tier.price_minor for tier_id, tier in tiers.items()}
    known |= {f"add-on {each}": add_on.price_minor for each, add_on in _add_ons(departure.add_ons).items()}
    wanted = [(f"tier {line['tier_id']}", line["count"]) for line in orjson.loads(row.guests)]
    wanted += [(f"add-on {line['id']}", line["count"]) for line in orjson.loads(row.add_ons)]
    if departure.currency != row.currency or any(name not in known for name, _ in wanted):
        return None
    total: int = sum(known[name] * count for name, count in wanted)
    return total


def apply_discount(subtotal_minor: int, discount_minor: int) -> int:
    """Return the amount that is due after the discount.

    Raises:
        Malformed: the discount is negative.
        Unprocessable: the discount exceeds the subtotal.
    """
    if discount_minor < 0:
        raise Malformed.at("discount", "must not be negative", "negative")
    if discount_minor > subtotal_minor:
        raise Unprocessable.at("discount", "The discount is larger than the subtotal.", "discount_too_large")
    return subtotal_minor - discount_minor


_LISTED_MAX = 10


def unknown_line(field: str, noun: str, offered: Collection[str]) -> Unprocessable:
    """Return the error for a tier or add-on that the experience does not have. Its message lists the known ones."""
    listed = ", ".join(sorted(offered)[:_LISTED_MAX]) + (", ..." if len(offered) > _LISTED_MAX else "")
    hint = f"; it has {listed}" if offered else ""
    reason = "unknown_" + noun.removeprefix("price ").replace("-", "_")
    return Unprocessable.at(field, f"The experience has no such {noun}{hint}.", reason)


def _guest_lines(
    offered: Offer, lines: Sequence[GuestLineInput], problems: list[Unprocessable]
) -> tuple[list[dict[str, Any]], int, int]:
    shown, amount, seats = [], 0, 0
    for i, line in enumerate(lines):
        tier = offered.tiers.get(line.tier_id)
        if tier is None:
            problems.append(unknown_line(f"guests.{i}.tier_id", "price tier", offered.tiers))
            continue
        amount += tier.price_minor * line.count
        seats += tier.seats_per_unit * line.count
        price = money(tier.price_minor, offered.currency)
        shown.append({"tier_id": line.tier_id, "tier_label": tier.label, "count": line.count, "unit_price": price})
    return shown, amount, seats


def _add_on_lines(
    organization: Organization, offered: Offer, lines: Sequence[AddOnInput], problems: list[Unprocessable]
) -> tuple[list[dict[str, Any]], int]:
    if lines and not organization.add_ons_app:
        message = "The Add-ons app is off for this organization."
        problems.append(Unprocessable.at("add_ons", message, "add_ons_app_disabled"))
        return [], 0
    shown, amount = [], 0
    for i, line in enumerate(lines):
        add_on = offered.add_ons.get(line.id)
        if add_on is None:
            problems.append(unknown_line(f"add_ons.{i}.id", "add-on", offered.add_ons))
            continue
        amount += add_on.price_minor * line.count
        price = money(add_on.price_minor, offered.currency)
        shown.append({"id": line.id, "label": add_on.label, "count": line.count, "unit_price": price})
    return shown, amount


def payment(
    mode: Charge, total_minor: int, gift_card_minor: int = 0
) -> tuple[PaymentMethod, PaymentSource, PaymentStatus]:
    """Return the payment method, source and status of a new booking (decision B7).

    A booking with nothing left to pay counts as paid, by gift card when one was redeemed.
    """
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


def on_site_fee(organization: Organization, mode: Charge, total_minor: int) -> int:
    """Return the platform's fee on money that the guest pays on arrival, rounded half up to the minor unit."""
    if mode is not PaymentMode.PAY_ON_SITE:
        return 0
    part, of = _ratio(organization.on_site_fee_percent)
    return (2 * total_minor * part + 100 * of) // (200 * of)


@lru_cache(maxsize=1024)
def _ratio(percent: float) -> tuple[int, int]:
    """Return the setting as a fraction of its decimal digits, so that no binary rounding changes the fee."""
    return Decimal(str(percent)).as_integer_ratio()
