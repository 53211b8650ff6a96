"""A cell can fail: with a defect planted in the service, the verdict names the operation that waits."""

from dataclasses import dataclass, replace

import pytest

from isolation import defects
from isolation.cells import BY_NAME
from isolation.conftest import OpenScene
from isolation.measuring import Misbehaviour, Trial
from isolation.operations import Operation, nothing
from isolation.processes import Plant

NOTHING = Misbehaviour("nothing", "the offender does nothing", nothing)


@dataclass(frozen=True, slots=True)
class Planted:
    """A defect, the misbehaviour that shows it, the operation that waits, and an operation that must precede it."""

    defect: Plant
    misbehaviour: Misbehaviour
    operation: Operation
    backend: str
    first: tuple[Operation, ...] = ()


PLANTED = (
    Planted(defects.one_lane_for_reads, BY_NAME["rare-filter"], Operation.ME, "postgresql"),
    Planted(defects.one_lane_for_bookings, BY_NAME["locked-departure"], Operation.BOOK, "postgresql"),
    Planted(
        defects.one_delivery_at_a_time, BY_NAME["hanging-receiver"], Operation.DELIVERY, "sqlite", (Operation.BOOK,)
    ),
    Planted(
        defects.one_batch_of_mails_at_a_time, BY_NAME["hanging-mails"], Operation.MAIL, "sqlite", (Operation.BOOK,)
    ),
    Planted(defects.stalls_the_event_loop, BY_NAME["large-answers"], Operation.ME, "sqlite", (Operation.BOOK,)),
    Planted(defects.a_sweep_that_begins_with_the_same_row, BY_NAME["stuck-checkouts"], Operation.EXPIRY, "postgresql"),
)


@pytest.mark.parametrize(
    ("planted", "backend"),
    [pytest.param(each, each.backend, id=each.defect.__name__.replace("_", "-")) for each in PLANTED],
    indirect=["backend"],
)
def test_a_planted_defect_turns_its_cell_red(planted: Planted, backend: str, open_scene: OpenScene) -> None:
    operations = (*planted.first, planted.operation)
    misbehaviour = replace(planted.misbehaviour, operations=operations, on_sqlite=None)
    verdict = Trial(open_scene(misbehaviour), misbehaviour, backend).run(takes=1, plants=[planted.defect])
    assert any(complaint.startswith(f"{planted.operation}: ") for complaint in verdict.complaints), verdict


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_delivery_that_never_arrives_turns_its_cell_red(backend: str, open_scene: OpenScene) -> None:
    misbehaviour = replace(NOTHING, operations=(Operation.BOOK, Operation.DELIVERY))
    verdict = Trial(open_scene(misbehaviour), misbehaviour, backend).run(plants=[defects.lost_deliveries])
    assert any("missing after" in complaint for complaint in verdict.complaints), verdict


def test_beside_an_offender_that_does_nothing_every_cell_is_met(backend: str, open_scene: OpenScene) -> None:
    verdict = Trial(open_scene(NOTHING), NOTHING, backend).run()
    assert verdict.complaints == []
