"""Values that were typed, checked by the rules of the API, as its requests are."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

    from booking_core.errors import Malformed

    M = TypeVar("M", bound=BaseModel)


def request(kind: "type[M]", body: Mapping[str, Any]) -> "M":
    """Return the body of a request as a model.

    Raises:
        Malformed: naming each field that is wrong.
    """
    import json

    from pydantic import ValidationError

    try:
        return kind.model_validate_json(json.dumps(body))
    except ValidationError as error:
        raise refusal(error) from None


def refusal(error: "ValidationError") -> "Malformed":
    """Return the refusal that names each field which is wrong."""
    from booking_core.errors import Malformed
    from booking_core.models.errors import ErrorDetail

    details = [
        ErrorDetail(
            field=".".join(map(str, each["loc"])),
            reason="invalid",
            message=each["msg"].removeprefix("Value error, "),
        )
        for each in error.errors()
    ]
    message = "; ".join(f"{each.field} {each.message}" for each in details)
    return Malformed(message, details=details)
