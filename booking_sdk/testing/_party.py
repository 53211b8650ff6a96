"""Changes of the party of bookings in the fake, by the rules of the service. No card and no gift card pays there."""

from collections import Counter
from collections.abc import Iterator

from booking_core.models.bookings import BookingPartyChange, ChangeSettlement
from booking_sdk.models import BookingChange
from booking_sdk.testing import _changes
from booking_sdk.testing._http import Refusal, conflict
from booking_sdk.testing._refusals import Check, refusals_of
from booking_sdk.testing._store import Row, Store, payment_after
from booking_sdk.testing.factories import resource_fields, totals_fields


def change_party(store: Store, booking_id: str, body: BookingPartyChange) -> Row:
    """Change the party of a booking, and return the change."""
    row = store.get(store.bookings, booking_id)
    for check in _party_checks(store, row):
        check()
    after = _after(store, row, body)
    for check in _joining_checks(store, row, after):
        check()
    change = _change(store, row, after)
    if after is not row:
        row["_seats"] = after["_seats"]
        store.update("booking.updated", row, {name: after[name] for name in ("guests", "add_ons", "totals", "payment")})
    return change


def preview_party(store: Store, booking_id: str, body: BookingPartyChange) -> Row:
    """Return the change that `change_party` would make, or its refusals."""
    row = store.get(store.bookings, booking_id)
    refusals = refusals_of(_party_checks(store, row))
    try:
        after = _after(store, row, body)
    except Refusal as refusal:
        return _changes.refused(row, [*refusals, refusal])
    refusals += refusals_of(_joining_checks(store, row, after))
    return _changes.refused(row, refusals) if refusals else _change(store, row, after)


def _party_checks(store: Store, row: Row) -> Iterator[Check]:
    departure = store.departures[row["departure"]["id"]]
    yield lambda: _changes.require_live(row)
    yield lambda: _require_not_attended(row)
    if departure["_status"] == "cancelled" or departure["_starts_at"] <= store.clock.now:
        yield lambda: store.check_bookable(departure)


def _joining_checks(store: Store, row: Row, after: Row) -> Iterator[Check]:
    departure, joining = store.departures[row["departure"]["id"]], after["_seats"] - row["_seats"]
    before, now = (_counts(each["guests"], "tier_id") for each in (row, after))
    if any(now[tier_id] > before[tier_id] for tier_id in now):
        yield lambda: store.check_bookable(departure)
    if joining > 0:
        yield lambda: store.check_seats(departure, joining)


def _require_not_attended(row: Row) -> None:
    if row["checked_in_at"] is not None:
        raise conflict("booking_checked_in", "The guests are checked in: take the check-in back first.")
    if row["no_show_at"] is not None:
        raise conflict("booking_no_show", "The booking is recorded as a no-show: take that back first.")


def _after(store: Store, row: Row, body: BookingPartyChange) -> Row:
    """Return the row with its new party; the row itself when the party is the same."""
    departure = store.departures[row["departure"]["id"]]
    problems: list[Refusal] = []
    new_guests, _ = store.guest_lines(departure, body, problems)
    guests, add_ons = _merged(row["guests"], new_guests, "tier_id"), row["add_ons"]
    if body.add_ons is not None:
        offered = store.add_on_lines(store.experiences[departure["experience_id"]], body, problems)
        add_ons = _merged(row["add_ons"], offered, "id")
    for problem in problems:
        raise problem
    same = _counts(guests, "tier_id") == _counts(row["guests"], "tier_id")
    if same and _counts(add_ons, "id") == _counts(row["add_ons"], "id"):
        return row
    tiers = {tier["id"]: tier["seats_per_unit"] for tier in departure["_tiers"]}
    total = sum(line["count"] * line["unit_price"]["amount_minor"] for line in (*guests, *add_ons))
    currency = row["totals"]["total"]["currency"]
    return {
        **row,
        "updated_at": store.now,
        "guests": guests,
        "add_ons": add_ons,
        "totals": totals_fields(total, currency),
        "payment": payment_after(row["payment"], total),
        "_seats": sum(line["count"] * tiers[line["tier_id"]] for line in guests),
    }


def _counts(lines: list[Row], key: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for line in lines:
        counts[line[key]] += line["count"]
    return counts


def _merged(sold: list[Row], wanted: list[Row], key: str) -> list[Row]:
    """Return the wanted lines, of which those that were sold keep their price."""
    lines: list[Row] = []
    for line_id, count in _counts(wanted, key).items():
        left = count
        new = next(line for line in wanted if line[key] == line_id)
        for line in [each for each in sold if each[key] == line_id]:
            kept = min(left, line["count"])
            left -= kept
            lines += [{**line, "count": kept}] if kept else []
        if left and lines and {**lines[-1], "count": 0} == {**new, "count": 0}:
            lines[-1]["count"] += left
        elif left:
            lines.append({**new, "count": left})
    return lines


def _change(store: Store, row: Row, after: Row) -> Row:
    difference = _total(after) - _total(row)
    money = _changes.money_of(
        store, after, store.departures[row["departure"]["id"]], _settlement(row, difference), difference
    )
    return resource_fields(BookingChange, allowed=True, refusals=[], booking=after, seats=after["_seats"], money=money)


def _total(row: Row) -> int:
    total: int = row["totals"]["total"]["amount_minor"]
    return total


def _settlement(row: Row, difference: int) -> ChangeSettlement:
    if not difference:
        return ChangeSettlement.PRICE_KEPT
    if row["payment"]["method"] == "external_paid":
        return ChangeSettlement.ELSEWHERE
    return ChangeSettlement.BALANCE_DUE if difference > 0 else ChangeSettlement.LESS_DUE
