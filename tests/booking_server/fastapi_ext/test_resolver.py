"""Query parameters that a plan remembers."""

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from fastapi import Cookie, Depends, Query
from fastapi.dependencies.utils import get_dependant
from pydantic import BaseModel, ConfigDict, PositiveInt
from starlette.requests import Request

from booking_core.base.errors import Malformed
from booking_server.fastapi_ext import resolver
from booking_server.fastapi_ext.resolver import CallPlan


class Filters(BaseModel):
    model_config = ConfigDict(frozen=True)
    limit: PositiveInt = 25


def listed(query: Annotated[Filters, Query()]) -> Filters:
    return query


def ask(plan: CallPlan, text: str) -> Any:
    scope = {"type": "http", "query_string": text.encode(), "headers": [], "path_params": {}}
    return plan.run(Request(scope), None, {})


def a_plan() -> CallPlan:
    return CallPlan(get_dependant(path="/", call=listed), (), {})


def test_the_same_query_text_is_read_once() -> None:
    plan = a_plan()
    assert ask(plan, "limit=3") is ask(plan, "limit=3")
    assert ask(plan, "limit=4") == Filters(limit=4)
    assert ask(plan, "") == Filters()


def test_a_query_that_is_refused_is_refused_again() -> None:
    plan = a_plan()
    for _ in range(2):
        with pytest.raises(Malformed) as refused:
            ask(plan, "limit=0")
        assert [detail.field for detail in refused.value.details] == ["limit"]


def test_no_route_remembers_without_a_bound() -> None:
    plan = a_plan()
    for number in range(1, 500):
        assert ask(plan, f"limit={number}").limit == number
    long = "limit=7&" + "x" * 300
    assert ask(plan, long) is not ask(plan, long)
    (parameter,) = plan._operation.parameters
    assert isinstance(parameter, resolver.QueryModel)
    assert len(parameter.cache) <= resolver._KNOWN_MAX


def closing() -> Iterator[int]:
    yield 1


def with_yield(number: Annotated[int, Depends(closing)]) -> int:
    return number


def with_cookie(session: Annotated[str, Cookie()]) -> str:
    return session


def with_two_models(first: Annotated[Filters, Query()], times: Annotated[int, Query()]) -> None: ...


def with_plain_body(body: list[int]) -> None: ...


@pytest.mark.parametrize("operation", [with_yield, with_cookie, with_two_models, with_plain_body])
def test_a_declaration_that_a_plan_does_not_cover_is_refused(operation: Any) -> None:
    with pytest.raises(TypeError, match="use a plain APIRouter"):
        CallPlan(get_dependant(path="/", call=operation), (), {})
