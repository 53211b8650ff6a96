"""Refusals of the fake as quotes and previews list them: every reason, each once, with the text of its error."""

from collections.abc import Callable, Iterable

from booking_core.models.bookings import BookingRefusal
from booking_sdk.testing._http import Refusal
from booking_sdk.testing._store import Row
from booking_sdk.testing.factories import resource_fields

Check = Callable[[], object]
"""A check that raises its refusal."""


def refusals_of(checks: Iterable[Check]) -> list[Refusal]:
    """Return every refusal of the checks, in their order."""
    found = []
    for check in checks:
        try:
            check()
        except Refusal as refusal:
            found.append(refusal)
    return found


def refusal_rows(refusals: Iterable[Refusal]) -> list[Row]:
    """Return the fields of each refusal once, though several checks may have it."""
    rows = [_fields(refusal) for refusal in refusals]
    return [row for i, row in enumerate(rows) if row not in rows[:i]]


def _fields(refusal: Refusal) -> Row:
    detail = (refusal.extra.get("details") or [{}])[0]
    return resource_fields(
        BookingRefusal,
        code=refusal.code,
        reason=detail.get("reason"),
        field=detail.get("field"),
        message=str(refusal),
        seats_available=refusal.extra.get("seats_available"),
    )
