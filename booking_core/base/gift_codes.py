"""The code of a gift card at rest.

A code is a payment instrument. It is stored twice, never as it is: sealed, to be handed out on request, and as a keyed
hash, to find the card by. Both fall to nothing without the installation's secret keys.
"""

import secrets

from booking_core.base.tokens import SecretKeys

_ALPHABET = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
"""Without 0 and O, 1, I and L: a guest types it from paper."""
_GROUPS, _GROUP = 4, 4
SEALED_FOR = "gift_card_code"
_HASH = "gift_card_code_hash"
_HINT_LENGTH = 4


def new_code() -> str:
    """Return a new random code: four groups of four characters, 79 random bits."""
    return "-".join("".join(secrets.choice(_ALPHABET) for _ in range(_GROUP)) for _ in range(_GROUPS))


def normalise_code(code: str) -> str:
    """Normalise a code: a guest may type it in any case, with blanks around it."""
    return code.strip().upper()


def last4(code: str) -> str:
    """Return the part of a code that is shown in lists."""
    return normalise_code(code)[-_HINT_LENGTH:]


def seal_code(secret_keys: SecretKeys, organization_id: str, gift_card_id: str, code: str) -> str:
    """Seal a code for the card's `code_sealed`."""
    return secret_keys.seal(SEALED_FOR, normalise_code(code).encode(), organization_id, gift_card_id)


def open_code(secret_keys: SecretKeys, organization_id: str, gift_card_id: str, sealed: str) -> str | None:
    """Open the code that was sealed for the card; None if its secret key was removed, or if it was sealed for another
    card."""
    code = secret_keys.open_or_none(SEALED_FOR, sealed, organization_id, gift_card_id)
    return None if code is None else code.decode()


def hash_code(secret_keys: SecretKeys, organization_id: str, code: str) -> str:
    """Return the hash of a code for `code_hash`."""
    return secret_keys.sign(_HASH, _hashed(organization_id, code)).hex()


def code_hashes(secret_keys: SecretKeys, organization_id: str, code: str) -> list[str]:
    """Return every possible `code_hash` of a code, one for each live secret key: a card outlives a rotation."""
    return [signature.hex() for signature in secret_keys.signatures(_HASH, _hashed(organization_id, code))]


def _hashed(organization_id: str, code: str) -> bytes:
    return f"{organization_id}:{normalise_code(code)}".encode()
