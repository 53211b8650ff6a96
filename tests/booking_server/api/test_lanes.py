"""A path operation of the API declares the lane that it runs in."""

import pytest

from booking_server.api.dependencies import CreateOperation, Lane, LaneRoute, PathOperation, ReadOperation, runs_in


def read() -> None: ...


async def write() -> None: ...


@pytest.mark.parametrize(
    ("lane", "kind"),
    [(Lane.LOOK_UPS, ReadOperation), (Lane.LISTS, ReadOperation), (Lane.BOOKINGS, CreateOperation)],
)
def test_an_operation_runs_in_its_lane(lane: Lane, kind: type[PathOperation]) -> None:
    def operation() -> None: ...

    assert LaneRoute("/", runs_in(lane)(operation)).kind(operation) is kind


def test_an_operation_on_the_event_loop_has_no_lane() -> None:
    assert LaneRoute("/", write).kind(write) is PathOperation


def test_a_function_without_a_lane_is_refused() -> None:
    with pytest.raises(TypeError, match="declares its lane"):
        LaneRoute("/", read)


def test_a_coroutine_with_a_lane_is_refused() -> None:
    async def operation() -> None: ...

    with pytest.raises(TypeError, match="has none"):
        LaneRoute("/", runs_in(Lane.LISTS)(operation))
