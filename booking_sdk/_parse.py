"""Parses response bodies into models. A validator is built when a type is first used, and cached.

The first validator or model imports pydantic, which takes longer than importing the rest of the SDK.
"""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from booking_sdk.response import Response, ResponseMeta, attach_meta

if TYPE_CHECKING:
    from pydantic import ValidationError

T = TypeVar("T")

Parse = Callable[[Response, ResponseMeta], T]


class InvalidBody(Exception):
    """A response body that does not match its type. The error names the place of the problem, never the value."""

    def __init__(self, field_path: str | None, problem: str) -> None:
        super().__init__(problem)
        self.field_path = field_path
        self.problem = problem


def validate_body(body_type: Any, body: bytes) -> Any:
    """Parse JSON into a type.

    Raises:
        InvalidBody: The body is not JSON, or does not match the type.
    """
    from pydantic import ValidationError

    try:
        return _validator(body_type)(body)
    except ValidationError as error:
        invalid = first_problem(error)
    # Raised outside the except block: the validation error contains the body and would become the context.
    raise invalid


def first_problem(error: "ValidationError") -> InvalidBody:
    """Return the first problem of a validation error."""
    from booking_core.models.problems import describe

    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    # A part with a dot is not a field: it is the event type that selected the class.
    path = [str(part) for part in first["loc"] if "." not in str(part)]
    return InvalidBody(".".join(path) or None, describe(first))


@cache
def _validator(body_type: Any) -> Callable[[bytes], Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(body_type).validate_json


def parser_for(result_type: type[T]) -> Parse[T]:
    """Return a function that parses a response into a type and attaches its `meta`.

    `bytes` returns the body unchanged, and `NoneType` expects an empty body.
    """
    if result_type is bytes:
        return cast("Parse[T]", lambda response, _: response.body)
    if result_type is type(None):
        return cast("Parse[T]", expect_empty_body)

    def parse(response: Response, meta: ResponseMeta) -> T:
        result = cast("T", validate_body(result_type, response.body))
        attach_meta(result, meta)
        return result

    return parse


def expect_empty_body(response: Response, _: ResponseMeta) -> None:
    """Check that a response has no body.

    Raises:
        InvalidBody: There is a body: the response comes from a proxy, and the request was not executed.
    """
    if response.is_success and response.body:
        raise InvalidBody(None, "a body where none is expected")
