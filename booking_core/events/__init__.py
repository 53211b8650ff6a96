"""The event feed: what happened in an organization, in the order it happened, for as long as events are kept."""

from booking_core.events.service import FeedPage, find, get, organizations_before, purge

__all__ = ["FeedPage", "find", "get", "organizations_before", "purge"]
