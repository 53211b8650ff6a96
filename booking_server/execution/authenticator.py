"""Authentication of API keys and their rate limit: all keys that wait are looked up with one statement."""

import asyncio
import time
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from booking_core.base import tokens
from booking_core.base.context import Caller, Installation
from booking_core.base.errors import (
    ApiKeyInvalid,
    ApiKeyMissing,
    AppNotEnabled,
    BookingError,
    PlanUpgradeRequired,
    RateLimited,
)
from booking_core.base.settings import RateLimit
from booking_core.db.engine import Tx
from booking_core.organizations import keys
from booking_server.execution.clients import SeenKeys
from booking_server.execution.key_usage import KeyUsage
from booking_server.execution.rate_limit import (
    ANONYMOUS,
    LOOK_UPS,
    LOOK_UPS_RESERVED,
    Limiter,
    MemoryLimiter,
    Reading,
    anonymous_bucket,
)
from booking_server.execution.shared_look_ups import SharedLookUps

T = TypeVar("T")

_SCHEME = b"bearer"


@dataclass(slots=True)
class Credentials:
    """The key of a request as it was sent, and the address that sent it."""

    headers: Iterable[tuple[bytes, bytes]]
    address: str
    reading: Reading | None = None
    """The state of the rate limit that goes on the answer; set by the authenticator."""
    counted: str | None = None
    """The bucket of the reading, where the request was counted before its key was looked up."""
    arrived_s: float = field(default_factory=time.monotonic)
    """Monotonic seconds at which the request had arrived."""
    _key: str | None = None

    def key(self) -> str:
        """Return the key of the Authorization header, which is parsed once.

        Raises:
            ApiKeyMissing, ApiKeyInvalid: as `bearer_token`.
        """
        if self._key is None:
            self._key = bearer_token(self.headers)
        return self._key


class Authenticator:
    """Finds the caller behind an API key, counts the request, and checks the organization's access to the API.

    The order is that of decision R1: key, rate limit, access. A request without a valid key counts against its address
    (decision K5); an address that is over its limit costs no statement.
    """

    def __init__(
        self,
        installation: Installation,
        limiter: Limiter,
        key_usage: KeyUsage,
        rate_limit: RateLimit | None,
    ) -> None:
        self._installation = installation
        self.limiter = limiter
        self._key_usage = key_usage
        self._rate_limit = rate_limit
        self.seen_keys = SeenKeys()
        self._shared = SharedLookUps()
        self.look_ups = MemoryLimiter()
        """Counts look-ups of keys from addresses over their limit, in this process alone."""

    def authenticate(self, tx: Tx, requests: Sequence[Credentials]) -> list[Caller | Exception]:
        """Return the caller of each request, or its refusal."""
        found = self._look_up(tx, requests)
        self._count(requests, found)
        return [self._admit(credentials, caller) for credentials, caller in zip(requests, found, strict=True)]

    def known_organization(self, credentials: Credentials) -> str | None:
        """Return the organization of a key that was valid when it was last looked up; none for any other key."""
        try:
            return self.seen_keys.organization_of(credentials.key())
        except BookingError:
            return None

    def count_ahead(self, credentials: Credentials) -> "asyncio.Future[Reading] | None":
        """Count a request on the event loop, before or while its key is looked up, and return the coming reading.

        Only where the store is asked over a socket, and for a key that was valid when it was last looked up: any other
        request is counted after its look-up, or refused for its address before. A key that turns out to be invalid
        has no use for the token.
        """
        return self.take_ahead(credentials) if self.mark_counted(credentials) else None

    def mark_counted(self, credentials: Credentials) -> bool:
        """Let `take_ahead` count a request, and not its look-up; return False where the look-up counts it."""
        if self._rate_limit is None or not self.limiter.is_remote:
            return False
        try:
            key_id = self.seen_keys.id_of(credentials.key())
        except BookingError:
            return False
        if key_id is not None:
            credentials.counted = _key_bucket(key_id)
        return key_id is not None

    def take_ahead(self, credentials: Credentials) -> "asyncio.Future[Reading]":
        """Count a request that is marked, and return the coming reading."""
        assert credentials.counted is not None
        assert self._rate_limit is not None
        return self.limiter.take_ahead((credentials.counted, self._rate_limit))

    def count_address(self, credentials: Credentials, kind: str = "address") -> None:
        """Count a request without a valid key against its address.

        Args:
            kind: as `anonymous_bucket`.

        Raises:
            RateLimited: the address is over its limit.
        """
        self._take(credentials, anonymous_bucket(credentials.address, kind), ANONYMOUS if self._rate_limit else None)

    def _token(self, credentials: Credentials) -> str | BookingError:
        """Return the key that is to be looked up, or the reason why it is not."""
        try:
            token = credentials.key()
            if token not in self.seen_keys:
                self._refuse_address_over_limit(credentials)
            return token
        except BookingError as error:
            return error

    def _look_up(self, tx: Tx, requests: Sequence[Credentials]) -> list[Caller | BookingError]:
        """Return the caller of each request, or the refusal of its key, by at most one statement."""
        begun_s = time.monotonic()
        found: list[Caller | BookingError | None] = []
        unknown: list[str] = []
        for credentials in requests:
            key = self._token(credentials)
            if isinstance(key, BookingError):
                found.append(key)
                continue
            shared = self._shared.find(key, credentials.arrived_s, begun_s)
            found.append(shared)
            if shared is None:
                unknown.append(key)
        callers = iter(self._identify(tx, unknown, begun_s) if unknown else ())
        return [next(callers) if each is None else each for each in found]

    def _identify(self, tx: Tx, texts: Sequence[str], begun_s: float) -> list[Caller | BookingError]:
        """Look up keys with one statement, and remember which of them are valid."""
        callers = keys.identify_many(tx, texts, self._installation)
        for text, caller in zip(texts, callers, strict=True):
            self._remember(text, caller, begun_s)
        return callers

    def _remember(self, text: str, caller: Caller | BookingError, begun_s: float) -> None:
        if isinstance(caller, Caller):
            self.seen_keys.note(text, caller.organization.id, caller.key.id)
            self._shared.note(text, caller, begun_s)
        else:
            self.seen_keys.note(text, None)

    def _count(self, requests: Sequence[Credentials], found: Sequence[Caller | BookingError]) -> None:
        """Count all requests of a batch at once, except those that their address was refused for, and those that were
        counted ahead."""
        buckets = [self._bucket(credentials, caller) for credentials, caller in zip(requests, found, strict=True)]
        readings = iter(self.limiter.take_many([bucket for bucket in buckets if bucket]))
        for credentials, bucket in zip(requests, buckets, strict=True):
            if bucket:
                credentials.reading = next(readings)

    def _bucket(self, credentials: Credentials, caller: Caller | BookingError) -> tuple[str, RateLimit] | None:
        if self._rate_limit is None or isinstance(caller, RateLimited):
            return None
        if isinstance(caller, BookingError):
            return anonymous_bucket(credentials.address), ANONYMOUS
        bucket = _key_bucket(caller.key.id)
        return None if credentials.counted == bucket else (bucket, self._rate_limit)

    def _admit(self, credentials: Credentials, caller: Caller | BookingError) -> Caller | Exception:
        try:
            reading = credentials.reading
            if reading and reading.retry_after_s:
                raise reading.refusal()
            if isinstance(caller, Caller):
                self._key_usage.note(caller)
                check_access(caller)
        except Exception as error:  # noqa: BLE001 - the error belongs to this one request
            return error
        return caller

    def _refuse_address_over_limit(self, credentials: Credentials) -> None:
        if self._rate_limit is None:
            return
        reading = self.limiter.peek(anonymous_bucket(credentials.address), ANONYMOUS)
        if reading.retry_after_s and not self._may_look_up(credentials):
            credentials.reading = reading
            raise reading.refusal()

    def _may_look_up(self, credentials: Credentials) -> bool:
        """Return whether a key from an address over its limit is looked up all the same: strangers behind the same
        address must not shut a valid key out."""
        key, name = credentials.key(), anonymous_bucket(credentials.address)
        if not tokens.is_api_key(key):
            return False
        if not tokens.has_checksum(key) and self.look_ups.peek(name, LOOK_UPS).remaining <= LOOK_UPS_RESERVED:
            return False
        return not self.look_ups.take(name, LOOK_UPS).retry_after_s

    def _take(self, credentials: Credentials, bucket: str, limit: RateLimit | None) -> None:
        if limit is None:
            return
        credentials.reading = self.limiter.take(bucket, limit)
        if credentials.reading.retry_after_s:
            raise RateLimited(credentials.reading.retry_after_s)


async def counted(credentials: Credentials, coming: "asyncio.Future[Reading]") -> None:
    """Wait for the reading of a request.

    Raises:
        RateLimited: it is one too many.
    """
    credentials.reading = await coming
    if credentials.reading.retry_after_s:
        raise credentials.reading.refusal()


async def joined(credentials: Credentials, coming: "asyncio.Future[Reading]", result: Awaitable[T]) -> T:
    """Return the result of a request that was counted meanwhile.

    Raises:
        RateLimited: it is one too many, and its key is valid: this comes before any other refusal.
    """
    reading = await coming
    try:
        found = await result
    except Exception:
        if credentials.reading is None:  # else its key is invalid, and it was counted against its address
            credentials.reading = reading
            if reading.retry_after_s:
                raise reading.refusal() from None
        raise
    credentials.reading = reading
    if reading.retry_after_s:
        raise reading.refusal()
    return found


def _key_bucket(key_id: str) -> str:
    return f"key:{key_id}"


def bearer_token(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the key of the Authorization header.

    Raises:
        ApiKeyMissing: there is no bearer header, or it is empty.
        ApiKeyInvalid: there are two, or the key holds a character that no key holds.
    """
    found = [value for name, value in headers if name == b"authorization"]
    if len(found) > 1:
        raise ApiKeyInvalid
    scheme, _, token = found[0].strip().partition(b" ") if found else (b"", b"", b"")
    token = token.strip()
    if scheme.lower() != _SCHEME or not token:
        raise ApiKeyMissing
    try:
        return str(token, "ascii")
    except UnicodeDecodeError:
        raise ApiKeyInvalid from None


def check_access(caller: Caller) -> None:
    """Refuse an organization whose API app is off, or whose plan has no API."""
    if not caller.organization.api_app:
        raise AppNotEnabled
    if not caller.organization.plan_api:
        raise PlanUpgradeRequired
