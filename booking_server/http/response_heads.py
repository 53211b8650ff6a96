"""Heads of ordinary responses, checked and written as one text.

uvicorn looks at each field by itself, at its name and its value with a regular expression each. That was a tenth of the
event loop's work for a short response.
"""

import re
from collections.abc import Iterable, Sequence

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

Field = tuple[bytes, bytes]

_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
"""A name in lower case, which uvicorn sends as it is."""
_SENDABLE = bytes({*range(256)} - {*range(32), 127} | {9})
"""The bytes that a value may have, by uvicorn's rules."""
_KNOWN_MAX = 256
_known_names: set[bytes] = set()
"""Valid names. A response has names that the program chose: few, and the same ones again and again."""
_DECIDES_FRAMING = frozenset({b"connection", b"transfer-encoding"})


def known_length_head(status: int, fields: Sequence[Field]) -> tuple[bytes, int] | None:
    """Return the head of a response and the length of its body.

    None for a response that is left to uvicorn: one whose length or connection is its own matter, or with a field that
    is not valid.
    """
    by_name = dict(fields)
    length = by_name.get(b"content-length", b"")
    if not length.isdigit() or not _DECIDES_FRAMING.isdisjoint(by_name) or not _are_names(by_name.keys()):
        return None
    lines = b"\r\n".join([b": ".join(field) for field in fields]) + b"\r\n"
    if lines.translate(None, _SENDABLE) != b"\r\n" * len(fields):  # a control character within a value
        return None
    return b"%b%b\r\n" % (STATUS_LINE[status], lines), int(length)


def _are_names(names: Iterable[bytes]) -> bool:
    if _known_names.issuperset(names):
        return True
    found = {name for name in names if _NAME.fullmatch(name)}
    if len(_known_names) < _KNOWN_MAX:
        _known_names.update(found)
    return found.issuperset(names)
