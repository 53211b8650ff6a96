"""The parts of a verdict: percentiles, ratios, rows by the thousand, burners."""

import pytest
from support.world import World

from bench import neighbours
from booking_core.db import tables
from isolation import bulk
from isolation.cells import BY_NAME, MISBEHAVIOURS
from isolation.measuring import FACTOR, Cell, Verdict
from isolation.operations import Measured, Operation
from isolation.processes import Lateness, burners, request


def test_only_many_samples_leave_out_the_slowest_hundredth() -> None:
    few, many = Measured(), Measured()
    for number in range(1, 201):
        many.add(Operation.ME, float(number))
        if number <= 8:
            few.add(Operation.ME, float(number))
    assert few.worst(Operation.ME) == 8.0
    assert many.worst(Operation.ME) == 199.0


@pytest.mark.parametrize(("disturbed", "is_met"), [(0.6, True), (0.61, False)])
def test_a_cell_is_met_up_to_its_limit(disturbed: float, is_met: bool) -> None:
    cell = Cell(Operation.BOOK, quiet_s=0.1, reference_s=0.2, disturbed_s=disturbed, limit=3.0)
    assert cell.is_met is is_met


def test_no_ratio_excuses_a_failure() -> None:
    met = Cell(Operation.MAIL, quiet_s=0.1, reference_s=0.1, disturbed_s=0.1, limit=3.0)
    assert Verdict((met,), ("mail: 1 missing after 4 s",)).complaints == ["mail: 1 missing after 4 s"]


def test_the_database_generates_rows_with_the_referenced_ids(world: World, shared_database_url: str) -> None:
    experience = world.experience()
    departure = world.departure(experience)
    made = bulk.bookings(shared_database_url, world, departure, experience, 3)
    rows = world.rows(tables.bookings)
    assert sorted(row["id"] for row in rows) == [made(number) for number in (1, 2, 3)]
    assert len({row["created_at"] for row in rows}) == 3
    assert world.examine() == []


def test_events_continue_the_log_of_their_organization(world: World, shared_database_url: str) -> None:
    bulk.events(shared_database_url, world, 2)
    bulk.events(shared_database_url, world, 2)
    assert sorted(row["sequence"] for row in world.rows(tables.events)) == [1, 2, 3, 4]


def test_a_request_has_its_declared_length_after_its_marks_are_replaced() -> None:
    head, _, body = request("POST", "/x", "key", b'{"email": "{fresh}@example.com"}').partition(b"\r\n\r\n")
    replaced = body.replace(b"{fresh}", b"0" * 32)
    assert f"Content-Length: {len(replaced)}" in head.decode()


def test_burners_and_the_look_at_the_machine_end_with_their_use() -> None:
    lateness = Lateness()
    with burners(1.5):
        assert lateness.worst_s() >= 0.0
    lateness.close()


def test_the_table_has_each_misbehaviour_once_and_on_both_databases() -> None:
    assert len(BY_NAME) == len(MISBEHAVIOURS) >= 20
    for misbehaviour in MISBEHAVIOURS:
        assert all(misbehaviour.measured_on(backend) for backend in FACTOR), misbehaviour.name


def test_the_bench_has_the_columns_and_limits_of_the_table() -> None:
    assert tuple(neighbours.OPERATIONS) == tuple(Operation)
    assert neighbours.LIMITS == FACTOR
