"""A store of seen events in Redis or Valkey, shared by all processes of a receiver.

verifier = Verifier.from_env(seen=RedisSeenStore(redis.Redis.from_url(url)))
"""

from __future__ import annotations

import os
from typing import Any

from webhook_verify.errors import EventInProgress

_HANDLED = b"handled"
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class RedisSeenStore:
    """A store that tells events that are being handled from events that were handled.

    A claim lasts `lease` seconds; `complete` makes it last as long as the verifier's `seen_ttl`. If a process is killed
    during a handler, its claim ends with the lease, and the next attempt is handled.

    Args:
        client: A client of the package `redis`, with or without `decode_responses`.
        prefix: The beginning of each key.
        lease: In seconds, longer than any handler takes. A handler that takes longer may run twice.
    """

    def __init__(self, client: Any, *, prefix: str = "webhook:", lease: float = 300.0) -> None:
        if not lease > 0:
            raise ValueError("lease must be more than 0 seconds")
        self._client = client
        self._prefix = prefix
        self._lease_ms = int(lease * 1000)
        self._claims: dict[str, str] = {}

    def claim(self, event_id: str, ttl: float) -> bool:
        """Claim an event. Return False when it was handled before.

        Raises:
            EventInProgress: Another delivery of the event is being handled.
        """
        claim = os.urandom(16).hex()
        if self._client.set(self._prefix + event_id, claim, nx=True, px=self._lease_ms):
            self._claims[event_id] = claim
            return True
        value = self._client.get(self._prefix + event_id)
        if value in (_HANDLED, _HANDLED.decode()):
            return False
        raise EventInProgress(event_id)

    def complete(self, event_id: str, ttl: float) -> None:
        """Remember for `ttl` seconds that the event was handled."""
        self._claims.pop(event_id, None)
        self._client.set(self._prefix + event_id, _HANDLED, px=int(ttl * 1000))

    def release(self, event_id: str) -> None:
        """Release an event after its handler failed, unless the lease has ended and another process has claimed it."""
        claim = self._claims.pop(event_id, None)
        if claim is not None:
            self._client.eval(_RELEASE, 1, self._prefix + event_id, claim)
