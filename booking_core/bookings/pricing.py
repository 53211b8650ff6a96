"""Prices of a booking and of a changed party: lines, discount, payment and fee. No storage, no clock."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import orjson

from booking_core.base.context import Organization
from booking_core.base.errors import Malformed, Unprocessable
from booking_core.bookings.rules import BookingRow, LockedDeparture, require
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
from booking_core.models.money import money_json
from booking_core.models.reasons import ErrorReason

Charge = PaymentMode | Literal[PaymentMethod.CARD]
"""A payment mode of the API, or a card payment at the storefront."""
Line = dict[str, Any]
"""A line of guests or add-ons, as it is stored and shown."""


class PricedAddOn(NamedTuple):
    label: str
    price_minor: int


class Quote(NamedTuple):
    """The price and the seats of a request. The lines are JSON texts, as they are stored and shown."""

    guests: str
    add_ons: str
    seats: int
    subtotal_minor: int


def tiers_of(departure: LockedDeparture) -> Mapping[str, Tier]:
    """Return the tiers that a departure sells, at its prices."""
    return experiences.tiers(departure.price_tiers, departure.price_from_minor, departure.price_minor, departure.prices)


@lru_cache(maxsize=4096)
def _add_ons(text: str) -> dict[str, PricedAddOn]:
    return {item["id"]: PricedAddOn(item["label"], item["price"]["amount_minor"]) for item in orjson.loads(text)}


def quote(
    organization: Organization,
    departure: LockedDeparture,
    guests: Sequence[GuestLineInput],
    add_ons: Sequence[AddOnInput],
) -> Quote:
    """Price the lines of a request at a departure.

    Raises:
        Unprocessable: a tier or add-on is unknown, the add-ons app is off, or the sum exceeds 64 bits.
    """
    priced, problems = evaluate(organization, departure, guests, add_ons)
    require(problems)
    return priced


def evaluate(
    organization: Organization,
    departure: LockedDeparture,
    guests: Sequence[GuestLineInput],
    add_ons: Sequence[AddOnInput],
) -> tuple[Quote, list[Unprocessable]]:
    """Price the lines of a request that are offered, and return each reason why it has no price as a whole."""
    problems: list[Unprocessable] = []
    tiers, currency = tiers_of(departure), departure.currency
    guest_lines, add_on_lines = list[Line](), list[Line]()
    subtotal = seats = 0
    for i, guest in enumerate(guests):
        tier = tiers.get(guest.tier_id)
        if tier is None:
            problems.append(_unknown_line(f"guests.{i}.tier_id", "price tier", "unknown_tier", tiers))
            continue
        subtotal += tier.price_minor * guest.count
        seats += tier.seats_per_unit * guest.count
        price = money_json(tier.price_minor, currency)
        line = {"tier_id": guest.tier_id, "tier_label": tier.label, "count": guest.count, "unit_price": price}
        guest_lines.append(line)
    if add_ons and not organization.add_ons_app:
        problems.append(_add_ons_app_disabled())
        add_ons = ()
    offered = _add_ons(departure.add_ons) if add_ons else {}
    for i, requested in enumerate(add_ons):
        add_on = offered.get(requested.id)
        if add_on is None:
            problems.append(_unknown_line(f"add_ons.{i}.id", "add-on", "unknown_add_on", offered))
            continue
        subtotal += add_on.price_minor * requested.count
        price = money_json(add_on.price_minor, currency)
        add_on_lines.append({"id": requested.id, "label": add_on.label, "count": requested.count, "unit_price": price})
    if subtotal > AMOUNT_MINOR_MAX:
        problems.append(_amount_overflow())
    return Quote(orjson.dumps(guest_lines).decode(), orjson.dumps(add_on_lines).decode(), seats, subtotal), problems


_LISTED_MAX = 10


def _unknown_line(field: str, noun: str, reason: ErrorReason, offered: Collection[str]) -> Unprocessable:
    """Return the error for a tier or add-on that the experience does not have. Its message lists the known ones."""
    listed = ", ".join(sorted(offered)[:_LISTED_MAX]) + (", ..." if len(offered) > _LISTED_MAX else "")
    hint = f"; it has {listed}" if offered else ""
    return Unprocessable.at(field, f"The experience has no such {noun}{hint}.", reason)


def _add_ons_app_disabled() -> Unprocessable:
    return Unprocessable.at("add_ons", "The Add-ons app is off for this organization.", "add_ons_app_disabled")


def _amount_overflow() -> Unprocessable:
    return Unprocessable.at("guests", "The total is larger than an amount can be.", "amount_overflow")


def list_price(row: BookingRow, departure: LockedDeparture) -> int | None:
    """Return the price of a booking's lines by the present prices of a departure.

    It is None where the departure has another currency, or does not offer one of the tiers and add-ons.
    """
    tiers = tiers_of(departure)
    prices = {f"tier {tier_id}": tier.price_minor for tier_id, tier in tiers.items()}
    prices |= {f"add-on {add_on_id}": add_on.price_minor for add_on_id, add_on in _add_ons(departure.add_ons).items()}
    counts = [(f"tier {line['tier_id']}", line["count"]) for line in orjson.loads(row.guests)]
    counts += [(f"add-on {line['id']}", line["count"]) for line in orjson.loads(row.add_ons)]
    if departure.currency != row.currency or any(name not in prices for name, _ in counts):
        return None
    total: int = sum(prices[name] * count for name, count in counts)
    return total


def apply_discount(subtotal_minor: int, discount_minor: int) -> int:
    """Return the amount that is due after the discount.

    Raises:
        Malformed: the discount is negative.
        Unprocessable: the discount exceeds the subtotal.
    """
    if discount_minor < 0:
        raise Malformed.at("discount", "must not be negative", "out_of_range")
    if discount_minor > subtotal_minor:
        raise Unprocessable.at("discount", "The discount is larger than the subtotal.", "discount_too_large")
    return subtotal_minor - discount_minor


def payment(
    mode: Charge, total_minor: int, gift_card_minor: int = 0
) -> tuple[PaymentMethod, PaymentSource, PaymentStatus]:
    """Return the payment method, source and status of a new booking (decision B7).

    A booking with nothing to pay counts as paid, by gift card when one was redeemed.
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
    """Return the setting as a fraction of its decimal digits: no binary rounding changes the fee."""
    return Decimal(str(percent)).as_integer_ratio()


# A changed party (decisions/0011). A guest who stays keeps the former price, and each one who joins pays the present
# price of the tier. The oldest lines of a tier are kept first. ------------------------------------------


class PartyQuote(NamedTuple):
    """The lines of a changed party, as they are stored, with its seats and its amounts."""

    guests: str
    add_ons: str
    seats: int
    subtotal_minor: int
    discount_minor: int
    gift_card_minor: int
    has_more_guests: bool = False
    """Some tier has more guests than before."""
    is_same: bool = False
    """The party has the guests and add-ons that it had, in any order of lines."""

    @property
    def total_minor(self) -> int:
        return self.subtotal_minor - self.discount_minor - self.gift_card_minor


def quote_party(
    organization: Organization,
    departure: LockedDeparture,
    row: BookingRow,
    seats: int,
    guests: Sequence[GuestLineInput],
    add_ons: Sequence[AddOnInput] | None,
) -> PartyQuote:
    """Price a changed party.

    The discount stays as it was given, up to the new subtotal. The gift card pays as much as before, up to the
    amount due: money goes back before the gift card does.

    Args:
        seats: of the booking.
        add_ons: None leaves them as they are.

    Raises:
        Unprocessable: a tier or add-on that changes is not offered, the add-ons app is off, or the sum exceeds 64 bits.
    """
    if departure.currency != row.currency:
        raise Unprocessable.at("guests", f"The departure is sold in {departure.currency}.", "currency_mismatch")
    tiers, sold, sold_add_ons = tiers_of(departure), orjson.loads(row.guests), orjson.loads(row.add_ons)
    counts = _counts((line.tier_id, line.count) for line in guests)
    differences = _differences(counts, sold, tiers, guests)
    guest_lines = _lines(sold, counts, tiers, ("tier_id", "tier_label"), row.currency)
    add_on_lines = _changed_add_ons(organization, departure, sold_add_ons, add_ons)
    subtotal = sum(line["count"] * line["unit_price"]["amount_minor"] for line in (*guest_lines, *add_on_lines))
    if subtotal > AMOUNT_MINOR_MAX:
        raise _amount_overflow()
    if not any(differences.values()) and _stored_counts(add_on_lines, "id") == _stored_counts(sold_add_ons, "id"):
        amounts = (row.subtotal_minor, row.discount_minor, row.gift_card_minor)
        return PartyQuote(row.guests, row.add_ons, seats, *amounts, is_same=True)
    joining = sum(tiers[tier_id].seats_per_unit * count for tier_id, count in differences.items() if count)
    discount = min(row.discount_minor, subtotal)
    return PartyQuote(
        guests=orjson.dumps(guest_lines).decode(),
        add_ons=orjson.dumps(add_on_lines).decode(),
        seats=max(0, seats + joining),
        subtotal_minor=subtotal,
        discount_minor=discount,
        gift_card_minor=min(row.gift_card_minor, subtotal - discount),
        has_more_guests=any(count > 0 for count in differences.values()),
    )


def _differences(
    counts: Counter[str], sold: Iterable[Line], tiers: Mapping[str, Tier], guests: Sequence[GuestLineInput]
) -> dict[str, int]:
    """Return by how many guests each tier changes, and refuse a change of a tier that is not offered."""
    former_counts = _stored_counts(sold, "tier_id")
    differences = {tier_id: counts[tier_id] - former_counts[tier_id] for tier_id in (*counts, *former_counts)}
    for tier_id, difference in differences.items():
        if difference and tier_id not in tiers:
            raise _unknown_line(_field("guests", "tier_id", guests, tier_id), "price tier", "unknown_tier", tiers)
    return differences


def _counts(lines: Iterable[tuple[str, int]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for line_id, count in lines:
        counts[line_id] += count
    return counts


def _stored_counts(lines: Iterable[Line], key: str) -> Counter[str]:
    return _counts((line[key], line["count"]) for line in lines)


def _field(name: str, key: str, lines: Sequence[Any], line_id: str) -> str:
    """Return the field of a line, or the field of all lines when the request leaves it out."""
    fields = (f"{name}.{i}.{key}" for i, line in enumerate(lines) if getattr(line, key) == line_id)
    return next(fields, name)


def _changed_add_ons(
    organization: Organization, departure: LockedDeparture, sold: list[Line], add_ons: Sequence[AddOnInput] | None
) -> list[Line]:
    if add_ons is None:
        return sold
    offered, before = _add_ons(departure.add_ons), _stored_counts(sold, "id")
    counts = _counts((line.id, line.count) for line in add_ons)
    added = [line_id for line_id, count in counts.items() if count > before[line_id]]
    if added and not organization.add_ons_app:
        raise _add_ons_app_disabled()
    for line_id in added:
        if line_id not in offered:
            raise _unknown_line(_field("add_ons", "id", add_ons, line_id), "add-on", "unknown_add_on", offered)
    return _lines(sold, counts, offered, ("id", "label"), departure.currency)


def _lines(
    sold: Sequence[Line],
    counts: Mapping[str, int],
    offered: Mapping[str, Tier] | Mapping[str, PricedAddOn],
    names: tuple[str, str],
    currency: str,
) -> list[Line]:
    """Return the lines of the wanted counts: those that were sold, then the others at their present price."""
    lines: list[Line] = []
    for line_id, count in counts.items():
        remaining = count
        for line in sold:
            reused = min(remaining, line["count"]) if line[names[0]] == line_id else 0
            if reused:
                lines.append(line | {"count": reused})
                remaining -= reused
        if remaining:
            price = money_json(offered[line_id].price_minor, currency)
            new: Line = {
                names[0]: line_id,
                names[1]: offered[line_id].label,
                "count": remaining,
                "unit_price": price,
            }
            if lines and lines[-1] | {"count": remaining} == new:  # the same but for the count
                new["count"] += lines.pop()["count"]
            lines.append(new)
    return lines
