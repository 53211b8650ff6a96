"""Every entry of the bench, in the order of the report."""

from bench import creates, delivering, embedded, feed, idle, overload, reads, rush, starts
from bench.measure import Entry

MODULES = (reads, creates, embedded, delivering, rush, feed, overload, idle, starts)

ENTRIES: tuple[Entry, ...] = tuple(entry for module in MODULES for entry in module.ENTRIES)
