"""The cost of verifying, counted in function calls, which do not depend on the machine.

`test_package` counts the imports.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from webhook_verify import Verifier, generate_secret, sign

CALLS_MAX = 10
"""The calls of Python functions, including `verify`; each costs about a tenth of the HMAC of two kilobytes."""

pytestmark = pytest.mark.skipif(sys.getprofile() is not None, reason="only one can count the calls")


def calls_of(verifier: Verifier, body: bytes, headers: dict[str, str]) -> list[str]:
    """Return the called functions, including C functions."""
    called: list[str] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            called.append(f"python {frame.f_code.co_name}")
        elif event == "c_call":
            called.append(f"c {argument.__name__}")

    verifier.verify(body, headers)  # one-time work is done
    sys.setprofile(note)
    try:
        verifier.verify(body, headers)
    finally:
        sys.setprofile(None)
    return called


@pytest.mark.parametrize("size", [200, 2_048, 200_000])
def test_verifying_takes_one_hmac_and_few_calls_whatever_the_size(secret: str, now: int, size: int) -> None:
    body = b'{"id":"evt-1","type":"booking.created","data":"'.ljust(size - 2, b"x") + b'"}'
    headers = {"Svc-Signature": sign(body, secret, timestamp=now), "Svc-Event-Id": "evt-1"}
    headers |= {"Svc-Event-Type": "booking.created", "Svc-Delivery-Id": "attempt-1"}
    called = calls_of(Verifier(secret, clock=lambda: now), body, headers)
    assert called.count("c hexdigest") == 1, called
    assert sum(name.startswith("python") for name in called) <= CALLS_MAX, called


def test_each_secret_costs_one_hmac_whichever_fits(secret: str, now: int) -> None:
    """The old secret takes as long as the new one: the time does not reveal which is in use."""
    body, other = b'{"id":"evt-1","type":"booking.created"}', generate_secret()
    headers = {"Svc-Signature": sign(body, secret, timestamp=now)}
    for secrets in ([secret, other], [other, secret]):
        assert calls_of(Verifier(secrets, clock=lambda: now), body, headers).count("c hexdigest") == 2
