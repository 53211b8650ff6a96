from __future__ import annotations

from email import message_from_string
from typing import Any

import pytest

from webhook_verify import WebhookVerificationError
from webhook_verify.headers import select

HEADERS = {
    "Svc-Signature": "t=1,v1=a",
    "Svc-Event-Id": "evt-1",
    "Svc-Event-Type": "ping",
    "Svc-Delivery-Id": "attempt-1",
}


@pytest.mark.parametrize(
    "headers",
    [
        HEADERS,
        {name.lower(): value for name, value in HEADERS.items()},
        {name.upper(): value for name, value in HEADERS.items()},
        {"HTTP_" + name.upper().replace("-", "_"): value for name, value in HEADERS.items()},
        {name: [value] for name, value in HEADERS.items()},
        {name: value.encode() for name, value in HEADERS.items()},
        {name.lower().encode(): value.encode() for name, value in HEADERS.items()},
        list(HEADERS.items()),
        [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()],
        iter(HEADERS.items()),
        message_from_string("".join(f"{name.lower()}: {value}\n" for name, value in HEADERS.items())),
    ],
    ids=["as sent", "lower", "upper", "environ", "lists", "bytes", "all bytes", "pairs", "asgi", "iterator", "message"],
)
def test_the_four_headers_are_found_in(headers: Any) -> None:
    assert select(headers) == tuple(HEADERS.values())


@pytest.mark.parametrize(
    ("headers", "signature"),
    [
        ("t=1,v1=a", "t=1,v1=a"),
        *((absent, None) for absent in (None, "", {}, [], {"Svc-Signature": ""}, {"Svc-Signature": None})),
        ({"Host": "example.com", "svc-signature": "x", "Cookie": 5}, "x"),
        ([("Svc-Signature", "t=1"), ("svc-signature", "v1=a")], "t=1,v1=a"),
        ({"Svc-Signature": ["t=1", "v1=a"]}, "t=1,v1=a"),
    ],
)
def test_the_signature_alone_is_found_in(headers: Any, signature: str | None) -> None:
    assert select(headers) == (signature, None, None, None)


@pytest.mark.parametrize("value", [5, object(), {"a": 1}, [5]], ids=["number", "object", "dict", "list"])
def test_a_value_that_is_no_text_is_malformed(value: Any) -> None:
    with pytest.raises(WebhookVerificationError) as caught:
        select({"Svc-Signature": value})
    assert caught.value.reason == "header_malformed"


@pytest.mark.parametrize("headers", [5, Ellipsis, b"t=1,v1=a", [1], [("a",)], ["ab c"], [(1, "x")], {1: "x"}], ids=repr)
def test_invalid_headers_object_raises_type_error(headers: Any) -> None:
    with pytest.raises(TypeError, match="headers must be"):
        select(headers)
