"""Rules of gift cards: issuing, redeeming and presentation."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from booking_core.base.clock import Zone, within_years
from booking_core.base.errors import Malformed, Unprocessable
from booking_core.base.gift_codes import normalise_code
from booking_core.models.base import mailbox, single_line
from booking_core.models.errors import ErrorDetail
from booking_core.models.gift_cards import GiftCardStatus
from booking_core.models.limits import AMOUNT_MINOR_MAX, TEXT_LENGTH_MAX
from booking_core.models.money import CURRENCIES, money_json
from booking_core.models.reasons import ErrorReason, Fault

CODE_LENGTH_MIN = 8
"""A shorter code could be guessed: its last four characters are shown."""


# Shown -----------------------------------------------------------------------------------------------------------


class GiftCardRow(NamedTuple):
    """The columns of a gift card as they are selected; the first two are the keyset of the list."""

    created_at: int
    id: str
    code_last4: str | None
    status: str
    initial_minor: int
    balance_minor: int
    currency: str
    expires_at: int | None
    purchaser_name: str | None
    purchaser_email: str | None
    recipient_name: str | None
    recipient_email: str | None


def present(row: GiftCardRow, zone: Zone) -> dict[str, Any]:
    """Return the gift card as lists and events show it (API v1 section 2), without its code."""
    return {
        "id": row.id,
        "code_last4": row.code_last4,
        "status": row.status,
        "initial_amount": money_json(row.initial_minor, row.currency),
        "balance": money_json(row.balance_minor, row.currency),
        "currency": row.currency,
        "expires_at": zone.iso_or_none(row.expires_at),
        "purchaser": {"name": row.purchaser_name, "email": row.purchaser_email},
        "recipient": {"name": row.recipient_name, "email": row.recipient_email},
        "created_at": zone.iso(row.created_at),
    }


class TransactionRow(NamedTuple):
    """The columns of a transaction as they are selected; the first two are the keyset of the list."""

    created_at: int
    id: str
    kind: str
    amount_minor: int
    balance_minor: int
    booking_id: str | None
    currency: str


def present_transaction(row: TransactionRow, zone: Zone) -> dict[str, Any]:
    """Return a transaction of a gift card as the API shows it."""
    return {
        "id": row.id,
        "type": row.kind,
        "amount": money_json(row.amount_minor, row.currency),
        "balance": money_json(row.balance_minor, row.currency),
        "booking_id": row.booking_id,
        "created_at": zone.iso(row.created_at),
    }


# Issued ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GiftCardIssue:
    """A request to issue a gift card that was paid for. Timestamps are microseconds since 1970 UTC."""

    amount_minor: int
    currency: str | None = None
    """None: the organization's default."""
    code: str | None = None
    """None: a code is generated."""
    valid_from: int | None = None
    """None: valid immediately."""
    expires_at: int | None = None
    """None: never."""
    purchaser_name: str | None = None
    purchaser_email: str | None = None
    recipient_name: str | None = None
    recipient_email: str | None = None
    send_email: bool = True
    """Mail the code to the recipient, if an address is given."""
    locale: str | None = None
    """The language of that mail (BCP 47); None: the organization's."""


def check(request: GiftCardIssue) -> None:
    """Validate a request to issue a gift card.

    Raises:
        Malformed: with one detail for each field that is wrong.
    """
    problems = [ErrorDetail(field=field, reason=fault.reason, message=str(fault)) for field, fault in _faults(request)]
    if problems:
        raise Malformed("; ".join(f"{problem.field} {problem.message}" for problem in problems), details=problems)


def _faults(request: GiftCardIssue) -> Iterator[tuple[str, Fault]]:
    if not 1 <= request.amount_minor <= AMOUNT_MINOR_MAX:
        yield "amount_minor", Fault("out_of_range", f"must be a whole number from 1 to {AMOUNT_MINOR_MAX}")
    if request.currency is not None and request.currency not in CURRENCIES:
        yield "currency", Fault("unknown_value", "must be an ISO 4217 code in capitals, such as NOK")
    if request.expires_at is not None and request.valid_from is not None and request.expires_at <= request.valid_from:
        yield "expires_at", Fault("window_reversed", "must lie after valid_from")
    for field in _CHECKED:
        value = getattr(request, field)
        if value is None:
            continue
        try:
            _check(field, value)
        except Fault as fault:
            yield field, fault


_CHECKED = (
    "valid_from",
    "expires_at",
    "code",
    "purchaser_name",
    "purchaser_email",
    "recipient_name",
    "recipient_email",
    "locale",
)


def _check(field: str, value: int | str) -> None:
    if isinstance(value, str):
        _check_text(field, value)
    else:
        within_years(value)  # as in a catalogue file: an export can be imported again


def _check_text(field: str, text: str) -> None:
    if len(text) > TEXT_LENGTH_MAX:
        raise Fault("too_long", f"must have at most {TEXT_LENGTH_MAX} characters")
    single_line(text)
    if field == "code" and len(normalise_code(text)) < CODE_LENGTH_MIN:
        raise Fault("too_short", f"must have at least {CODE_LENGTH_MIN} characters")
    if field.endswith("_email"):
        mailbox(text)


# Redeemed --------------------------------------------------------------------------------------------------------


class LockedCard(NamedTuple):
    """A card that is locked until the transaction ends."""

    row: GiftCardRow
    valid_from: int | None
    deactivated_at: int | None
    updated_at: int

    def changed(self, at: int, **values: Any) -> "LockedCard":
        """Return the card after a change. Its status is not recomputed.

        Each change is later than the one before, also when the clock steps back or two transactions began in one
        microsecond: the ledger is in the order of its instants.
        """
        columns = {name: values.pop(name) for name in ("deactivated_at",) if name in values}
        return self._replace(row=self.row._replace(**values), updated_at=max(at, self.updated_at + 1), **columns)


def taken(card: LockedCard | None, *, currency: str, wanted_minor: int) -> int:
    """Return the amount that the card pays of the wanted one.

    Raises:
        Unprocessable: the card cannot pay; the reason says why.
    """
    if card is None:
        raise _refusal("gift_card_unknown", "There is no such gift card.")
    row = card.row
    if row.status == GiftCardStatus.INACTIVE:
        raise _refusal("gift_card_inactive", "The gift card was deactivated.")
    if row.status == GiftCardStatus.EXPIRED and row.balance_minor == 0:
        raise _refusal("gift_card_empty", "The gift card is spent.")
    if row.status == GiftCardStatus.EXPIRED:
        raise _refusal("gift_card_expired", "The gift card is not valid now.")
    if row.currency != currency:
        raise _refusal("gift_card_currency", f"The gift card is in {row.currency}, the booking in {currency}.")
    return min(row.balance_minor, wanted_minor)


def _refusal(reason: ErrorReason, message: str) -> Unprocessable:
    return Unprocessable.at("gift_card", message, reason)
