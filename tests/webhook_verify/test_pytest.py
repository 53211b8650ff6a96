from __future__ import annotations

from typing import Any

from webhook_verify import verify
from webhook_verify.pytest import signed_webhook, webhook_secret

__all__ = ["signed_webhook", "webhook_secret"]


def test_the_fixture_makes_deliveries_signed_with_the_secret_of_the_test(
    signed_webhook: Any, webhook_secret: str
) -> None:
    headers, body = signed_webhook("booking.cancelled", data={"reason": "customer"})
    delivery = verify(body, headers, webhook_secret)
    assert delivery.event_type == "booking.cancelled"
    assert delivery.json()["data"] == {"reason": "customer"}
