"""The responses of the adapters to requests that do not verify."""

from __future__ import annotations

import logging
from typing import Union

from webhook_verify.errors import DuplicateEvent, EventInProgress, WebhookVerificationError

Rejection = Union[WebhookVerificationError, DuplicateEvent, EventInProgress]
REJECTIONS = (WebhookVerificationError, DuplicateEvent, EventInProgress)

_log = logging.getLogger("webhook_verify")


def answer(refusal: Rejection) -> tuple[int, dict[str, str]]:
    """Return the status and the JSON object of the response, and log a warning if the delivery does not verify."""
    if isinstance(refusal, WebhookVerificationError):
        _log.warning("a delivery was refused: %s: %s", refusal.reason, refusal)
    return refusal.http_status, refusal.answer()
