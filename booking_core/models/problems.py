"""What pydantic finds wrong with a value, in words for people whose subject is the field."""

import re
from collections.abc import Mapping
from typing import Any

_WORDS = {
    "missing": "is required",
    "none_required": "must be null",
    "json_invalid": "is not valid JSON",
    "union_tag_invalid": "is of an unknown kind",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_type": "must be an object",
    "list_type": "must be a list",
    "string_type": "must be text",
    "string_unicode": "is not valid Unicode",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "datetime_from_date_parsing": "must be an ISO 8601 timestamp",
    "datetime_parsing": "must be an ISO 8601 timestamp",
    "datetime_type": "must be an ISO 8601 timestamp",
    "timezone_aware": "must have a UTC offset",
    "date_from_datetime_parsing": "must be a date, YYYY-MM-DD",
    "date_parsing": "must be a date, YYYY-MM-DD",
}
"""By the type of the error, where pydantic's own words are about Python."""
_SUBJECT = re.compile(r"^\w+ should\b")
_COUNTED = re.compile(r" after validation, not \d+$")


def describe(problem: Mapping[str, Any]) -> str:
    """Return one of the `errors()` of pydantic as the end of a sentence, such as `must have at least 1 item`."""
    own = _WORDS.get(problem["type"])
    if own is not None:
        return own
    text: str = problem["msg"].removeprefix("Value error, ")
    return _COUNTED.sub("", _SUBJECT.sub("must", text))
