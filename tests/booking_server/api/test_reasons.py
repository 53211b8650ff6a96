"""The reason of each problem that pydantic can find in a request (decision R3), and the lane of an operation."""

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from pydantic_core.core_schema import ErrorType

from booking_core.models import base, problems
from booking_core.models.reasons import ErrorReason
from booking_server.api import parameters
from booking_server.api.dependencies import CreateOperation, Lane, LaneRoute, PathOperation, ReadOperation, runs_in
from booking_server.app import describe

TYPES = frozenset(get_args(ErrorType))
REASONS = frozenset(get_args(ErrorReason))


def starting(*prefixes: str) -> frozenset[str]:
    return frozenset(kind for kind in TYPES if kind.startswith(prefixes))


NOTHING: frozenset[str] = frozenset()
OF_NODES = {
    "model": frozenset({"model_type", "model_attributes_type"}),
    "model-fields": frozenset({"missing"}),
    "str": starting("string_") - {"string_not_ascii"},
    "int": starting("int_"),
    "bool": starting("bool_"),
    "enum": frozenset({"enum"}),
    "list": frozenset({"list_type"}),
    "dict": frozenset({"dict_type"}),
    **dict.fromkeys(("model-field", "default", "nullable", "definitions", "definition-ref", "any"), NOTHING),
    # What our validators raise is `Fault` or an error of `date`; they are read in the code.
    **dict.fromkeys(("function-after", "function-before", "function-plain", "function-wrap"), NOTHING),
    **dict.fromkeys(("no-info", "with-info"), NOTHING),
}
"""The types that each kind of node of a core schema raises, as pydantic names them; an unknown kind fails the test."""
OF_BOUNDS = {
    "ge": "greater_than_equal",
    "gt": "greater_than",
    "le": "less_than_equal",
    "lt": "less_than",
    "multiple_of": "multiple_of",
    "min_length": "too_short",
    "max_length": "too_long",
}


def subclasses(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield each node of a core schema."""
    if isinstance(schema, dict):
        if isinstance(schema.get("type"), str):
            yield schema
        for key, value in schema.items():
            if key not in ("metadata", "serialization"):
                yield from nodes(value)
    elif isinstance(schema, (list, tuple)):
        for value in schema:
            yield from nodes(value)


def raised_by(model: type[BaseModel]) -> Iterator[str]:
    """Yield the types of the problems that pydantic can find in a value of the model."""
    model.model_rebuild()
    for node in nodes(model.__pydantic_core_schema__):
        yield from OF_NODES[node["type"]]
        for bound, kind in OF_BOUNDS.items():
            if bound in node:
                yield f"string_{kind}" if node["type"] == "str" else kind


@pytest.fixture(scope="module")
def raised() -> set[str]:
    describe()  # it imports every router
    models = [*subclasses(base.Request), *subclasses(parameters.QueryParameters)]
    assert len(models) > 25
    return {"json_invalid", *(kind for model in models for kind in raised_by(model))}


def test_every_problem_of_a_request_has_a_reason_in_the_table(raised: set[str]) -> None:
    assert raised <= TYPES
    assert raised - set(problems._PROBLEMS) == set()


def test_a_type_of_pydantic_is_never_a_reason_of_another_meaning() -> None:
    for kind in TYPES & REASONS:
        assert problems.reason_of({"type": kind}) == kind
    assert {reason for reason, _ in problems._PROBLEMS.values()} <= REASONS


def test_an_unknown_type_is_never_shown() -> None:
    assert problems.reason_of({"type": "url_scheme"}) == "invalid"


# Lanes ---------------------------------------------------------------------------------------------------------------


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
