"""The context of a request: the installation, the organization with its settings, and the API key with its scopes."""

from dataclasses import dataclass

from booking_core.base.clock import HOUR, Zone, zone
from booking_core.base.errors import InsufficientScope
from booking_core.base.tokens import SecretKeys
from booking_core.models.scopes import Scope


@dataclass(frozen=True, slots=True)
class Installation:
    """The settings and keys that all requests of an installation share."""

    secret_keys: SecretKeys
    public_url: str = "http://127.0.0.1:8000"
    pending_minutes: int = 30
    cell: str = ""
    """The name of the cell, which new keys and links carry; empty: the first one."""


@dataclass(frozen=True, slots=True)
class Organization:
    """An organization's row, with its settings (the names of `booking orgs set`)."""

    id: str
    slug: str
    name: str
    timezone: str
    default_currency: str
    api_app: bool
    plan_api: bool
    add_ons_app: bool
    hours_before_booking_closes: int
    pending_minutes: int | None
    refund_full_until_hours: int
    refund_late_percent: int
    notify_staff: bool
    staff_email: str | None
    on_site_fee_percent: float
    cancel_under_minimum: bool
    created_at: int
    updated_at: int
    language: str | None = None
    """The language of guests who gave none (BCP 47)."""
    logo_url: str | None = None
    brand_color: str | None = None
    website: str | None = None
    contact_email: str | None = None
    contact_phone: str | None = None
    reply_to_email: str | None = None
    guest_cancel_until_hours: int | None = 0
    """The hours before the start until which guests cancel a booking on their page; None: never."""
    guest_move_until_hours: int | None = None
    """The same for moving it."""
    availability_events: bool = False
    """Write `departure.updated` also while no endpoint subscribes to it."""
    clock_offset: int | None = None
    """The lead of a sandbox's clock over the real clock, in microseconds; None: the organization is live."""

    @property
    def zone(self) -> Zone:
        return zone(self.timezone)

    @property
    def is_sandbox(self) -> bool:
        """Return True for a sandbox, which never mails or charges for real."""
        return self.clock_offset is not None

    def instant(self, now: int) -> int:
        """Return the instant by the organization's own clock when the real one shows `now`."""
        return now + (self.clock_offset or 0)

    def refunds_in_full_until(self, starts_at: int) -> int:
        """Return the instant until which a cancellation is refunded in full (decision B12)."""
        return starts_at - self.refund_full_until_hours * HOUR

    def guest_cancels_until(self, starts_at: int) -> int | None:
        """Return the instant before which guests cancel a booking of that start on their page; None: they never do."""
        return _before(starts_at, self.guest_cancel_until_hours)

    def guest_moves_until(self, starts_at: int) -> int | None:
        """Return the instant before which guests move a booking of that start on their page; None: they never do."""
        return _before(starts_at, self.guest_move_until_hours)


def _before(starts_at: int, hours: int | None) -> int | None:
    return None if hours is None else max(0, starts_at - hours * HOUR)


@dataclass(frozen=True, slots=True)
class CallerKey:
    """A key's row, without its hash."""

    id: str
    organization_id: str
    name: str
    prefix: str
    scopes: frozenset[str]
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    last_used_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """An organization and the time of the action (the database's clock): for staff, the storefront, a guest with a
    link, or the worker. Its permissions are checked before."""

    installation: Installation
    organization: Organization
    at: int

    @property
    def secret_keys(self) -> SecretKeys:
        return self.installation.secret_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller(Actor):
    """An authenticated request of the API: the actor and its key."""

    key: CallerKey

    def has(self, scope: Scope) -> bool:
        return scope in self.key.scopes

    def require(self, scope: Scope) -> None:
        """Refuses a key that lacks the scope."""
        if scope not in self.key.scopes:
            raise InsufficientScope(scope)
