"""Split a plan into batches that are small enough to be written while bookings go on."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from booking_core.catalogue.transfer.rules import Entry, Plan

BATCH_ENTRIES = 500
"""Entries of one transaction. SQLite writes them in a few hundredths of a second."""

KINDS = ("experiences", "departures", "gift_cards", "customers")
"""In the order of their writes."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ImportBatch:
    """A part of a plan that is written in one transaction."""

    plan: Plan
    continued: int = 0
    """Experiences that an earlier batch wrote, repeated here for departures that are still to be written."""

    def count(self, kind: str) -> int:
        """Count the entries of a kind that the batch imports."""
        return len(getattr(self.plan, kind)) - (self.continued if kind == "experiences" else 0)


@dataclass
class ImportTally:
    """The number of imported entries of each kind, and the total."""

    total: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    imported: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    def expect(self, plan: Plan) -> None:
        self.total = {kind: len(getattr(plan, kind)) for kind in KINDS}

    def add(self, batch: ImportBatch) -> None:
        for kind in KINDS:
            self.imported[kind] += batch.count(kind)

    @property
    def has_begun(self) -> bool:
        return any(self.imported.values())


def split(plan: Plan, inseparable: Collection[int] = (), size: int = BATCH_ENTRIES) -> Iterator[ImportBatch]:
    """Yield the plan in batches of at most `size` entries beside their experiences.

    Args:
        inseparable: the positions of experiences whose departures must change in the same transaction.
    """
    yield from _catalogue(plan, inseparable, size)
    for cards in _chunks(plan.gift_cards, size):
        yield ImportBatch(Plan(gift_cards=tuple(cards)))
    for people in _chunks(plan.customers, size):
        yield ImportBatch(Plan(customers=tuple(people)))


def _catalogue(plan: Plan, inseparable: Collection[int], size: int) -> Iterator[ImportBatch]:
    by_experience: dict[int, list[Entry]] = defaultdict(list)
    for entry in plan.departures:
        by_experience[entry.experience].append(entry)
    experiences: list[Entry] = []
    departures: list[Entry] = []
    continued = 0
    for position, experience in enumerate(plan.experiences):
        at_once = position in inseparable or len(by_experience[position]) <= size
        chunks: list[Sequence[Entry]] = (
            [by_experience[position]] if at_once else list(_chunks(by_experience[position], size))
        )
        for number, chunk in enumerate(chunks):
            if experiences and len(experiences) + len(departures) + len(chunk) >= size:
                yield ImportBatch(Plan(tuple(experiences), tuple(departures)), continued)
                experiences, departures, continued = [], [], 0
            departures += (replace(entry, experience=len(experiences)) for entry in chunk)
            experiences.append(experience)
            continued += number > 0
    if experiences:
        yield ImportBatch(Plan(tuple(experiences), tuple(departures)), continued)


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[i : i + size] for i in range(0, len(items), size))
