"""From the bytes of an answer to the type it stands for. Validators are built when first used, once for a type.

pydantic is imported by the first of them, or by the first model: it takes longer than all of the SDK beside it.
"""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from booking_sdk.response import Response, ResponseMeta, attach

if TYPE_CHECKING:
    from pydantic import ValidationError

T = TypeVar("T")

Parse = Callable[[Response, ResponseMeta], T]


class Unreadable(Exception):
    """A body that is not what it should be. It says where, and never what stood there."""

    def __init__(self, field_path: str | None, problem: str) -> None:
        super().__init__(problem)
        self.field_path = field_path
        self.problem = problem


def read(kind: Any, body: bytes) -> Any:
    """The body as an instance of that type.

    Raises:
        Unreadable: it is none.
    """
    from pydantic import ValidationError

    try:
        return _reader(kind)(body)
    except ValidationError as error:
        unreadable = unreadable_of(error)
    # Raised out here, since the validator's own error carries the body and would travel along as its context.
    raise unreadable


def unreadable_of(error: "ValidationError") -> Unreadable:
    """The first thing that a validator found."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    # A part with a dot in it is no field, but the type of an event, which chose the class.
    path = [str(part) for part in first["loc"] if "." not in str(part)]
    return Unreadable(".".join(path) or None, first["type"])


@cache
def _reader(kind: Any) -> Callable[[bytes], Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_json


def as_type(kind: type[T]) -> Parse[T]:
    """Reads an answer as that type, and notes on it how it came about. bytes: the body itself; NoneType: nothing."""
    if kind is bytes:
        return cast("Parse[T]", lambda response, _: response.body)
    if kind is type(None):
        return cast("Parse[T]", nothing)

    def parse(response: Response, response_meta: ResponseMeta) -> T:
        result = cast("T", read(kind, response.body))
        attach(result, response_meta)
        return result

    return parse


def nothing(response: Response, _: ResponseMeta) -> None:
    """Reads an answer that has no body.

    Raises:
        Unreadable: it has one: it comes from something in front of the service, which did not do what was asked for.
    """
    if response.is_success and response.body:
        raise Unreadable(None, "a body where none is expected")
