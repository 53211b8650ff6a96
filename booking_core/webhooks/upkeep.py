"""Upkeep of the queue: the worker's small steps between claims.

Each step is a short transaction over a few rows. Endpoints are served in turn, so that a large one keeps no other
waiting.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from booking_core.db.engine import Database, Tx
from booking_core.webhooks import following, giving_up, recovering

ENDPOINTS = 20
"""Endpoints, or recoveries, in one turn."""
EACH, GIVEN_UP = 200, 1_000
"""Deliveries of earlier generations in one turn: of one endpoint, and of all."""
FLAGS = 500
"""Cursors, or organizations, in one turn."""


class Step(NamedTuple):
    """A transaction of the upkeep."""

    run: Callable[[Tx], int]
    """Returns how many rows it changed."""
    has_more: bool = True
    """After one that changed something there may be more to do at once."""


class Upkeep:
    """The place in each round of endpoints."""

    def __init__(self) -> None:
        self._range = recovering.FIRST
        self._recovery = recovering.FIRST

    def steps(self, database: Database) -> list[Step]:
        """Return the steps of one turn, each to be run in a transaction of its own."""
        return [
            Step(partial(following.skip, limit=FLAGS), has_more=False),
            Step(partial(following.clear_flags, limit=FLAGS), has_more=False),
            Step(partial(giving_up.fail_given_up, each=EACH, limit=GIVEN_UP)),
            *self._ranges(database),
            *self._recoveries(database),
        ]

    def _ranges(self, database: Database) -> list[Step]:
        found = database.read(lambda tx: recovering.recovering(tx, self._range, ENDPOINTS))
        self._range = found[-1] if len(found) == ENDPOINTS else recovering.FIRST
        return [Step(partial(recovering.take_events, place=place)) for place in found]

    def _recoveries(self, database: Database) -> list[Step]:
        found = database.read(lambda tx: recovering.recoveries(tx, self._recovery, ENDPOINTS))
        self._recovery = (found[-1].organization_id, found[-1].id) if len(found) == ENDPOINTS else recovering.FIRST
        return [Step(partial(recovering.go_on, recovery=recovery)) for recovery in found]
