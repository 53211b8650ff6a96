"""Values as earlier releases sealed them: bound to no row, and without the name of their key."""

import base64
import os

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from booking_core.base.tokens import SecretKeys


def unbound(keys: SecretKeys, purpose: str, plaintext: bytes) -> str:
    """Return the text as it was sealed before values were bound to their rows."""
    derived, nonce = keys.derived(keys.first_id, purpose), os.urandom(12)
    assert derived is not None
    return base64.b64encode(nonce + AESGCM(derived).encrypt(nonce, plaintext, None)).decode()
