"""The base classes of all models, and their scalar types with their strictness (decision R7)."""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from enum import StrEnum
from functools import reduce
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeAlias, TypeVar, cast

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue, SkipJsonSchema
from pydantic_core import CoreSchema, InitErrorDetails

from booking_core.models import docstrings, limits
from booking_core.models.reasons import Fault
from booking_core.models.suggestions import missing_attribute

UUID_PATTERN = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
"""The canonical form, any case. Braces, `urn:uuid:` and missing hyphens are refused (decision R7)."""
_UUID = re.compile(UUID_PATTERN, re.ASCII)


def is_id(text: str) -> bool:
    """Return True if the text is a UUID in the canonical form. Any other text in a UUID column is an error in
    PostgreSQL."""
    return _UUID.fullmatch(text) is not None


_CONTROL_PATTERN = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"
_BLANK_PATTERN = r"\u0020\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_ATOM_PATTERN = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL_PATTERN = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
SINGLE_LINE_PATTERN = f"^[^{_CONTROL_PATTERN}]*$"
_TRIMMED_PATTERN = f"^[^{_CONTROL_PATTERN}]*[^{_CONTROL_PATTERN}{_BLANK_PATTERN}][^{_CONTROL_PATTERN}]*$"
NOTE_PATTERN = r"^[^\u0000-\u0008\u000b\u000c\u000e-\u001f]*$"
MAILBOX_PATTERN = rf"^{_ATOM_PATTERN}(\.{_ATOM_PATTERN})*@{_LABEL_PATTERN}(\.{_LABEL_PATTERN})+$"
"""The checks of text as patterns, for the OpenAPI document. All are exact but the last: internationalised addresses are
accepted too, and no expression that every engine reads could describe them."""


LANGUAGE_TAG_PATTERN = r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}$"
"""A language tag of BCP 47: a language, and perhaps a script and a region."""


_REPR_LENGTH = 200
"""Characters of the fields in a repr."""


def _short(value: Any) -> str:
    """Return a value as a repr has it: a member of an enum as its text, an instant in ISO 8601, an amount in words."""
    if isinstance(value, StrEnum):
        return repr(value.value)
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, BaseModel) else repr(value)


def _attribute(owner: Any, name: str) -> Any:
    return getattr(owner, name, None)


def _is_short(value: Any) -> bool:
    """Return True for all but a model that is described by its fields."""
    return not isinstance(value, Resource) or type(value).__str__ is not Resource.__str__


def _hash(model: BaseModel) -> int:
    """Return a hash that equal models share, also where a field holds a list."""
    fields = model.__dict__
    if isinstance(identity := fields.get("id"), str):
        return hash((type(model), identity))
    return hash((type(model), *(_hashable(fields[name]) for name in type(model).model_fields)))


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    return frozenset((key, _hashable(item)) for key, item in value.items()) if isinstance(value, dict) else value


class _Model(BaseModel):
    """A model whose schema describes the fields by their docstrings."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        json_schema = handler(schema)
        properties = handler.resolve_ref_schema(json_schema).get("properties", {})
        for name, text in docstrings.of_fields(cls).items():
            alias = cls.model_fields[name].validation_alias or name
            property_name = alias.choices[0] if isinstance(alias, AliasChoices) else alias
            if property_name in properties:  # a field can be left out of the schema
                properties[property_name]["description"] = text
        return json_schema


class Resource(_Model):
    """A part of the service's answers: frozen, and open: a field added later is kept.

    Its repr is a line with the identifying fields, without personal data and later fields: it appears in logs and error
    reports.
    """

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True, hide_input_in_errors=True)

    repr_paths: ClassVar[Sequence[str]] = ()
    """The fields of the repr, also of nested models; by default all fields of the model."""

    def __hash__(self) -> int:
        return _hash(self)

    def __repr__(self) -> str:
        parts, room = list[str](), _REPR_LENGTH
        for name, text in self._described():
            room -= len(name) + len(text)
            if room < 0:
                parts.append("...")
                break
            parts.append(f"{name}={text}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def __str__(self) -> str:
        return repr(self)

    def _described(self) -> Iterator[tuple[str, str]]:
        """Yield the fields of the repr: those that hold something short and not personal, and the names of others that
        came later."""
        fields = type(self).model_fields
        for path in self.repr_paths or [name for name, field in fields.items() if field.repr]:
            value = reduce(_attribute, path.split("."), cast("Any", self))
            if value is not None and not isinstance(value, (list, dict)) and _is_short(value):
                yield path, _short(value)
        yield from ((name, "...") for name in self.__pydantic_extra__ or ())

    if not TYPE_CHECKING:  # a type checker finds the missing fields

        def __getattr__(self, name: str) -> Any:
            with suppress(AttributeError):
                return super().__getattr__(name)
            raise missing_attribute(self, name)

    def to_json(self) -> dict[str, Any]:
        """Return the resource as the API's JSON, ready for `json.dumps`, without fields that the response lacked."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


def always_sent(*names: str) -> Callable[[dict[str, Any]], None]:
    """Return a `json_schema_extra` that declares fields as required although they have a default.

    The service sends them always. The default is for a client that reads responses of an earlier release.
    """

    def extend(schema: dict[str, Any]) -> None:
        required = {*schema.get("required", ()), *names}
        schema["required"] = [name for name in schema["properties"] if name in required]

    return extend


class Request(_Model):
    """Something a client sends: strict types, unknown fields ignored (decision R6), null the same as absent."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, defer_build=True, hide_input_in_errors=True)

    def __hash__(self) -> int:
        return _hash(self)


EnumT = TypeVar("EnumT", bound=StrEnum)

NameT = TypeVar("NameT", bound=str)

if TYPE_CHECKING:
    Open: TypeAlias = EnumT | NameT | str
else:

    class Open:
        """An enum on the reading side: a known value becomes its member, a value added later stays a string.

        `Open[Status, StatusName]` also names the values as literals, for editors that complete them and for checkers.
        """

        def __class_getitem__(cls, both: tuple[Any, Any]) -> Any:
            return Annotated[both[0] | str, Field(union_mode="left_to_right")]


_SURROGATES = frozenset(map(chr, range(0xD800, 0xE000)))
"""Halves of a character. JSON can name one alone, and no database stores it."""


def _refuse(text: str, forbidden: frozenset[str]) -> str:
    if not forbidden.isdisjoint(text):
        if _SURROGATES.isdisjoint(text):
            raise Fault("forbidden_character", "contains a control character")
        raise Fault("wrong_format", "is not valid Unicode")
    return text


# NUL breaks PostgreSQL, a line break in a name breaks a mail header, ESC writes to an operator's terminal.
_CONTROLS = frozenset(map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029))) | _SURROGATES
_NOTE_CONTROLS = frozenset(map(chr, range(0x20))) - frozenset("\t\n\r") | _SURROGATES


def single_line(text: str) -> str:
    """Validate a text of one line, and return it.

    Raises:
        Fault: it contains a control character, a line separator or half of a character.
    """
    return _refuse(text, _CONTROLS)


SINGLE_LINE = {"pattern": SINGLE_LINE_PATTERN}
"""The JSON schema of `single_line`."""


def multi_line(text: str) -> str:
    """Validate a text of several lines, and return it.

    Raises:
        Fault: it contains a C0 control other than TAB, LF and CR, or half of a character.
    """
    return _refuse(text, _NOTE_CONTROLS)


def _trimmed(text: str) -> str:
    text = text.strip()
    if not 1 <= len(text) <= limits.TEXT_LENGTH_MAX:
        message = f"must have 1 to {limits.TEXT_LENGTH_MAX} characters beside the blanks around it"
        raise Fault("too_long" if text else "too_short", message)
    return text


_ATOM = frozenset("!#$%&'*+-/=?^_`{|}~")
_USUAL = re.compile(r"[\w+-]+(\.[\w+-]+)*@([a-z0-9]+\.)+[a-z]+", re.ASCII)
"""The form of most addresses: a shortcut that takes an eighth of the time."""


def _is_letter(c: str) -> bool:
    """Return True for a letter, a digit, or a mark on one, of any script. Wide at signs and commas are excluded, since
    a mail server may convert them to plain ones."""
    return c.isalnum() or (c > "\x7f" and unicodedata.category(c)[0] == "M")


def _is_atom(text: str) -> bool:
    return bool(text) and all(_is_letter(c) or c in _ATOM for c in text)


def _is_label(text: str) -> bool:
    return bool(text) and text[0] != "-" != text[-1] and all(_is_letter(c) or c == "-" for c in text)


def mailbox(text: str) -> str:
    """Validate a plain mailbox, and return it: a dot-atom, an at sign, and a domain of at least two labels.

    Checked by splitting, so the time is linear in the length. Quoted local parts, comments, display names and lists
    are refused: a second mailbox hidden in a name would otherwise receive the guest's mail.

    Raises:
        Fault: it is anything else.
    """
    if not _USUAL.fullmatch(text) and not _is_mailbox(single_line(text)):
        raise Fault("wrong_format", "is not one e-mail address")
    return text


def _is_mailbox(text: str) -> bool:
    local, at, domain = text.rpartition("@")
    labels = domain.split(".")
    return bool(at) and len(labels) >= 2 and all(map(_is_label, labels)) and all(map(_is_atom, local.split(".")))


def email_key(email: str) -> str:
    """Normalise an e-mail address to a customer's key: NFC and case-folded (decision B5)."""
    return unicodedata.normalize("NFC", email).casefold()


Id = Annotated[str, WithJsonSchema({"type": "string", "format": "uuid"})]
"""A resource's UUID, in lower case."""

InputId = Annotated[
    str,
    StringConstraints(pattern=UUID_PATTERN, to_lower=True),
    WithJsonSchema({"type": "string", "format": "uuid", "pattern": UUID_PATTERN}),
]


def fault_at(model: type[BaseModel], field: str, fault: Fault) -> ValidationError:
    """Return the error of a model whose fields do not fit together, at one of them."""
    details = InitErrorDetails(type=fault, loc=(field,), input=None)
    return ValidationError.from_exception_data(model.__name__, [details])


class OfDeparture(Request):
    """A request that names a departure: by `departure_id`, or by `experience_date_id`, the name of the contract."""

    departure_id: Annotated[InputId, Field(validation_alias=AliasChoices("departure_id", "experience_date_id"))]
    """The departure's id from availability."""
    given_departure_id: SkipJsonSchema[Any] = Field(
        default=None, validation_alias="departure_id", exclude=True, repr=False
    )
    given_experience_date_id: SkipJsonSchema[Any] = Field(
        default=None, validation_alias="experience_date_id", exclude=True, repr=False
    )

    @model_validator(mode="after")
    def _has_one_name(self) -> Self:
        if self.given_departure_id is not None and self.given_experience_date_id is not None:
            problem = Fault("exactly_one", "is another name of experience_date_id: send one of them")
            raise fault_at(type(self), "departure_id", problem)
        return self


Count = Annotated[int, Field(ge=1, le=limits.COUNT_MAX)]
ShortText = Annotated[
    str,
    Field(max_length=limits.TEXT_LENGTH_MAX, json_schema_extra={"pattern": SINGLE_LINE_PATTERN}),
    AfterValidator(single_line),
]
LineId = Annotated[
    str,
    Field(min_length=1, max_length=limits.TEXT_LENGTH_MAX, json_schema_extra={"pattern": SINGLE_LINE_PATTERN}),
    AfterValidator(single_line),
]
LanguageTag = Annotated[str, Field(max_length=limits.LANGUAGE_TAG_LENGTH_MAX, pattern=LANGUAGE_TAG_PATTERN)]
Name = Annotated[
    str,
    # Counted without the blanks around it (decision B5), so not by the type itself.
    Field(json_schema_extra={"minLength": 1, "maxLength": limits.TEXT_LENGTH_MAX, "pattern": _TRIMMED_PATTERN}),
    AfterValidator(single_line),
    AfterValidator(_trimmed),
]
Email = Annotated[
    str,
    Field(max_length=limits.TEXT_LENGTH_MAX, json_schema_extra={"format": "email", "pattern": MAILBOX_PATTERN}),
    AfterValidator(mailbox),
]
Note = Annotated[
    str,
    Field(max_length=limits.NOTE_LENGTH_MAX, json_schema_extra={"pattern": NOTE_PATTERN}),
    AfterValidator(multi_line),
]
