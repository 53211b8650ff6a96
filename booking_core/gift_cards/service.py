"""The verbs of gift cards. Ids are canonical UUIDs in lower case, as the border hands them on."""

from typing import Any

from booking_core import gift_codes
from booking_core.caller import Caller
from booking_core.db.engine import Tx
from booking_core.db.paging import Page, PageRequest
from booking_core.errors import NotFound
from booking_core.gift_cards import rules, store
from booking_core.gift_cards.rules import GiftCardRow
from booking_core.tokens import SecretKeys
from booking_core.wire.gift_cards import GiftCardStatus


def find(
    tx: Tx,
    caller: Caller,
    page: PageRequest,
    *,
    status: GiftCardStatus | None = None,
    updated_since: int | None = None,
) -> Page:
    """A page of gift cards, without their codes: of one status as it is now, or changed at an instant or later."""
    zone = caller.organization.zone
    return store.WALK.find(
        tx,
        caller,
        page,
        lambda row: rules.present(GiftCardRow._make(row), zone),
        status=status.value if status else None,
        updated_since=updated_since,
    )


def get(tx: Tx, caller: Caller, gift_card_id: str, *, include_code: bool = False) -> dict[str, Any]:
    """One gift card. Its code is there only when asked for, and null when its secret key is gone.

    Raises:
        NotFound: the organization has no such card.
    """
    found = store.get(tx, caller.organization.id, gift_card_id)
    if found is None:
        raise NotFound
    row, sealed = found
    shown = rules.present(row, caller.organization.zone)
    return shown | {"code": _opened(caller.secret_keys, sealed)} if include_code else shown


def _opened(secret_keys: SecretKeys, sealed: str) -> str | None:
    """The code; null when the secret key that sealed it is gone, which is no reason to refuse the card."""
    try:
        return gift_codes.open_code(secret_keys, sealed)
    except ValueError:
        return None
