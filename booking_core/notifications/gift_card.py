"""A gift card as its recipient sees it, in a mail and on a page. No storage, no clock."""

from dataclasses import dataclass
from typing import NamedTuple

from booking_core.base import gift_codes
from booking_core.base.context import Organization
from booking_core.base.languages import Language
from booking_core.base.tokens import SecretKeys


class GiftCardDetails(NamedTuple):
    """A gift card, in the order of the columns."""

    organization_id: str
    id: str
    code_sealed: str
    currency: str
    initial_minor: int
    balance_minor: int
    valid_from: int | None
    expires_at: int | None
    deactivated_at: int | None
    purchaser_name: str | None
    recipient_name: str | None
    recipient_email: str | None


@dataclass(frozen=True, slots=True)
class GiftCardSummary:
    """The formatted fields of a gift card for a template."""

    code: str | None
    """None: the secret key that sealed it was dropped."""
    amount: str
    balance: str
    is_touched: bool
    """A part of it is spent."""
    is_inactive: bool
    is_expired: bool
    valid_from: str | None
    """The day, while it lies ahead."""
    expires: str | None
    purchaser_name: str | None
    recipient_name: str | None

    @property
    def is_usable(self) -> bool:
        return not (self.is_inactive or self.is_expired or self.valid_from)


def gift_card_summary(
    row: GiftCardDetails, organization: Organization, keys: SecretKeys, wording: Language, at: int
) -> GiftCardSummary:
    """Return the summary of a gift card with its code, in a language and in the organization's zone."""
    zone = organization.zone
    begins_later = row.valid_from is not None and row.valid_from > at
    return GiftCardSummary(
        code=_code(row, keys),
        amount=wording.money(row.initial_minor, row.currency),
        balance=wording.money(row.balance_minor, row.currency),
        is_touched=row.balance_minor != row.initial_minor,
        is_inactive=row.deactivated_at is not None,
        is_expired=row.expires_at is not None and row.expires_at <= at,
        valid_from=wording.moment(zone, row.valid_from) if begins_later and row.valid_from is not None else None,
        expires=None if row.expires_at is None else wording.moment(zone, row.expires_at),
        purchaser_name=row.purchaser_name,
        recipient_name=row.recipient_name,
    )


def _code(row: GiftCardDetails, keys: SecretKeys) -> str | None:
    try:
        return gift_codes.open_code(keys, row.organization_id, row.id, row.code_sealed)
    except ValueError:
        return None
