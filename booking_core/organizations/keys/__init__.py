"""API keys: authentication, scopes, and the lifecycle of a key."""

from booking_core.organizations.keys.expiring import EXPIRING, warn_expiring
from booking_core.organizations.keys.service import (
    create,
    expire,
    find,
    get,
    identify,
    identify_many,
    present,
    revoke,
    rotate,
    status,
    touch,
)

__all__ = [
    "EXPIRING",
    "create",
    "expire",
    "find",
    "get",
    "identify",
    "identify_many",
    "present",
    "revoke",
    "rotate",
    "status",
    "touch",
    "warn_expiring",
]
