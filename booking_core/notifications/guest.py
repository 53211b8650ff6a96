"""The booking or the gift card behind a secret link."""

from dataclasses import dataclass

from booking_core.base.context import Actor, Installation
from booking_core.base.errors import NotFound
from booking_core.base.guest_links import GIFT_CARD_PURPOSE, has_expired, open_token
from booking_core.base.languages import Language, choose, language
from booking_core.db.engine import Tx
from booking_core.notifications import store
from booking_core.notifications.gift_card import GiftCardDetails, GiftCardSummary, gift_card_summary
from booking_core.notifications.summary import BookingDetails, Summary, summary
from booking_core.notifications.translating import translated


@dataclass(frozen=True, slots=True)
class GuestView:
    """A booking that its guest has opened, with the actor for the guest's changes."""

    actor: Actor
    row: BookingDetails
    summary: Summary
    language: Language

    @property
    def has_begun(self) -> bool:
        return self.row.starts_at <= self.actor.at


def open_link(tx: Tx, installation: Installation, token: str, locale: str | None = None) -> GuestView:
    """Return the booking of a guest's token.

    Args:
        locale: the language that the guest chose on the page, before that of the booking and the organization.

    Raises:
        NotFound: the token is malformed, invalid or expired; the error does not say which.
    """
    opened = open_token(installation.secret_keys, token)
    known = store.get_organization(tx, opened.organization_id) if opened else None
    if opened is None or known is None:
        raise NotFound
    organization, at = known
    key = (opened.organization_id, opened.subject_id)
    row = store.get_bookings(tx, [key]).get(key)
    if row is None or not opened.was_made_by(installation.secret_keys, row.manage_key_id):
        raise NotFound
    if has_expired(row, row.ends_at, at):
        raise NotFound
    actor = Actor(installation=installation, organization=organization, at=at)
    wording = language(choose(locale, row.locale, organization.language))
    row = translated(row, organization, locale)
    return GuestView(actor, row, summary(row, organization, wording), wording)


@dataclass(frozen=True, slots=True)
class GiftCardView:
    """A gift card that its recipient has opened."""

    actor: Actor
    row: GiftCardDetails
    summary: GiftCardSummary
    language: Language


def open_gift_card_link(tx: Tx, installation: Installation, token: str, locale: str | None = None) -> GiftCardView:
    """Return the gift card of a recipient's token.

    Raises:
        NotFound: the token is malformed or invalid.
    """
    opened = open_token(installation.secret_keys, token, GIFT_CARD_PURPOSE)
    known = store.get_organization(tx, opened.organization_id) if opened else None
    if opened is None or known is None:
        raise NotFound
    organization, at = known
    key = (opened.organization_id, opened.subject_id)
    row = store.get_gift_cards(tx, [key]).get(key)
    if row is None:
        raise NotFound
    wording = language(choose(locale, organization.language))
    actor = Actor(installation=installation, organization=organization, at=at)
    return GiftCardView(
        actor, row, gift_card_summary(row, organization, installation.secret_keys, wording, at), wording
    )
