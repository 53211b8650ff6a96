"""Authentication of API keys and their rate limit: all keys that wait are looked up with one statement."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from booking_core.base import tokens
from booking_core.base.clock import HOUR, MINUTE
from booking_core.base.context import Caller, Installation
from booking_core.base.errors import (
    ApiKeyInvalid,
    ApiKeyMissing,
    AppNotEnabled,
    BookingError,
    PlanUpgradeRequired,
    RateLimited,
    Unavailable,
)
from booking_core.base.repeated_log import RepeatedLog
from booking_core.base.settings import RateLimit
from booking_core.db.engine import Database, Tx
from booking_core.organizations import keys
from booking_server.execution.executor import fill_open
from booking_server.execution.rate_limit import (
    ANONYMOUS,
    LOOK_UPS,
    LOOK_UPS_OF_WRONG_KEY,
    LOOK_UPS_RESERVED,
    Ask,
    Limiter,
    MemoryLimiter,
    Reading,
)

log = logging.getLogger("booking.key_usage")

FLUSH_S = 15.0
"""The interval between two writes of the uses of keys, and so the most that a killed process loses."""
_SCHEME = b"bearer"
_KEYS_MAX = 20_000
_NO_ADDRESS = "unknown"
_HOST_BITS = 64

# Requests ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Credentials:
    """The key of a request as it was sent, and the address that sent it."""

    headers: InitVar[Iterable[tuple[bytes, bytes]]]
    address: str
    key: str | BookingError = field(init=False)
    """The key of the Authorization header, or the refusal of a request without one."""
    reading: Reading | None = None
    """The state of the rate limit, for the headers of the answer; set by the authenticator."""

    def __post_init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.key = bearer_token(headers)

    def bucket(self, kind: str = "address") -> str:
        """Return the name of the bucket of clients without a valid key at the address.

        Args:
            kind: requests with another kind have a separate bucket.
        """
        return f"{kind}:{network_of(self.address)}"


def bearer_token(headers: Iterable[tuple[bytes, bytes]]) -> str | BookingError:
    """Return the key of the Authorization header, or the refusal of headers without one: there is none, there are two,
    or it holds a character that no key holds."""
    fields = [value for name, value in headers if name == b"authorization"]
    if len(fields) > 1:
        return ApiKeyInvalid()
    scheme, _, token = fields[0].strip().partition(b" ") if fields else (b"", b"", b"")
    token = token.strip()
    if scheme.lower() != _SCHEME or not token:
        return ApiKeyMissing()
    return str(token, "ascii") if token.isascii() else ApiKeyInvalid()


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def unmapped(text: str) -> str:
    """Return an IPv4-mapped IPv6 address as the IPv4 address that it is, and any other text unchanged."""
    return str(_parsed(text) or text) if text.lower().startswith("::ffff:") else text


@lru_cache(maxsize=4096)
def network_of(text: str) -> str:
    """Return the network that counts as one client (decision K5): an IPv4 address, or the /64 of an IPv6 address.

    A provider gives each customer at least a /64, which has 2^64 addresses. All texts that are not addresses, which a
    proxy may pass on, count as one client.
    """
    address = _parsed(text)
    if address is None:
        return _NO_ADDRESS
    if isinstance(address, IPv4Address):
        return str(address)
    return f"{IPv6Address(int(address) >> _HOST_BITS << _HOST_BITS)}/{_HOST_BITS}"


# Callers -------------------------------------------------------------------------------------------------------------


class KnownKeys:
    """The latest API keys that were valid when this process last looked, as numbers that do not show them.

    The database decides for each request whether its key is valid. This only decides whether a look-up is worth a
    statement, and selects the request's queue.
    """

    def __init__(self, size: int = _KEYS_MAX) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._organizations: dict[int, str] = {}
        """The organization of each key."""

    def __contains__(self, key: str) -> bool:
        return hash(key) in self._organizations

    def organization_of(self, key: str) -> str | None:
        """Return the organization that the key belonged to, or None for a key that is not known."""
        return self._organizations.get(hash(key))

    def note(self, key: str, organization_id: str | None) -> None:
        """Remember the organization of a valid key, and forget a key that is not valid, which has none."""
        number = hash(key)
        if organization_id is None:
            self._organizations.pop(number, None)
        elif number not in self._organizations:
            with self._lock:
                if len(self._organizations) >= self._size:
                    self._organizations = dict(list(self._organizations.items())[self._size // 2 :])
                self._organizations[number] = organization_id


class Authenticator:
    """Finds the caller of an API key, counts the request, and checks the organization's access to the API.

    The order follows decision R1: key, rate limit, access. A request without a valid key counts against its address
    (decision K5); an address above its limit costs no statement.
    """

    def __init__(
        self,
        installation: Installation,
        limiter: Limiter,
        key_usage: "KeyUsage",
        rate_limit: RateLimit | None,
    ) -> None:
        self._installation = installation
        self.limiter = limiter
        self._key_usage = key_usage
        self._rate_limit = rate_limit
        self.known_keys = KnownKeys()
        self.look_ups = MemoryLimiter()
        """Counts look-ups of keys from addresses over their limit, and of wrong keys, in this process alone."""

    def authenticate(self, tx: Tx, requests: Sequence[Credentials]) -> list[Caller | Exception]:
        """Return the caller of each request, or its refusal, by at most one statement."""
        refusals: list[Caller | BookingError | None] = [self._refusal(credentials) for credentials in requests]
        callers: list[Caller | BookingError] = fill_open(
            refusals, lambda places: self._identify(tx, [str(requests[place].key) for place in places])
        )
        self._count(requests, callers)
        return [self._admit(credentials, caller) for credentials, caller in zip(requests, callers, strict=True)]

    def known_organization(self, credentials: Credentials) -> str | None:
        """Return the organization of a key that was valid when it was last looked up, or None for any other key."""
        return self.known_keys.organization_of(credentials.key) if isinstance(credentials.key, str) else None

    def count_address(self, credentials: Credentials, kind: str = "address") -> None:
        """Count a request without a valid key against its address.

        Args:
            kind: as `Credentials.bucket`.

        Raises:
            RateLimited: the address exceeds its limit.
        """
        if self._rate_limit is None:
            return
        (credentials.reading,) = self.limiter.take_many([(credentials.bucket(kind), ANONYMOUS)])
        if credentials.reading.retry_after_s:
            raise RateLimited(credentials.reading.retry_after_s)

    def _refusal(self, credentials: Credentials) -> BookingError | None:
        """Return the reason why a key is not looked up, or None."""
        key = credentials.key
        if isinstance(key, BookingError):
            return key
        if self._rate_limit is None or key in self.known_keys:
            return None
        reading = self.limiter.peek(credentials.bucket(), ANONYMOUS)
        if not reading.retry_after_s or self._may_look_up(key, credentials.bucket()):
            return None
        credentials.reading = reading
        return reading.refusal()

    def _identify(self, tx: Tx, texts: Sequence[str]) -> list[Caller | BookingError]:
        """Return the caller of each key, or its refusal, and remember which keys are valid."""
        callers = keys.identify_many(tx, texts, self._installation)
        for text, caller in zip(texts, callers, strict=True):
            if isinstance(caller, Caller):
                self.known_keys.note(text, caller.organization.id)
            else:
                self.known_keys.note(text, None)
                self.look_ups.take(_bucket_of(text), LOOK_UPS_OF_WRONG_KEY)
        return callers

    def _count(self, requests: Sequence[Credentials], callers: Sequence[Caller | BookingError]) -> None:
        """Count all requests of a batch at once, except those that their address was refused for."""
        if self._rate_limit is None:
            return
        asks: dict[int, Ask] = {}
        for place, caller in enumerate(callers):
            if isinstance(caller, Caller):
                asks[place] = f"key:{caller.key.id}", self._rate_limit
            elif not isinstance(caller, RateLimited):
                asks[place] = requests[place].bucket(), ANONYMOUS
        for place, reading in zip(asks, self.limiter.take_many(list(asks.values())), strict=True):
            requests[place].reading = reading

    def _admit(self, credentials: Credentials, caller: Caller | BookingError) -> Caller | Exception:
        """Return the caller, or the first of its refusals, in the order of decision R1."""
        reading = credentials.reading
        if reading and reading.retry_after_s:
            return reading.refusal()
        if isinstance(caller, Caller):
            self._key_usage.note(caller)
            if not caller.organization.api_app:
                return AppNotEnabled()
            if not caller.organization.plan_api:
                return PlanUpgradeRequired()
        return caller

    def _may_look_up(self, key: str, name: str) -> bool:
        """Return whether a key from an address over its limit is looked up all the same: strangers at the same address
        must not shut a valid key out.

        Args:
            name: of the bucket of the address.
        """
        if not tokens.is_api_key(key) or self.look_ups.peek(_bucket_of(key), LOOK_UPS_OF_WRONG_KEY).retry_after_s:
            return False
        if not tokens.has_checksum(key) and self.look_ups.peek(name, LOOK_UPS).remaining <= LOOK_UPS_RESERVED:
            return False
        return not self.look_ups.take(name, LOOK_UPS).retry_after_s


def _bucket_of(key: str) -> str:
    """Return the name of the bucket of a key, which does not show it."""
    return f"key:{hash(key)}"


# The last use of each key --------------------------------------------------------------------------------------------


class KeyUsage:
    """The uses of keys that this process has seen and not yet written to the database.

    They are exact to the minute, and cost no write for each request (decision K4).
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._failures = RepeatedLog(log)
        self._lock = threading.Lock()
        self._unwritten: dict[tuple[str, str], int] = {}
        """The minute of the last use, by organization and key."""

    def note(self, caller: Caller) -> None:
        """Remember that the key is used now, unless the database already has a use in this minute."""
        minute = caller.at - caller.at % MINUTE
        last = caller.key.last_used_at or 0
        # A last use more than an hour ahead was written by a clock that has been set back since.
        if not minute <= last <= minute + HOUR:
            with self._lock:
                self._unwritten[caller.organization.id, caller.key.id] = minute

    def flush(self) -> None:
        """Write the remembered uses to the database; keep them when that fails.

        Raises:
            Unavailable: the database is unavailable or too busy.
        """
        with self._lock:
            uses, self._unwritten = self._unwritten, {}
        if not uses:
            return
        try:
            self._database.write(lambda tx: keys.touch(tx, [(*key, at) for key, at in sorted(uses.items())]))
        except BaseException:
            with self._lock:
                self._unwritten = uses | self._unwritten  # a use that was noted meanwhile is newer
            raise

    @contextlib.asynccontextmanager
    async def flushing(self, every_s: float = FLUSH_S) -> AsyncIterator[None]:
        """Flush at an interval while the body runs, and once more at its end."""
        task = asyncio.create_task(self._flush_forever(every_s))
        try:
            yield
        finally:
            task.cancel()
            await self._try_flush()

    async def _flush_forever(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            await self._try_flush()

    async def _try_flush(self) -> None:
        try:
            await asyncio.to_thread(self.flush)
        except Exception as error:  # noqa: BLE001 - the time of a use is worth no outage, and is tried again
            if isinstance(error, Unavailable) and error.fault:
                return  # the database logs such a fault itself, once for all callers
            text = f"the last uses of keys could not be written and are kept: {error}"
            self._failures.note(logging.WARNING, type(error).__name__, text)
