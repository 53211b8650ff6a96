"""Gives the problems that pydantic finds in a value a reason of ours, and words that follow the name of the field."""

import re
from collections.abc import Mapping
from typing import Any, cast, get_args

from booking_core.models.reasons import ErrorReason

_REASONS = frozenset(get_args(ErrorReason))
_PROBLEMS: Mapping[str, tuple[ErrorReason, str | None]] = {
    "missing": ("required", "is required"),
    "none_required": ("wrong_type", "must be null"),
    "json_invalid": ("invalid_json", "The body is not valid JSON."),
    "json_type": ("invalid_json", "is not valid JSON"),
    "union_tag_invalid": ("unknown_value", "is of an unknown kind"),
    "union_tag_not_found": ("required", None),
    "enum": ("unknown_value", None),
    "literal_error": ("unknown_value", None),
    "model_type": ("wrong_type", "must be an object"),
    "model_attributes_type": ("wrong_type", "must be an object"),
    "dict_type": ("wrong_type", "must be an object"),
    "list_type": ("wrong_type", "must be a list"),
    "too_short": ("too_short", None),
    "too_long": ("too_long", None),
    "string_type": ("wrong_type", "must be text"),
    "string_sub_type": ("wrong_type", "must be text"),
    "string_unicode": ("wrong_format", "is not valid Unicode"),
    "string_too_short": ("too_short", None),
    "string_too_long": ("too_long", None),
    "string_pattern_mismatch": ("wrong_format", None),
    "int_type": ("wrong_type", "must be a whole number"),
    "int_parsing": ("wrong_type", "must be a whole number"),
    "int_parsing_size": ("out_of_range", "is too large"),
    "int_from_float": ("wrong_type", "must be a whole number"),
    "float_type": ("wrong_type", "must be a number"),
    "finite_number": ("wrong_type", "must be a number"),
    "greater_than_equal": ("out_of_range", None),
    "less_than_equal": ("out_of_range", None),
    "bool_type": ("wrong_type", "must be true or false"),
    "bool_parsing": ("wrong_type", "must be true or false"),
    "datetime_type": ("wrong_type", "must be an ISO 8601 timestamp"),
    "datetime_parsing": ("wrong_format", "must be an ISO 8601 timestamp"),
    "datetime_from_date_parsing": ("wrong_format", "must be an ISO 8601 timestamp"),
    "timezone_aware": ("wrong_format", "must have a UTC offset"),
    "date_parsing": ("wrong_format", "must be a date, YYYY-MM-DD"),
    "date_from_datetime_parsing": ("wrong_format", "must be a date, YYYY-MM-DD"),
}
"""Reason and words by the type of the problem: a sentence for what has no field. Without words, pydantic's own are
shown."""
_SUBJECT = re.compile(r"^\w+ should\b")
_COUNTED = re.compile(r" after validation, not \d+$")


def reason_of(problem: Mapping[str, Any]) -> ErrorReason:
    """Return the reason of one of the `errors()` of pydantic: the one of a `Fault`, or of the kind of problem."""
    kind: str = problem["type"]
    if kind in _PROBLEMS:
        return _PROBLEMS[kind][0]
    return cast("ErrorReason", kind) if kind in _REASONS else "invalid"


def describe(problem: Mapping[str, Any]) -> str:
    """Return one of the `errors()` of pydantic as the end of a sentence, such as `must have at least 1 item`."""
    _, words = _PROBLEMS.get(problem["type"], ("", None))
    if words is not None:
        return words
    text: str = problem["msg"].removeprefix("Value error, ")
    return _COUNTED.sub("", _SUBJECT.sub("must", text))
