"""The headers of a delivery attempt."""

from functools import lru_cache

import webhook_verify
from booking_core.base.clock import SECOND
from booking_core.webhooks import ClaimedDelivery
from webhook_verify.signature import Signer

USER_AGENT = "Svc-Webhooks/1.0"
SIGNERS_MAX = 1024
"""The endpoints whose keys stay prepared."""

_signer = lru_cache(maxsize=SIGNERS_MAX)(Signer)


def signed_headers(claimed: ClaimedDelivery, at: int | None = None) -> list[tuple[str, str]]:
    """Return the contract's headers of an attempt, and those of Standard Webhooks beside them (decision W14).

    They are dated at the instant, by default at that of the claim. Headers of the client come last; their names are
    none of these. The trace context of the event is not signed: it says nothing of the event, and each attempt is a
    span of its own.
    """
    timestamp, signer = (claimed.at if at is None else at) // SECOND, _signer(claimed.secrets)
    return [
        ("Content-Type", "application/json"),
        ("User-Agent", USER_AGENT),
        (webhook_verify.SIGNATURE_HEADER, signer.sign(claimed.body, timestamp=timestamp)),
        (webhook_verify.EVENT_ID_HEADER, claimed.event_id),
        (webhook_verify.EVENT_TYPE_HEADER, claimed.event_type),
        (webhook_verify.DELIVERY_ID_HEADER, claimed.attempt_id),
        *signer.standard_headers(claimed.body, message_id=claimed.event_id, timestamp=timestamp).items(),
        *([("traceparent", claimed.traceparent)] if claimed.traceparent else []),
        *(claimed.headers or ()),
    ]
