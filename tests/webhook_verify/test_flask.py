from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("flask")

from flask import Flask

from webhook_verify import Verifier
from webhook_verify.flask import verified


def client_of(verifier: Verifier, view: Any) -> Any:
    app = Flask("receiver")
    app.post("/webhooks/<place>")(verified(verifier)(view))
    return app.test_client()


def test_a_verified_delivery_reaches_the_view_before_its_other_arguments(
    verifier: Verifier, body: bytes, headers: dict[str, str]
) -> None:
    client = client_of(verifier, lambda delivery, place: {"event_id": delivery.event_id, "place": place})
    response = client.post("/webhooks/here", data=body, headers=headers)
    assert (response.status_code, response.json) == (200, {"event_id": "evt-1", "place": "here"})


def test_the_view_keeps_its_name(verifier: Verifier) -> None:
    def receive(delivery: Any) -> Any:
        """Documented."""

    assert verified(verifier)(receive).__name__ == "receive"


def test_a_form_is_verified_as_the_bytes_it_came_in(verifier: Verifier, body: bytes, headers: dict[str, str]) -> None:
    client = client_of(verifier, lambda delivery, place: delivery.payload)
    sent = {**headers, "Content-Type": "application/x-www-form-urlencoded"}
    assert client.post("/webhooks/here", data=body, headers=sent).data == body
