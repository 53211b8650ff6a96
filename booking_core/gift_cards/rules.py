"""How a gift card is shown, and how its code is kept: decided without storage.

A code is a payment instrument. It is stored twice, never as it is: sealed, to be handed out on request, and as a keyed
hash, to find the card by. Both fall to nothing without the installation's secret keys.
"""

from typing import Any, NamedTuple

from booking_core.clock import Zone
from booking_core.tokens import SecretKeys

_SEAL = "gift_card_code"
_HASH = "gift_card_code_hash"


class GiftCardRow(NamedTuple):
    """What is shown of a gift card, in the order it is read; the first two place it in the list."""

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
    """The gift card as lists and events show it (API v1 section 2), without its code."""
    return {
        "id": row.id,
        "code_last4": row.code_last4,
        "status": row.status,
        "initial_amount": {"amount_minor": row.initial_minor, "currency": row.currency},
        "balance": {"amount_minor": row.balance_minor, "currency": row.currency},
        "currency": row.currency,
        "expires_at": None if row.expires_at is None else zone.iso(row.expires_at),
        "purchaser": {"name": row.purchaser_name, "email": row.purchaser_email},
        "recipient": {"name": row.recipient_name, "email": row.recipient_email},
        "created_at": zone.iso(row.created_at),
    }


def normalise_code(code: str) -> str:
    """The code as it is kept: a guest may type it in any case, with blanks around it."""
    return code.strip().upper()


def last4(code: str) -> str:
    """The part of a code that is shown to everyone."""
    return normalise_code(code)[-4:]


def seal_code(secret_keys: SecretKeys, code: str) -> str:
    """The code for `code_sealed`."""
    return secret_keys.seal(_SEAL, normalise_code(code).encode())


def open_code(secret_keys: SecretKeys, sealed: str) -> str | None:
    """The code that was sealed; null when the secret key that sealed it is gone."""
    try:
        return secret_keys.open(_SEAL, sealed).decode()
    except ValueError:
        return None


def hash_code(secret_keys: SecretKeys, organization_id: str, code: str) -> str:
    """The code for `code_hash`."""
    return secret_keys.sign(_HASH, _hashed(organization_id, code)).hex()


def code_hashes(secret_keys: SecretKeys, organization_id: str, code: str) -> list[str]:
    """Every `code_hash` the code may be stored under, one for each live secret key: a card outlives a rotation."""
    return [signature.hex() for signature in secret_keys.signatures(_HASH, _hashed(organization_id, code))]


def _hashed(organization_id: str, code: str) -> bytes:
    return f"{organization_id}:{normalise_code(code)}".encode()
