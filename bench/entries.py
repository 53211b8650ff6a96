"""Every entry of the bench, in the order of the report."""

from bench import (
    creates,
    curves,
    delivering,
    embedded,
    feed,
    idle,
    listing,
    overload,
    reads,
    rush,
    setup,
    starts,
    verifying,
)
from bench.kinds import Entry

ENTRIES: tuple[Entry, ...] = (
    *reads.ENTRIES,
    *creates.ENTRIES,
    *embedded.ENTRIES,
    *delivering.ENTRIES,
    *rush.ENTRIES,
    *feed.ENTRIES,
    *idle.ENTRIES,
    *verifying.ENTRIES,
    *listing.ENTRIES,
    *starts.ENTRIES,
    *setup.ENTRIES,
    *curves.ENTRIES,
    *overload.ENTRIES,
)
