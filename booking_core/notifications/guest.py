"""The booking behind a guest's secret link."""

from dataclasses import dataclass

from booking_core.context import Actor, Installation
from booking_core.db.engine import Tx
from booking_core.errors import NotFound
from booking_core.guest_links import has_expired, open_token
from booking_core.notifications import store
from booking_core.notifications.summary import BookingDetails, Summary, summary


@dataclass(frozen=True, slots=True)
class GuestView:
    """A booking that its guest has opened, with the actor for the guest's changes."""

    actor: Actor
    row: BookingDetails
    summary: Summary

    @property
    def has_begun(self) -> bool:
        return self.row.starts_at <= self.actor.at


def open_link(tx: Tx, installation: Installation, token: str) -> GuestView:
    """Return the booking of a guest's token.

    Raises:
        NotFound: the token is malformed, invalid or expired; the error does not say which.
    """
    opened = open_token(installation.secret_keys, token)
    known = store.get_organization(tx, opened.organization_id) if opened else None
    if opened is None or known is None:
        raise NotFound
    organization, at = known
    key = (opened.organization_id, opened.booking_id)
    row = store.get_bookings(tx, [key]).get(key)
    if row is None or not opened.was_made_by(installation.secret_keys, row.manage_key_id):
        raise NotFound
    if has_expired(row, row.ends_at, at):
        raise NotFound
    actor = Actor(installation=installation, organization=organization, at=at)
    return GuestView(actor, row, summary(row, organization))
