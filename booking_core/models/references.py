"""The names and notes that an integrator keeps on a resource: an external reference, and metadata."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo

from booking_core.models import limits
from booking_core.models.base import NOTE_PATTERN, SINGLE_LINE, multi_line, single_line
from booking_core.models.reasons import Fault

METADATA_KEY_PATTERN = rf"^[A-Za-z0-9_.:-]{{1,{limits.METADATA_KEY_LENGTH_MAX}}}$"
_KEY = re.compile(METADATA_KEY_PATTERN, re.ASCII)


def _metadata(entries: dict[str, str]) -> dict[str, str]:
    if not all(map(_KEY.fullmatch, entries)):
        longest = limits.METADATA_KEY_LENGTH_MAX
        message = f"has a key other than 1 to {longest} characters of A-Z, a-z, 0-9, '_', '.', ':' and '-'"
        raise Fault("wrong_format", message)
    length = sum(len(key) + len(value) for key, value in entries.items())
    if length > limits.METADATA_LENGTH_MAX:
        raise Fault("too_long", f"has more than {limits.METADATA_LENGTH_MAX} characters in all")
    return entries


def _needs_reference(is_wanted: bool, info: ValidationInfo) -> bool:
    # An invalid reference is missing here, and has its own error.
    if is_wanted and info.data.get("external_reference", "") is None:
        raise Fault("needs_external_reference", "needs external_reference")
    return is_wanted


ExternalReference = Annotated[
    str,
    Field(min_length=1, max_length=limits.EXTERNAL_REFERENCE_LENGTH_MAX, json_schema_extra=SINGLE_LINE),
    AfterValidator(single_line),
]
"""The name of a resource in the integrator's own system."""

UniqueReference = Annotated[bool, AfterValidator(_needs_reference)]
"""The wish that no other resource of the organization has the `external_reference`, a field declared before it."""

MetadataValue = Annotated[
    str,
    Field(max_length=limits.METADATA_VALUE_LENGTH_MAX, json_schema_extra={"pattern": NOTE_PATTERN}),
    AfterValidator(multi_line),
]
Metadata = Annotated[
    dict[str, MetadataValue],
    Field(
        max_length=limits.METADATA_KEYS_MAX,
        json_schema_extra={
            "propertyNames": {"pattern": METADATA_KEY_PATTERN},
            "examples": [{"channel": "acme", "order": "A-1042"}],
        },
    ),
    AfterValidator(_metadata),
]
"""Texts by name, for the integrator alone: the service reads none of them."""
