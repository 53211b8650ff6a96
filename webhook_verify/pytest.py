"""Fixtures for the tests of a receiver. In conftest.py: `pytest_plugins = ["webhook_verify.pytest"]`.

def test_a_delivery_is_stored(client, signed_webhook):
    headers, body = signed_webhook("booking.created", data={...})
    assert client.post("/webhooks", content=body, headers=headers).status_code == 200
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from webhook_verify import testing
from webhook_verify.signature import generate_secret

if TYPE_CHECKING:
    from collections.abc import Callable

    SignedWebhook = Callable[..., testing.Request]


@pytest.fixture
def webhook_secret() -> str:
    """Return a new signing secret for each test. Override this fixture with the secret that the application uses."""
    return generate_secret()


@pytest.fixture
def signed_webhook(webhook_secret: str) -> SignedWebhook:
    """Return a factory of deliveries: `signed_webhook("booking.created", data=…)` returns headers and body."""

    def make(event_type: str = "ping", **overrides: Any) -> testing.Request:
        return testing.signed_request(testing.make_event(event_type, **overrides), webhook_secret)

    return make
