"""Reads deliveries in AWS Lambda from API Gateway (both payload versions), a function URL or a load balancer.

delivery = verifier.verify(*from_lambda(event))
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import Any

from webhook_verify.errors import WebhookVerificationError
from webhook_verify.frames import clear_frames
from webhook_verify.signature import payload_bytes


def from_lambda(event: Mapping[str, Any]) -> tuple[bytes, Mapping[str, Any]]:
    """Return the raw body and the headers of a Lambda event, for `verify`. A base64 body is decoded.

    Raises:
        WebhookVerificationError: The base64 is invalid.
    """
    if not isinstance(event, Mapping):
        raise TypeError(f"from_lambda takes the event of the handler, not {type(event).__name__}")
    headers = event.get("headers") or event.get("multiValueHeaders") or {}
    body = event.get("body") or ""
    try:
        return (binascii.a2b_base64(body) if event.get("isBase64Encoded") else payload_bytes(body)), headers
    except (TypeError, ValueError) as error:
        wrong = WebhookVerificationError("signature_mismatch") if isinstance(error, ValueError) else error
        del event, headers, body
        clear_frames(error)
    raise wrong from None
