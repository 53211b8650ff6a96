"""The verbs of departures. Ids are canonical UUIDs in lower case, as the border hands them on."""

from datetime import date

from booking_core.caller import Caller
from booking_core.db.engine import Tx
from booking_core.db.paging import Page, envelope
from booking_core.departures import rules, store


def find_available(
    tx: Tx, caller: Caller, *, date_from: date, date_to: date | None = None, experience_id: str | None = None
) -> Page:
    """The departures that start on the local days from `date_from` to `date_to`, both included, with their seats as
    they are now: by start, then id, all on one page (decision L4). `date_to` is 30 days later unless said.

    Departures of unpublished experiences belong to it; an experience that the organization does not have has none.

    Raises:
        Unprocessable: the window is reversed, or wider than 92 days.
    """
    organization = caller.organization
    zone, hours = organization.zone, organization.hours_before_booking_closes
    last = rules.default_last_day(date_from) if date_to is None else date_to
    start, end = rules.window(zone, date_from, last, field="to")
    found = store.available(tx, organization.id, start=start, end=end, experience_id=experience_id, at=caller.at)
    return envelope([rules.present(row, zone, hours, caller.at) for row in found], None)
