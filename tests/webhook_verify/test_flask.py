from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("flask")

from flask import Flask

from webhook_verify import MemorySeenStore, Verifier
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


def test_unverified_request_does_not_reach_the_view(verifier: Verifier, body: bytes, headers: dict[str, str]) -> None:
    response = client_of(verifier, None).post("/webhooks/here", data=body + b" ", headers=headers)
    assert response.status_code == 400
    assert response.json["reason"] == "signature_mismatch"
    assert set(response.json) == {"error", "reason"}


def test_a_body_too_large_is_answered_with_413(verifier: Verifier, headers: dict[str, str]) -> None:
    response = client_of(verifier, None).post("/webhooks/here", data=b"a" * 4097, headers=headers)
    assert (response.status_code, response.json["reason"]) == (413, "body_too_large")


def test_a_form_is_verified_as_the_bytes_it_came_in(verifier: Verifier, body: bytes, headers: dict[str, str]) -> None:
    client = client_of(verifier, lambda delivery, place: delivery.payload)
    sent = {**headers, "Content-Type": "application/x-www-form-urlencoded"}
    assert client.post("/webhooks/here", data=body, headers=sent).data == body


def test_a_duplicate_is_answered_with_success(remembering: Verifier, body: bytes, headers: dict[str, str]) -> None:
    calls: list[str] = []
    client = client_of(remembering, lambda delivery, place: calls.append(place) or "ok")
    assert client.post("/webhooks/here", data=body, headers=headers).data == b"ok"
    again = client.post("/webhooks/here", data=body, headers=headers)
    assert (again.status_code, again.json) == (200, {"status": "duplicate"})
    assert calls == ["here"]


@pytest.mark.parametrize("status", [302, 400, 500])
def test_an_event_the_view_did_not_take_comes_again(
    status: int, remembering: Verifier, seen: MemorySeenStore, body: bytes, headers: dict[str, str]
) -> None:
    client_of(remembering, lambda delivery, place: ("", status)).post("/webhooks/here", data=body, headers=headers)
    assert seen.claim("evt-1", 1)


def test_an_event_the_view_failed_on_comes_again(
    remembering: Verifier, seen: MemorySeenStore, body: bytes, headers: dict[str, str]
) -> None:
    def receive(delivery: Any, place: str) -> Any:
        raise LookupError

    assert client_of(remembering, receive).post("/webhooks/here", data=body, headers=headers).status_code == 500
    assert seen.claim("evt-1", 1)
