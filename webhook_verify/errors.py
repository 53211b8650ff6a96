"""The exceptions of verification, and the message for each reason.

The messages are fixed sentences. They contain no byte of a body, a header or a secret, so every error can be logged,
shown and sent back.
"""

from __future__ import annotations

# Type checkers take this name for true. `typing` is not imported: its import takes longer than the whole package's.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Reason = Literal[
        "header_missing",
        "header_malformed",
        "header_too_long",
        "no_supported_scheme",
        "signature_mismatch",
        "timestamp_too_old",
        "timestamp_too_new",
        "body_too_large",
        "header_body_mismatch",
        "invalid_json",
    ]
else:
    Reason = str

EXPLANATIONS: dict[Reason, str] = {
    "header_missing": (
        "the request carries no Svc-Signature header: it is not a delivery, or a proxy dropped the header on the way"
    ),
    "header_malformed": "the Svc-Signature header is not of the form t=<unix seconds>,v1=<64 lowercase hex digits>",
    "header_too_long": "the Svc-Signature header is longer than any header the service sends",
    "no_supported_scheme": "the Svc-Signature header holds no v1 signature, the only scheme this version knows",
    "signature_mismatch": (
        "no signature fits the body under the configured secrets: the body has to be the raw bytes of the request,"
        " not parsed and encoded again nor rewritten by a proxy, and the secret has to be the one of this endpoint,"
        " whsec_ included"
    ),
    "timestamp_too_old": (
        "the signature is genuine but older than the tolerance: a replay, a slow clock at the sender, a fast one here,"
        " or a delivery that waited in a queue (pass now= with the time it arrived)"
    ),
    "timestamp_too_new": "the signature is genuine but dated in the future: check the clock of this machine",
    "body_too_large": "the body is larger than this receiver accepts",
    "header_body_mismatch": (
        "the signature is genuine, but the Svc-Event-Id or Svc-Event-Type header, which no signature covers,"
        " contradicts the body"
    ),
    "invalid_json": "the signature is genuine, but the body is not the JSON this receiver expects",
}


class WebhookVerificationError(Exception):
    """The request is not authentic or not recent. No other exception can be caused by the content of a request.

    `reason` is one of the codes of `Reason`, for code and metrics; `str()` is a sentence for people.
    """

    reason: Reason

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return EXPLANATIONS.get(self.reason, self.reason)

    @property
    def http_status(self) -> int:
        """The status to respond with: 413 for a body that is too large, otherwise 400. A 5xx would cause a retry."""
        return 413 if self.reason == "body_too_large" else 400

    def answer(self) -> dict[str, str]:
        """Return the JSON object of the response with `http_status`."""
        return {"error": str(self), "reason": self.reason}


class PayloadError(WebhookVerificationError):
    """The delivery is authentic, but its body is not JSON, or does not match the model."""

    def __init__(self, reason: Reason = "invalid_json") -> None:
        super().__init__(reason)


class EventInProgress(Exception):
    """The delivery is authentic, but another delivery of its event is being handled. Do not answer 2xx: if that one
    fails, the next attempt is handled."""

    http_status = 409

    def __init__(self, event_id: str) -> None:
        super().__init__(event_id)
        self.event_id = event_id

    def __str__(self) -> str:
        return "another delivery of this event is being handled"

    def answer(self) -> dict[str, str]:
        """Return the JSON object of the response with `http_status`."""
        return {"status": "in_progress"}


class DuplicateEvent(Exception):
    """The delivery is authentic, but its event was handled before. Respond with 2xx to stop the retries."""

    http_status = 200

    def __init__(self, event_id: str) -> None:
        super().__init__(event_id)
        self.event_id = event_id

    def __str__(self) -> str:
        return "this event was handled before"

    def answer(self) -> dict[str, str]:
        """Return the JSON object of the response with `http_status`."""
        return {"status": "duplicate"}
