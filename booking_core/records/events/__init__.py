"""Events of an organization: published in the transaction of their cause, and read as a feed while they are kept."""

from booking_core.records.events.feed import FeedPage, check_named, find, get, split_types
from booking_core.records.events.publish import (
    NewEvent,
    Sequences,
    advance,
    append,
    lock_sequences,
    publish,
    sequences_query,
    try_lock_sequences,
    updated,
)
from booking_core.records.events.store import organizations_before, purge
