"""Rules of a sandbox's clock: how far it moves, and what is shown of it. No storage, no clock."""

from collections.abc import Mapping
from typing import Any

from booking_core.base.clock import SECOND
from booking_core.base.context import Organization
from booking_core.base.errors import Malformed, Unprocessable
from booking_core.models.limits import SANDBOX_CLOCK_AHEAD_S_MAX
from booking_core.models.sandbox import SandboxClockAdvance, SandboxStatus


def new_offset(organization: Organization, offset: int, real: int, request: SandboxClockAdvance) -> int:
    """Return the offset of the clock after an advance.

    Args:
        offset: the present one.
        real: the present instant by the database's clock.

    Raises:
        Malformed: `to` is no timestamp.
        Unprocessable: `in_the_past`, or `too_far_ahead`.
    """
    if request.to is None:
        assert request.seconds is not None
        moved = offset + request.seconds * SECOND
    else:
        moved = _instant(organization, request.to) - real
    if moved < offset:
        raise Unprocessable.at("to", "The clock of a sandbox never goes back.", "in_the_past")
    if moved > SANDBOX_CLOCK_AHEAD_S_MAX * SECOND:
        field = "seconds" if request.to is None else "to"
        message = "The clock of a sandbox is never more than 731 days ahead of the real time."
        raise Unprocessable.at(field, message, "too_far_ahead")
    return moved


def _instant(organization: Organization, text: str) -> int:
    try:
        return organization.zone.parse(text)
    except ValueError as error:
        raise Malformed.at("to", str(error)) from None


def present(organization: Organization, real: int, due: Mapping[str, int]) -> dict[str, Any]:
    """Return the API's SandboxClock, ready for JSON."""
    return {
        "now": organization.zone.iso(organization.instant(real)),
        "offset_seconds": (organization.clock_offset or 0) // SECOND,
        "status": (SandboxStatus.ADVANCING if any(due.values()) else SandboxStatus.READY).value,
        "due": dict(due),
    }
