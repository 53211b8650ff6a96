"""No organization slows another: beside each misbehaviour of the table its neighbour's operations have their turns.

A misbehaviour that holds something does so until its end. An operation that waits for it is missing, however fast the
machine is. Beside clients that call without pause, the requests that are answered first are counted.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles

import pytest
from sqlalchemy.engine import make_url
from support.databases.databases import is_sqlite

from isolation import defects
from isolation.misbehaviours import BY_NAME, MISBEHAVIOURS, Misbehaviour
from isolation.operations import Measured, Operation
from isolation.processes import Plant
from isolation.world import Scene


@pytest.fixture
def folder(fresh_database_url: str, tmp_path: Path) -> Iterator[Path]:
    """Return a folder, and delete the file of an SQLite database, which is large and may be kept in memory."""
    yield tmp_path
    if is_sqlite(fresh_database_url):
        for path in Path(str(make_url(fresh_database_url).database)).parent.glob("booking.db*"):
            path.unlink()


def complaints(measured: Measured, clients: int) -> list[str]:
    """Return the failures, and the operations before which the offender had more than half of its requests answered.

    Counted is the third quartile of the rounds. In one row for all organizations, an operation waits for all clients.
    """
    passed = {operation: quantiles(counts, n=4)[2] for operation, counts in measured.passed.items() if len(counts) > 1}
    late = [f"{operation}: after {count:g} requests" for operation, count in passed.items() if count > clients / 2]
    return [*late, *dict.fromkeys(measured.failures)]


@contextmanager
def beside(misbehaviour: Misbehaviour, url: str, folder: Path, plants: Sequence[Plant] = ()) -> Iterator[Scene]:
    """Start a service, and misbehave while the body runs."""
    with Scene(url, folder, is_full=False, cancellations=32, settings=misbehaviour.settings) as scene:
        misbehaviour.prepare(scene)
        scene.start([defects.long_waits_for_locks, *plants])
        with misbehaviour.run(scene):
            yield scene


@pytest.mark.exhaustive(but=("sqlite-hanging-receiver", "postgresql-locked-departure"))
@pytest.mark.parametrize("misbehaviour", MISBEHAVIOURS, ids=lambda row: row.name)
def test_the_neighbour_has_its_turns(
    misbehaviour: Misbehaviour, backend: str, fresh_database_url: str, folder: Path
) -> None:
    with beside(misbehaviour, fresh_database_url, folder) as scene:
        measured = scene.neighbour.measure(misbehaviour.measured_on(backend), rounds=misbehaviour.rounds)
    assert complaints(measured, misbehaviour.clients) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("defect", "name", "operations", "backend"),
    [
        (defects.first_come_first_served, "rare-filter", (Operation.LIST,), "sqlite"),
        (defects.first_come_first_served, "rare-filter", (Operation.LIST,), "postgresql"),
        (defects.one_lane_for_bookings, "locked-departure", (Operation.BOOK,), "postgresql"),
        (defects.one_delivery_at_a_time, "hanging-receiver", (Operation.BOOK, Operation.DELIVERY), "sqlite"),
        (defects.one_batch_of_mails_at_a_time, "hanging-mails", (Operation.BOOK, Operation.MAIL), "sqlite"),
        (defects.a_sweep_that_begins_with_the_same_row, "stuck-checkouts", (Operation.EXPIRY,), "postgresql"),
    ],
    indirect=["backend"],
    ids=["list", "list-postgresql", "booking", "delivery", "mail", "expiry"],
)
def test_a_planted_defect_is_noticed(
    defect: Plant, name: str, operations: tuple[Operation, ...], backend: str, fresh_database_url: str, folder: Path
) -> None:
    misbehaviour = BY_NAME[name]
    with beside(misbehaviour, fresh_database_url, folder, [defect]) as scene:
        measured = scene.neighbour.measure(operations, rounds=misbehaviour.rounds)
    assert any(
        complaint.startswith(f"{operations[-1]}: ") for complaint in complaints(measured, misbehaviour.clients)
    ), measured
