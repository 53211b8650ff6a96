"""Finds the Svc-* headers of a request in the header objects of web frameworks.

The headers may be a mapping (with keys in any case, or spelt as in a WSGI environ), pairs of str or bytes as in ASGI,
or only the value of the signature header. Values may be str, bytes, or lists of str.
"""

from __future__ import annotations

from webhook_verify.errors import WebhookVerificationError
from webhook_verify.signature import DELIVERY_ID_HEADER, EVENT_ID_HEADER, EVENT_TYPE_HEADER, SIGNATURE_HEADER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, Optional, Union

    HeadersLike = Union[Mapping[str, Any], Iterable[tuple[Any, Any]]]
    Selected = tuple[Optional[str], Optional[str], Optional[str], Optional[str]]
else:
    HeadersLike = object


def select(headers: Any) -> Selected:
    """Return the values of Svc-Signature, Svc-Event-Id, Svc-Event-Type and Svc-Delivery-Id; None for absent ones.

    Several values of one header are joined with commas, as HTTP prescribes.
    """
    get = getattr(headers, "get", None)
    if get is None:
        return (headers or None, *_NO_MORE) if headers is None or isinstance(headers, str) else _from_pairs(headers)
    # The usual request has all four, in a mapping that finds them under the names in the request.
    signature, event_id = get(SIGNATURE_HEADER), get(EVENT_ID_HEADER)
    event_type, delivery_id = get(EVENT_TYPE_HEADER), get(DELIVERY_ID_HEADER)
    if type(signature) is type(event_id) is type(event_type) is type(delivery_id) is str:
        return signature or None, event_id, event_type, delivery_id
    return _from_pairs(headers.items())


def _from_pairs(pairs: Iterable[tuple[Any, Any]]) -> Selected:
    values: list[str | None] = [None] * 4
    try:
        for name, value in pairs:
            position = _POSITIONS.get(name.lower())
            if position is not None and value is not None:
                text, before = _text(value), values[position]
                values[position] = text if before is None else f"{before},{text}"
    except (AttributeError, TypeError, ValueError):
        pass
    else:
        signature, event_id, event_type, delivery_id = values
        return signature or None, event_id, event_type, delivery_id
    raise TypeError("headers must be a mapping, or pairs of name and value, with names of str or bytes")


_NO_MORE = (None, None, None)
_NAMES = (SIGNATURE_HEADER, EVENT_ID_HEADER, EVENT_TYPE_HEADER, DELIVERY_ID_HEADER)
_POSITIONS = {
    spelling: position
    for position, header in enumerate(map(str.lower, _NAMES))
    for spelling in (header, header.encode(), "http_" + header.replace("-", "_"))
}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, (list, tuple)):
        return ",".join(map(_text, value))
    raise WebhookVerificationError("header_malformed")
