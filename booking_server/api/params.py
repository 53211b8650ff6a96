"""Query parameters: read strictly, described once for the parser and for the OpenAPI document (decisions R2, R7)."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

from booking_core.clock import Zone, parse_date
from booking_core.errors import Malformed
from booking_core.models.base import UUID_PATTERN, single_line
from booking_core.models.limits import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX
from booking_core.models.pages import Order

Parse = Callable[[str, Zone], Any]
Values = dict[str, Any]

_UUID = re.compile(UUID_PATTERN)
_DIGITS = re.compile(r"[0-9]{1,9}")
_TEXT_LENGTH_MAX = 2048


@dataclass(frozen=True, slots=True)
class Param:
    """One query parameter: how it is read, and what the OpenAPI document says of it."""

    name: str
    parse: Parse
    schema: Mapping[str, Any]
    description: str
    required: bool = False
    default: Any = None
    example: Any = None


def is_uuid(text: str) -> bool:
    """Whether the text is a canonical UUID, in any case."""
    return bool(_UUID.fullmatch(text))


def _limit(text: str, _: Zone) -> int:
    if not _DIGITS.fullmatch(text) or not 1 <= int(text) <= PAGE_LIMIT_MAX:
        raise ValueError(f"must be a whole number from 1 to {PAGE_LIMIT_MAX}")
    return int(text)


EnumT = TypeVar("EnumT", bound=StrEnum)


def _one_of(kind: type[EnumT]) -> Parse:
    def parse(text: str, _: Zone) -> EnumT:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"must be one of {', '.join(kind)}") from None

    return parse


def _flag(text: str, _: Zone) -> bool:
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


def _uuid(text: str, _: Zone) -> str:
    if not is_uuid(text):
        raise ValueError("must be a UUID")
    return text.lower()


def choice(name: str, kind: type[StrEnum], description: str) -> Param:
    """One value of an enum."""
    return Param(name, _one_of(kind), {"type": "string", "enum": [str(value) for value in kind]}, description)


def uuid(name: str, description: str) -> Param:
    return Param(name, _uuid, {"type": "string", "format": "uuid", "pattern": UUID_PATTERN}, description)


def day(name: str, description: str, *, required: bool = False, example: str | None = None) -> Param:
    """A date, `YYYY-MM-DD`."""
    schema = {"type": "string", "format": "date"}
    return Param(name, lambda text, _: parse_date(text), schema, description, required=required, example=example)


def instant(name: str, description: str) -> Param:
    """An ISO 8601 timestamp; without an offset it is wall time of the organization (decision R10)."""
    schema = {"type": "string", "format": "date-time"}
    return Param(name, lambda text, zone: zone.parse(text), schema, description, example="2026-11-21T09:00:00+01:00")


def flag(name: str, description: str) -> Param:
    return Param(name, _flag, {"type": "boolean"}, description)


def text(name: str, description: str, *, example: str | None = None, plus: bool = False) -> Param:
    """Any text of one line. With `plus`, a space is read as the `+` that an unescaped URL lost."""

    def parse(value: str, _: Zone) -> str:
        return value.replace(" ", "+") if plus else value

    schema = {"type": "string", "minLength": 1, "maxLength": _TEXT_LENGTH_MAX}
    return Param(name, parse, schema, description, example=example)


LIST = (
    Param(
        "limit",
        _limit,
        {"type": "integer", "minimum": 1, "maximum": PAGE_LIMIT_MAX, "default": PAGE_LIMIT_DEFAULT},
        "How many results a page holds.",
        default=PAGE_LIMIT_DEFAULT,
    ),
    Param(
        "order",
        _one_of(Order),
        {"type": "string", "enum": [str(value) for value in Order], "default": "desc"},
        "By creation time.",
        default=Order.DESC,
    ),
    text("starting_after", "The `next_cursor` of the previous page, unchanged."),
)
"""The shared list parameters."""


def _decoded(raw: bytes) -> str:
    return unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8")


def parse(params: Iterable[Param], query: bytes, zone: Zone) -> Values:
    """The values by name; absent ones as their default. Unknown parameters are ignored (decision R6).

    Raises:
        Malformed: one that is known is missing, given twice, or not what it must be.
    """
    known = {param.name: param for param in params}
    values: Values = {name: param.default for name, param in known.items()}
    seen: set[str] = set()
    for pair in query.split(b"&") if query else ():
        raw_name, _, raw_value = pair.partition(b"=")
        try:
            name = _decoded(raw_name)
        except UnicodeDecodeError:
            continue  # no name of ours
        if name in known:
            if name in seen:
                raise Malformed.at(name, "is given twice", "repeated")
            seen.add(name)
            values[name] = _value(known[name], raw_value, zone)
    for name, param in known.items():
        if param.required and name not in seen:
            raise Malformed.at(name, "is required", "required")
    return values


def _value(param: Param, raw: bytes, zone: Zone) -> Any:
    try:
        value = single_line(_decoded(raw))
    except UnicodeDecodeError:
        raise Malformed.at(param.name, "is not UTF-8") from None
    except ValueError as error:
        raise Malformed.at(param.name, str(error)) from None
    if not value:
        raise Malformed.at(param.name, "is empty", "empty")
    if len(value) > _TEXT_LENGTH_MAX:
        raise Malformed.at(param.name, f"is longer than {_TEXT_LENGTH_MAX} characters", "too_long")
    try:
        return param.parse(value, zone)
    except ValueError as error:
        raise Malformed.at(param.name, str(error)) from None
