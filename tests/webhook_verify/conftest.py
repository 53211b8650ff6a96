"""A delivery, signed at a fixed second, that the tests of this folder modify."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from webhook_verify import MemorySeenStore, Verifier, sign


@pytest.fixture
def now() -> int:
    return 1_780_300_000


@pytest.fixture
def secret() -> str:
    return "whsec_" + base64.b64encode(bytes(range(32))).decode()


@pytest.fixture
def other_secret() -> str:
    return "whsec_" + base64.b64encode(bytes(range(32, 64))).decode()


@pytest.fixture
def body() -> bytes:
    return '{"id":"evt-1","type":"booking.created","data":{"object":{"id":"b1","name":"Åse"}}}'.encode()


@pytest.fixture
def headers(body: bytes, secret: str, now: int) -> dict[str, str]:
    return {
        "Content-Type": "application/json",
        "Svc-Signature": sign(body, secret, timestamp=now),
        "Svc-Event-Id": "evt-1",
        "Svc-Event-Type": "booking.created",
        "Svc-Delivery-Id": "attempt-1",
    }


@pytest.fixture
def environ(headers: dict[str, str]) -> dict[str, str]:
    """The headers as a WSGI server names them."""
    return {"HTTP_" + name.upper().replace("-", "_"): value for name, value in headers.items()}


@pytest.fixture
def verifier(secret: str, now: int) -> Verifier:
    """A verifier on the clock of the delivery, without a store of seen events."""
    return Verifier(secret, clock=lambda: now, max_body_bytes=4096)


@pytest.fixture
def seen_store() -> MemorySeenStore:
    return MemorySeenStore()


@pytest.fixture
def remembering(secret: str, now: int, seen_store: Any) -> Verifier:
    """A verifier on the clock of the delivery, with a store of seen events."""
    return Verifier(secret, clock=lambda: now, seen=seen_store)


@pytest.fixture(scope="session")
def django_settings() -> None:
    """Configure Django, once for the process."""
    django = pytest.importorskip("django")
    from django.conf import settings

    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"], SECRET_KEY="unused", USE_TZ=True)
        django.setup()
