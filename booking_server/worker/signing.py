"""The headers of a delivery attempt."""

import webhook_verify
from booking_core.clock import SECOND
from booking_core.webhooks import ClaimedDelivery

USER_AGENT = "Svc-Webhooks/1.0"


def signed_headers(claimed: ClaimedDelivery) -> list[tuple[str, str]]:
    """Return the contract's headers of an attempt, and those of Standard Webhooks beside them (decision W14).

    Headers of the client come last; their names are none of these. The trace context of the event is not signed: it
    says nothing of the event, and each attempt is a span of its own.
    """
    timestamp = claimed.at // SECOND
    standard = webhook_verify.standard_headers(
        claimed.body, claimed.secrets, message_id=claimed.event_id, timestamp=timestamp
    )
    return [
        ("Content-Type", "application/json"),
        ("User-Agent", USER_AGENT),
        (webhook_verify.SIGNATURE_HEADER, webhook_verify.sign(claimed.body, claimed.secrets, timestamp=timestamp)),
        (webhook_verify.EVENT_ID_HEADER, claimed.event_id),
        (webhook_verify.EVENT_TYPE_HEADER, claimed.event_type),
        (webhook_verify.DELIVERY_ID_HEADER, claimed.attempt_id),
        *standard.items(),
        *([("traceparent", claimed.traceparent)] if claimed.traceparent else []),
        *(claimed.headers or ()),
    ]
