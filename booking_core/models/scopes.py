"""The scopes of an API key (API v1 section 5)."""

from enum import StrEnum
from typing import Literal


class Scope(StrEnum):
    """The permissions of a key. A new key has every `:read` scope; the others are opt-in."""

    EXPERIENCES_READ = "experiences:read"
    AVAILABILITY_READ = "availability:read"
    BOOKINGS_READ = "bookings:read"
    BOOKINGS_WRITE = "bookings:write"
    CUSTOMERS_READ = "customers:read"
    CUSTOMERS_WRITE = "customers:write"
    GIFT_CARDS_READ = "gift_cards:read"
    CHECKOUTS_WRITE = "checkouts:write"
    WEBHOOKS_MANAGE = "webhooks:manage"


ScopeName = Literal[
    "experiences:read",
    "availability:read",
    "bookings:read",
    "bookings:write",
    "customers:read",
    "customers:write",
    "gift_cards:read",
    "checkouts:write",
    "webhooks:manage",
]


READ_SCOPES = frozenset(scope for scope in Scope if scope.endswith(":read"))
