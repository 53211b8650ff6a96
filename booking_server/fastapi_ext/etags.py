"""Entity tags of responses, and 304 for a client that has the body already (RFC 9110, section 13.1.2).

A tag is a hash of the body: no column changes with everything that a body shows, such as held seats or the guest's
link. So a 304 costs the statements of its 200, and neither the transfer nor the parsing of the body (decisions/0028).
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from booking_core.records.idempotency import Answer

F = TypeVar("F", bound=Callable[..., Any])

_IF_NONE_MATCH = b"if-none-match"
_TAG_DIGITS = 32
_MARK = "_is_tagged"
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {304: {"description": "The client has this body: `If-None-Match`."}}
"""The declaration in `responses=` of an operation that is `tagged`."""


@dataclass(frozen=True, slots=True)
class TaggedAnswer(Answer):
    """An answer with its entity tag."""

    etag: str = ""


def tagged(operation: F) -> F:
    """Decorate a path operation that reads: its response has an ETag, and answers `If-None-Match`."""
    setattr(operation, _MARK, True)
    return operation


def is_tagged(operation: object) -> bool:
    """Return whether the path operation is decorated with `tagged`."""
    return getattr(operation, _MARK, False) is True


def answer(result: object, headers: Iterable[tuple[bytes, bytes]]) -> TaggedAnswer:
    """Return the answer with its tag: 304 without a body if the request's `If-None-Match` has the tag, else 200."""
    body = result if isinstance(result, bytes) else orjson.dumps(result)
    # Processors have instructions for this hash: ten kilobytes of availability take half as long as with BLAKE2.
    etag = f'"{hashlib.sha256(body, usedforsecurity=False).hexdigest()[:_TAG_DIGITS]}"'
    sent = [value for name, value in headers if name == _IF_NONE_MATCH]
    if sent and _matches(b",".join(sent).decode("latin-1"), etag):
        return TaggedAnswer(304, b"", etag=etag)
    return TaggedAnswer(200, body, etag=etag)


def _matches(if_none_match: str, etag: str) -> bool:
    """Compare weakly, since a proxy that compresses the body weakens the tag. A tag of ours holds no comma."""
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return "*" in tags or etag in tags
