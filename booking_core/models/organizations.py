"""The organization a key belongs to, and the key itself (`GET /api/v1/me`)."""

from pydantic import AwareDatetime

from booking_core.models.base import Id, Open, Resource
from booking_core.models.scopes import Scope, ScopeName


class Organization(Resource):
    """An operator of bookable experiences."""

    id: Id
    slug: str
    name: str
    timezone: str
    """IANA name; every timestamp carries the offset of this zone."""
    default_currency: str
    """ISO 4217 code."""


class ApiKey(Resource):
    """A key without its secret, which is never returned."""

    id: Id
    name: str
    prefix: str
    """The first 12 characters of the key."""
    scopes: list[Open[Scope, ScopeName]]
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = None
    """Null: never expires."""
    last_used_at: AwareDatetime | None = None
    """To the minute; null: not used yet."""

    def has(self, scope: Scope | str) -> bool:
        """Return True if the key has the scope."""
        return scope in self.scopes


class Me(Resource):
    """The API key of the request and its organization."""

    organization: Organization
    key: ApiKey
