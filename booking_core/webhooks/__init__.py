"""Webhooks: where events are sent, the log of what was sent, and the queue that the worker empties.

Three parts: `endpoints` and `deliveries` are what a client of the API does, `sending` is the worker's side of the
database. The HTTP request itself is made elsewhere.
"""

from booking_core.webhooks.deliveries import find as find_deliveries
from booking_core.webhooks.deliveries import get as get_delivery
from booking_core.webhooks.deliveries import recover, retry, send_test
from booking_core.webhooks.endpoints import change, check, create, delete, find_all, get, rotate_secret
from booking_core.webhooks.rules import SECRET_PURPOSE, is_port_allowed, longest_wait
from booking_core.webhooks.sending import (
    Attempted,
    Claimed,
    claim,
    lease_s,
    next_due_at,
    purge,
    purge_endpoints,
    reclaim_lost,
    record,
)

__all__ = [
    "SECRET_PURPOSE",
    "Attempted",
    "Claimed",
    "change",
    "check",
    "claim",
    "create",
    "delete",
    "find_all",
    "find_deliveries",
    "get",
    "get_delivery",
    "is_port_allowed",
    "lease_s",
    "longest_wait",
    "next_due_at",
    "purge",
    "purge_endpoints",
    "reclaim_lost",
    "record",
    "recover",
    "retry",
    "rotate_secret",
    "send_test",
]
