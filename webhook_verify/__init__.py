"""Verify that a webhook delivery is authentic, recent and unaltered, with nothing but the standard library.

    from webhook_verify import Verifier
    verifier = Verifier.from_env()
    delivery = verifier.verify(raw_body, request.headers)

The adapters (`webhook_verify.fastapi`, `.flask`, `.django`, `.asgi`, `.aws`) and `webhook_verify.testing` are not
imported here, since an adapter needs its framework. The README is the receiver's guide.
"""

from webhook_verify.errors import DuplicateEvent, EventInProgress, PayloadError, Reason, WebhookVerificationError
from webhook_verify.headers import HeadersLike
from webhook_verify.receiver import VerifiedDelivery, Verifier, is_valid, verify
from webhook_verify.seen import MemorySeenStore, ProgressStore, SeenStore
from webhook_verify.signature import (
    DEFAULT_TOLERANCE,
    DELIVERY_ID_HEADER,
    EVENT_ID_HEADER,
    EVENT_TYPE_HEADER,
    SIGNATURE_HEADER,
    ParsedSignature,
    generate_secret,
    parse_header,
    sign,
    standard_headers,
)

__all__ = [
    "DEFAULT_TOLERANCE",
    "DELIVERY_ID_HEADER",
    "EVENT_ID_HEADER",
    "EVENT_TYPE_HEADER",
    "SIGNATURE_HEADER",
    "DuplicateEvent",
    "EventInProgress",
    "HeadersLike",
    "MemorySeenStore",
    "ParsedSignature",
    "PayloadError",
    "ProgressStore",
    "Reason",
    "SeenStore",
    "VerifiedDelivery",
    "Verifier",
    "WebhookVerificationError",
    "generate_secret",
    "is_valid",
    "parse_header",
    "sign",
    "standard_headers",
    "verify",
]
