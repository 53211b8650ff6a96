"""Lines and amounts of a booking whose party changes (decisions/0011). No storage, no clock.

A guest who stays keeps the price at which they were sold, and each one who joins costs what the tier costs now. The
oldest lines of a tier are kept first.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from booking_core.base.context import Organization
from booking_core.base.errors import Unprocessable
from booking_core.bookings import pricing
from booking_core.bookings.rules import BookingRow, LockedDeparture, money
from booking_core.models.bookings import AddOnInput, GuestLineInput
from booking_core.models.limits import AMOUNT_MINOR_MAX

Line = dict[str, Any]


class PartyQuote(NamedTuple):
    """The lines of a changed party, as they are stored, with its seats and its amounts."""

    guests: str
    add_ons: str
    seats: int
    subtotal_minor: int
    discount_minor: int
    gift_card_minor: int
    has_more_guests: bool
    """Some tier has more guests than before."""

    @property
    def total_minor(self) -> int:
        return self.subtotal_minor - self.discount_minor - self.gift_card_minor


class _Offered(NamedTuple):
    label: str
    price_minor: int


def quote(
    organization: Organization,
    departure: LockedDeparture,
    row: BookingRow,
    seats: int,
    guests: Sequence[GuestLineInput],
    add_ons: Sequence[AddOnInput] | None,
) -> PartyQuote:
    """Price a changed party.

    The discount stays as it was given, up to the new subtotal. The gift card pays what it paid, up to what is due: so
    money goes back before the gift card does.

    Args:
        seats: of the booking.
        add_ons: None leaves them as they are.

    Raises:
        Unprocessable: a tier or add-on that changes is not offered, the add-ons app is off, or the sum exceeds 64 bits.
    """
    if departure.currency != row.currency:
        raise Unprocessable.at("guests", f"The departure is sold in {departure.currency}.", "currency_mismatch")
    tiers = pricing.tiers_of(departure)
    sold, wanted = orjson.loads(row.guests), _counts((line.tier_id, line.count) for line in guests)
    before = _counts((line["tier_id"], line["count"]) for line in sold)
    differences = {tier_id: wanted[tier_id] - before[tier_id] for tier_id in (*wanted, *before)}
    for tier_id, difference in differences.items():
        if difference and tier_id not in tiers:
            raise pricing.unknown_line(_field("guests", "tier_id", guests, tier_id), "price tier", tiers)
    offered = {tier_id: _Offered(tier.label, tier.price_minor) for tier_id, tier in tiers.items()}
    guest_lines = _lines(sold, wanted, offered, ("tier_id", "tier_label"), row.currency)
    joining = sum(tiers[tier_id].seats_per_unit * count for tier_id, count in differences.items() if count)
    add_on_lines = _add_on_lines(organization, departure, row, add_ons)
    subtotal = _sum(guest_lines) + _sum(add_on_lines)
    if subtotal > AMOUNT_MINOR_MAX:
        raise Unprocessable.at("guests", "The total is larger than an amount can be.", "amount_overflow")
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


def is_same(row: BookingRow, quoted: PartyQuote) -> bool:
    """Return whether the party has the guests and add-ons that it had, in any order of lines."""
    return all(
        _counts((line[key], line["count"]) for line in orjson.loads(before))
        == _counts((line[key], line["count"]) for line in orjson.loads(after))
        for key, before, after in (("tier_id", row.guests, quoted.guests), ("id", row.add_ons, quoted.add_ons))
    )


def _counts(lines: Any) -> Counter[str]:
    counts: Counter[str] = Counter()
    for line_id, count in lines:
        counts[line_id] += count
    return counts


def _field(name: str, key: str, lines: Sequence[Any], line_id: str) -> str:
    """Return the field of a line; that of all lines when the request leaves it out."""
    found = (f"{name}.{i}.{key}" for i, line in enumerate(lines) if getattr(line, key) == line_id)
    return next(found, name)


def _add_on_lines(
    organization: Organization, departure: LockedDeparture, row: BookingRow, add_ons: Sequence[AddOnInput] | None
) -> list[Line]:
    sold: list[Line] = orjson.loads(row.add_ons)
    if add_ons is None:
        return sold
    wanted, before = _counts((line.id, line.count) for line in add_ons), _counts((li["id"], li["count"]) for li in sold)
    added = [line_id for line_id, count in wanted.items() if count > before[line_id]]
    if added and not organization.add_ons_app:
        raise Unprocessable.at("add_ons", "The Add-ons app is off for this organization.", "add_ons_app_disabled")
    offered = {each: _Offered(*add_on) for each, add_on in pricing.add_ons_of(departure).items()}
    for line_id in added:
        if line_id not in offered:
            raise pricing.unknown_line(_field("add_ons", "id", add_ons, line_id), "add-on", offered)
    return _lines(sold, wanted, offered, ("id", "label"), row.currency)


def _lines(
    sold: Sequence[Line],
    wanted: Mapping[str, int],
    offered: Mapping[str, _Offered],
    names: tuple[str, str],
    currency: str,
) -> list[Line]:
    """Return the lines of the wanted counts: those that were sold, then the others at their present price."""
    lines: list[Line] = []
    for line_id, count in wanted.items():
        left = count
        for line in sold:
            kept = min(left, line["count"]) if line[names[0]] == line_id else 0
            if kept:
                lines.append(line | {"count": kept})
                left -= kept
        if left:
            _append(lines, _new_line(line_id, offered[line_id], left, names, currency), names)
    return lines


def _new_line(line_id: str, offered: _Offered, count: int, names: tuple[str, str], currency: str) -> Line:
    price = money(offered.price_minor, currency)
    return {names[0]: line_id, names[1]: offered.label, "count": count, "unit_price": price}


def _append(lines: list[Line], line: Line, names: tuple[str, str]) -> None:
    """Append a line, or add its count to the last one where both are the same but for that."""
    if lines and all(lines[-1][name] == line[name] for name in (*names, "unit_price")):
        lines[-1] = line | {"count": lines[-1]["count"] + line["count"]}
    else:
        lines.append(line)


def _sum(lines: Sequence[Line]) -> int:
    total: int = sum(line["count"] * line["unit_price"]["amount_minor"] for line in lines)
    return total
