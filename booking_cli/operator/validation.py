"""Validate input of operator commands by the rules of the API's requests and of organizations."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from booking_cli.framework.errors import CliError

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

    from booking_core.base.context import Organization
    from booking_core.base.errors import Malformed

    M = TypeVar("M", bound=BaseModel)
    T = TypeVar("T")


def parse_request(model: "type[M]", body: Mapping[str, Any]) -> "M":
    """Return the body of a request as a model.

    Raises:
        Malformed: names each invalid field.
    """
    import json

    from pydantic import ValidationError

    try:
        return model.model_validate_json(json.dumps(body))
    except ValidationError as error:
        raise _malformed(error) from None


def parse(kind: "type[T]", value: Mapping[str, Any]) -> "T":
    """Return a value of any type that pydantic can validate.

    Raises:
        Malformed: names each invalid field.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise _malformed(error) from None


def _malformed(error: "ValidationError") -> "Malformed":
    from booking_core.base.errors import Malformed
    from booking_core.models.errors import ErrorDetail
    from booking_core.models.problems import describe

    details = [
        ErrorDetail(
            field=".".join(map(str, each["loc"])),
            reason="invalid",
            message=describe(each),
        )
        for each in error.errors()
    ]
    message = "; ".join(f"{each.field} {each.message}" for each in details)
    return Malformed(message, details=details)


@overload
def parse_instant(organization: "Organization", option: str, text: str) -> int: ...


@overload
def parse_instant(organization: "Organization", option: str, text: str | None) -> int | None: ...


def parse_instant(organization: "Organization", option: str, text: str | None) -> int | None:
    """Return an instant in microseconds from an ISO 8601 timestamp; None stays None.

    A timestamp without an offset is in the organization's time zone.

    Raises:
        CliError: the text is not a timestamp; the message names the option.
    """
    if text is None:
        return None
    try:
        return organization.zone.parse(text)
    except ValueError as error:
        raise CliError(f"{option} {error}.", hint="write 2027-01-31T09:00:00 or 2027-01-31T09:00:00+01:00") from None
