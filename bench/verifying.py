"""Verification of the signature of a 2 KB body, in this process: the receiver's package and bare HMAC."""

import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from timeit import timeit

from bench.kinds import Contender, Cost
from bench.stage import Stage

BODY_BYTES = 2048
CALLS = 400
LOOPS = 5


def build(stage: Stage, stack: ExitStack) -> Sequence[Contender]:
    """Return the sides. Each verifies a delivery in its format, with the same body and secrets of the same length."""
    verifiers = {"webhook_verify": _ours(), "bare HMAC": _bare()}
    return [Contender(name, lambda verify=verify: _per_call_us(verify)) for name, verify in verifiers.items()]  # type: ignore[misc]


def _per_call_us(call: Callable[[], object]) -> float:
    """Return the best of several loops: an interruption of a loop is not a cost of the call."""
    return min(timeit(call, number=CALLS) for _ in range(LOOPS)) / CALLS * 1e6


def _body() -> bytes:
    """Return an event in the service's format: compact, with its id and type first."""
    head, end = b'{"id":"evt","type":"booking.created","data":{"object":{"note":"', b'"}}}'
    return head.ljust(BODY_BYTES - len(end), b"x") + end


def _bare() -> Callable[[], object]:
    key, text = secrets.token_bytes(32), b"%d.%b" % (time.time(), _body())
    expected = hmac.digest(key, text, "sha256")
    return lambda: hmac.compare_digest(hmac.digest(key, text, "sha256"), expected)


def _ours() -> Callable[[], object]:
    from webhook_verify import Verifier, generate_secret, sign

    body, secret = _body(), generate_secret()
    headers = {"Svc-Signature": sign(body, secret, timestamp=int(time.time())), "Svc-Event-Id": "evt"}
    headers |= {"Svc-Event-Type": "booking.created", "Svc-Delivery-Id": "attempt"}
    verifier = Verifier(secret, tolerance=86_400)
    return lambda: verifier.verify(body, headers)


ENTRIES = (
    Cost("verify", "webhook_verify, 2 KB, one delivery", "hmac.digest and compare_digest", "µs", 1.5, build, times=3),
)
