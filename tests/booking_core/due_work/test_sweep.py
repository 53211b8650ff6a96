"""A sweep of leased rows: a parked row is released when its transaction has been committed, and then forgotten."""

import asyncio

import pytest
from support.world.world import World

from booking_core import notifications
from booking_core.base.tokens import new_id
from booking_core.db.engine import Tx
from booking_core.due_work import parked
from booking_core.due_work.rows import Processed
from booking_core.due_work.sweep import Sweep

NAME = "send_mails"


def refuse(_: Tx) -> None:
    raise ValueError


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_processed_lease_releases_its_row_and_its_organization(world: World) -> None:
    row, other, org = new_id(), new_id(), world.org
    sweep: Sweep[str] = Sweep(NAME, world.database, notifications.DUE, lambda *_: Processed(), is_lease=True)

    def lease(tx: Tx) -> None:
        for subject in (row, other, org):
            parked.park(tx, NAME, org, subject, ValueError())
        sweep._unpark(tx, org, parked.find(tx, NAME, org, [row, other, org]), Processed(finished=[row, other]))

    world.database.write(lease)
    with pytest.raises(ValueError):
        asyncio.run(sweep.settle(refuse, [(org, row)]))
    asyncio.run(sweep.settle(lambda tx: None, [(org, row)]))
    parked_rows = world.database.read(lambda tx: parked.find(tx, NAME, org, [row, other, org]))
    assert list(parked_rows) == [other]
    assert sweep._unresolved == {(org, other)}
