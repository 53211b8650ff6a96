"""Verification of the signature of a 2 KB body, in this process: the receiver's package, bare HMAC and other
packages."""

import base64
import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from timeit import timeit

from bench.kinds import Contender, Cost
from bench.stage import Stage

BODY_BYTES = 2048
CALLS = 2_000
QUICK_CALLS = 500
LOOPS = 5


def build(stage: Stage, stack: ExitStack) -> Sequence[Contender]:
    """Return the sides. Each verifies a delivery in its format, with the same body and secrets of the same length."""
    calls = QUICK_CALLS if stage.quick else CALLS
    verifiers = {
        "webhook_verify": _ours(),
        "bare HMAC": _bare(),
        "standardwebhooks": _standard(),
    }
    return [Contender(name, lambda verify=verify: _per_call_us(verify, calls)) for name, verify in verifiers.items()]  # type: ignore[misc]


def _per_call_us(call: Callable[[], object], calls: int) -> float:
    """Return the best of several loops: an interruption of a loop is not a cost of the call."""
    return min(timeit(call, number=calls // LOOPS) for _ in range(LOOPS)) / (calls // LOOPS) * 1e6


def _body() -> bytes:
    """Return an event in the service's format: compact, with its id and type first."""
    head, end = b'{"id":"evt","type":"booking.created","data":{"object":{"note":"', b'"}}}'
    return head.ljust(BODY_BYTES - len(end), b"x") + end


def _now() -> int:
    """Return the second of signing: the other packages read the clock, and none is older than their tolerance."""
    return int(time.time())


def _bare() -> Callable[[], object]:
    key, text = secrets.token_bytes(32), b"%d.%b" % (_now(), _body())
    expected = hmac.digest(key, text, "sha256")
    return lambda: hmac.compare_digest(hmac.digest(key, text, "sha256"), expected)


def _ours() -> Callable[[], object]:
    from webhook_verify import Verifier, generate_secret, sign

    body, secret = _body(), generate_secret()
    headers = {"Svc-Signature": sign(body, secret, timestamp=_now()), "Svc-Event-Id": "evt"}
    headers |= {"Svc-Event-Type": "booking.created", "Svc-Delivery-Id": "attempt"}
    verifier = Verifier(secret, tolerance=86_400)
    return lambda: verifier.verify(body, headers)


def _standard() -> Callable[[], object]:
    """Return the call of a package of the Standard Webhooks. It also parses the JSON, which cannot be avoided."""
    import standardwebhooks

    body = _body().decode()
    verifier = standardwebhooks.Webhook(f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}")
    # Their tolerance is fixed at five minutes: each loop has a new signature, made outside of the measurement.
    headers: dict[str, str] = {}

    def verify() -> object:
        if not headers or _now() - int(headers["webhook-timestamp"]) > 200:
            at = datetime.now(UTC)
            headers.update({"webhook-id": "msg", "webhook-timestamp": str(int(at.timestamp()))})
            headers["webhook-signature"] = verifier.sign("msg", at, body)
        return verifier.verify(body, headers)

    return verify


ENTRIES = (
    Cost("verify", "webhook_verify, 2 KB, one delivery", "hmac.digest and compare_digest", "µs", 1.5, build, times=3),
)
