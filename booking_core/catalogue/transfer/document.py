"""The catalogue file: its keys with their types and limits, and problems located by JSON pointer.

Rules across keys (a repeated slug, an end before its start) are in `rules`.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import ErrorDetails

from booking_core.base.clock import YEARS, Zone, parse_date, within_years
from booking_core.base.errors import Malformed
from booking_core.base.gift_codes import normalise_code
from booking_core.models import limits
from booking_core.models.base import Email, InputId, LineId, Name, ShortText, single_line
from booking_core.models.base import Note as LongText
from booking_core.models.errors import ErrorDetail
from booking_core.models.problems import describe
from booking_core.organizations import HOURS_MAX, URL_LENGTH_MAX, currency, timezone

DURATION_MINUTES_MAX = 366 * 24 * 60
CODE_LENGTH_MIN = 4
PROBLEMS_MAX = 1_000
"""The most problems that are listed."""

_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}", re.ASCII)
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d", re.ASCII)
_TWICE = "\0"
"""A suffix that marks a repeated key of an object. No known key contains it."""


# Problems and notes ----------------------------------------------------------------------------------------------


class Problem(NamedTuple):
    """A mistake that prevents the import of a catalogue."""

    pointer: str
    """JSON pointer (RFC 6901); empty for the file itself."""
    message: str


class Note(NamedTuple):
    """A difference between the document and its import."""

    pointer: str
    message: str


class InvalidCatalogue(Malformed):
    """An error that lists the first problems of a catalogue."""

    def __init__(self, problems: Iterable[Problem], outcome: str | None = "nothing was imported") -> None:
        self._first = tuple(islice(problems, PROBLEMS_MAX + 1))
        self.problems = self._first[:PROBLEMS_MAX]
        details = [
            ErrorDetail(field=problem.pointer, reason="invalid", message=problem.message) for problem in self.problems
        ]
        sentences = filter(None, (f"The catalogue has {_counted(len(self._first))}", outcome))
        super().__init__(f"{'; '.join(sentences)}.", details=details)

    def with_outcome(self, outcome: str | None) -> "InvalidCatalogue":
        """Return the same error with another outcome; None: nothing was to be imported."""
        return InvalidCatalogue(self._first, outcome)


def _counted(problems: int) -> str:
    if problems > PROBLEMS_MAX:
        return f"more than {PROBLEMS_MAX:,} problems; the first are listed"
    return "a problem" if problems == 1 else f"{problems} problems"


def pointer(*path: str | int) -> str:
    """Return the JSON pointer of a path."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return the end of a message that suggests the closest of the words; empty when none is close."""
    close = difflib.get_close_matches(word, list(words), 1)
    return f"; did you mean {close[0]}?" if close else ""


# Types of keys ---------------------------------------------------------------------------------------------------


class Moment(NamedTuple):
    """An instant, and its wall time when the document has no offset."""

    at: int
    wall: datetime | None


def moment(value: object, local: Zone) -> Moment:
    """Parse a timestamp. Without an offset it is wall time of the zone.

    Raises:
        ValueError: no timestamp, without a time of day, or out of range.
    """
    if not isinstance(value, str):
        raise ValueError("must be an ISO 8601 timestamp")
    at = local.parse(value)
    clock_time = value[11:]
    if not clock_time:
        raise ValueError("must have a time of day, such as 2026-12-24T10:00:00")
    return Moment(within_years(at), None if set(clock_time) & set("Zz+- ") else datetime.fromisoformat(value))


def _moment(value: object, info: ValidationInfo) -> Moment:
    assert info.context is not None
    return moment(value, info.context["zone"])


def _day(value: object) -> date:
    if not isinstance(value, str):
        raise ValueError("must be a date written YYYY-MM-DD")
    day = parse_date(value)
    if not YEARS[0] <= day.year <= YEARS[1]:
        raise ValueError(f"must lie between the years {YEARS[0]} and {YEARS[1]}")
    return day


def _time(value: object) -> time:
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise ValueError("must be a time of day written HH:MM, from 00:00 to 23:59")
    return time.fromisoformat(value)


def _slug(text: str) -> str:
    if not _SLUG.fullmatch(text):
        raise ValueError("must be lower-case words joined by hyphens")
    return text


def _language(text: str) -> str:
    if not _LANGUAGE.fullmatch(text):
        raise ValueError("must be a language code, such as en or pt-BR")
    return text


def _url(text: str) -> str:
    if not single_line(text).startswith(("https://", "http://")):
        raise ValueError("must begin with https:// or http://")
    return text


def _code(text: str) -> str:
    """Normalize a gift card code: stripped, in capitals."""
    text = normalise_code(single_line(text))
    if len(text) < CODE_LENGTH_MIN:
        raise ValueError(f"must have at least {CODE_LENGTH_MIN} characters")
    return text


def _unless_enough(value: object, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
    """Validate an entry, unless enough problems were found: then the document is refused in any case."""
    assert info.context is not None
    count = info.context["problems"]
    if count > PROBLEMS_MAX:
        return value
    try:
        return validate(value)
    except ValidationError as error:
        info.context["problems"] = count + error.error_count()  # with the problems within the entry
        raise


def _each_once(items: list[Any]) -> list[Any]:
    if len(set(items)) < len(items):
        raise ValueError("names the same one twice")
    return items


At = Annotated[Moment, PlainValidator(_moment)]
Day = Annotated[date, PlainValidator(_day)]
TimeOfDay = Annotated[time, PlainValidator(_time)]
Currency = Annotated[str, AfterValidator(currency)]
TimeZone = Annotated[str, AfterValidator(timezone)]
Seats = Annotated[int, Field(ge=0, le=limits.COUNT_MAX)]
Slug = Annotated[str, Field(max_length=limits.TEXT_LENGTH_MAX), AfterValidator(_slug)]
Language = Annotated[str, AfterValidator(_language)]
Url = Annotated[str, Field(max_length=URL_LENGTH_MAX), AfterValidator(_url)]
Code = Annotated[str, Field(max_length=limits.TEXT_LENGTH_MAX), AfterValidator(_code)]
Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


class _Object(BaseModel):
    """A strict model without extra keys, because an unknown key is probably a typing mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    @classmethod
    def defaults(cls, *left_out: str) -> dict[str, Any]:
        """Return the default values of the keys that may be left out."""
        fields = cls.model_fields.items()
        return {name: field.default for name, field in fields if not field.is_required() and name not in left_out}

    def given(self, *left_out: str) -> dict[str, Any]:
        """Return the keys that the document sets."""
        names = (name for name in type(self).model_fields if name in self.model_fields_set and name not in left_out)
        return {name: getattr(self, name) for name in names}


class Price(_Object):
    amount_minor: Annotated[int, Field(ge=0, le=limits.AMOUNT_MINOR_MAX)]
    currency: Currency


def _amount(value: object) -> object:
    """Take a whole number for an amount in the experience's currency."""
    if type(value) is not int:
        return value
    if not 0 <= value <= limits.AMOUNT_MINOR_MAX:
        raise ValueError(f"must lie between 0 and {limits.AMOUNT_MINOR_MAX}")
    return Price.model_construct(amount_minor=value, currency="")


Amount = Annotated[Price, BeforeValidator(_amount)]
"""A price, or a whole number of minor units in the experience's currency."""


OctoUnitType = Literal["ADULT", "YOUTH", "CHILD", "INFANT", "FAMILY", "SENIOR", "STUDENT", "MILITARY", "OTHER"]


class TierEntry(_Object):
    id: LineId
    name: Name
    price: Price
    seats_per_unit: Annotated[int, Field(ge=1, le=limits.COUNT_MAX)] = 1
    octo_unit_type: OctoUnitType | None = None
    """Its type for resellers that speak OCTO; without one the first tier is ADULT, and the others are OTHER."""


class AddOnEntry(_Object):
    id: LineId
    label: Name
    price: Price


class TextsEntry(_Object):
    """Texts of an experience in another language. A text that is left out is shown as the experience has it."""

    title: Name | None = None
    excerpt: LongText | None = None
    meeting_point: LongText | None = None
    what_to_bring: Annotated[list[ShortText], Field(max_length=limits.LINES_MAX)] | None = None
    terms: LongText | None = None
    price_tiers: Annotated[dict[LineId, Name], Field(max_length=limits.LINES_MAX)] = {}
    """Names by the id of the tier."""
    add_ons: Annotated[dict[LineId, Name], Field(max_length=limits.LINES_MAX)] = {}
    """Names by the id of the add-on."""


class DepartureEntry(_Object):
    id: InputId | None = None
    starts_at: At
    ends_at: At | None = None
    seats_total: Seats
    price: Price | None = None
    """The price, for an experience without price tiers."""
    prices: Annotated[dict[LineId, Amount], Field(max_length=limits.LINES_MAX)] | None = None
    """Prices by tier. A tier that is left out keeps the price of the experience."""
    status: Literal["open", "closed", "cancelled"] = "open"


class Schedule(_Object):
    """The same departures on certain weekdays, from a first day to a last."""

    weekdays: Annotated[list[Weekday], Field(min_length=1, max_length=7), AfterValidator(_each_once)]
    times: Annotated[list[TimeOfDay], Field(min_length=1, max_length=1440), AfterValidator(_each_once)]
    first: Day = Field(alias="from")
    last: Day = Field(alias="to")
    seats_total: Seats


class ExperienceEntry(_Object):
    id: InputId | None = None
    slug: Slug
    title: Name
    is_published: bool = True
    excerpt: LongText | None = None
    duration_minutes: Annotated[int, Field(ge=1, le=DURATION_MINUTES_MAX)] | None = None
    difficulty: ShortText | None = None
    address: ShortText | None = None
    latitude: Annotated[float, Field(ge=-90, le=90)] | None = None
    longitude: Annotated[float, Field(ge=-180, le=180)] | None = None
    image_url: Url | None = None
    languages: Annotated[list[Language], Field(max_length=limits.LINES_MAX)] = []
    tags: Annotated[list[ShortText], Field(max_length=limits.LINES_MAX)] = []
    price_from: Price | None = None
    price_tiers: Annotated[list[TierEntry], Field(max_length=limits.LINES_MAX)] = []
    add_ons: Annotated[list[AddOnEntry], Field(max_length=limits.LINES_MAX)] = []
    min_participants: Annotated[int, Field(ge=1, le=limits.COUNT_MAX)] | None = None
    hours_before_booking_closes: Annotated[int, Field(ge=0, le=HOURS_MAX)] | None = None
    meeting_point: LongText | None = None
    """The way to the place, in words."""
    what_to_bring: Annotated[list[ShortText], Field(max_length=limits.LINES_MAX)] | None = None
    terms: LongText | None = None
    """Terms that guests see in mails and before they cancel or move a booking."""
    translations: Annotated[dict[Language, TextsEntry], Field(max_length=limits.LINES_MAX)] | None = None
    """Texts by language, for guests of other languages."""
    departures: list[Annotated[DepartureEntry, WrapValidator(_unless_enough)]] = []
    schedules: list[Annotated[Schedule, WrapValidator(_unless_enough)]] = []


class CustomerEntry(_Object):
    id: InputId | None = None
    email: Email
    name: Name
    phone: ShortText | None = None
    tags: Annotated[list[ShortText], Field(max_length=limits.LINES_MAX)] = []
    email_subscription: bool = False


class Contact(_Object):
    name: ShortText | None = None
    email: Email | None = None


class GiftCardEntry(_Object):
    id: InputId | None = None
    code: Code
    initial_amount: Price
    balance: Price | None = None
    """The balance of a new card; the initial amount by default."""
    is_active: bool = True
    valid_from: At | None = None
    expires_at: At | None = None
    purchaser: Contact | None = None
    recipient: Contact | None = None


class Document(_Object):
    timezone: TimeZone | None = None
    """The zone that the file was written in."""
    experiences: list[Annotated[ExperienceEntry, WrapValidator(_unless_enough)]] = []
    customers: list[Annotated[CustomerEntry, WrapValidator(_unless_enough)]] = []
    gift_cards: list[Annotated[GiftCardEntry, WrapValidator(_unless_enough)]] = []


_KEYS = sorted(
    {field.alias or name for model in _Object.__subclasses__() for name, field in model.model_fields.items()}
)

_OF_KEY = "[key]"
"""The last part of pydantic's path to a key of an object that is not a valid key."""

_MESSAGES = {
    "too_short": "must not be empty",
    "string_pattern_mismatch": "must be a UUID",
}
"""Messages by the type of pydantic's error, where a catalogue says more than `describe`."""


def _problem(error: ErrorDetails) -> Problem:
    path, kind = error["loc"], error["type"]
    if path and path[-1] == _OF_KEY:
        path = path[:-1]
    last = str(path[-1]) if path else ""
    if last.endswith(_TWICE):
        return Problem(pointer(*path[:-1], last.rstrip(_TWICE)), "is written twice")
    if kind == "extra_forbidden":
        return Problem(pointer(*path), f"is not a known key{did_you_mean(last, _KEYS)}")
    if kind == "value_error":
        return Problem(pointer(*path), str(error["ctx"]["error"]))
    return Problem(pointer(*path), _MESSAGES.get(kind) or describe(error))


# Reading ---------------------------------------------------------------------------------------------------------


def parse(text: bytes, *, suffix: str = ".json") -> Any:
    """Parse a catalogue file: TOML for the suffix `.toml`, else JSON.

    Raises:
        InvalidCatalogue: it cannot be read, with line and column where the reader names them.
    """
    try:
        decoded = text.decode("utf-8-sig")
        if suffix.lower() == ".toml":
            return _from_toml(tomllib.loads(decoded))
        return json.loads(decoded, object_pairs_hook=_from_pairs, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        message = f"is not UTF-8: byte {error.start} cannot be read"
    except json.JSONDecodeError as error:
        message = f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
    except RecursionError:
        message = "is nested too deeply"
    except ValueError as error:
        message = f"cannot be read: {error}"
    raise InvalidCatalogue([Problem("", message)])


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _from_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if not key.isascii() and any("\ud800" <= character <= "\udfff" for character in key):
            raise ValueError("a key is not valid Unicode")
        values[key + _TWICE if key in values else key] = value
    return values


def _from_toml(value: Any) -> Any:
    """Convert the dates and times of TOML into texts, as JSON has them."""
    if isinstance(value, dict):
        return {key: _from_toml(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_from_toml(item) for item in value]
    if isinstance(value, time):
        return value.isoformat("seconds" if value.second else "minutes")
    return value.isoformat() if isinstance(value, date) else value


def read(document: object, local: Zone) -> tuple[Document | None, Iterator[Problem]]:
    """Validate the shape, and return the document, or None, with the first problems."""
    try:
        return Document.model_validate(document, context={"zone": local, "problems": 0}), iter(())
    except ValidationError as error:
        return None, map(_problem, error.errors(include_url=False, include_input=False))
