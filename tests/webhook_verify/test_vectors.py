"""The test vectors, checked against this package and, for accepted cases, against HMAC itself."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import pytest

from webhook_verify import WebhookVerificationError, parse_header, verify
from webhook_verify.errors import EXPLANATIONS
from webhook_verify.testing import load_vectors

VECTORS = load_vectors()
FIELDS = {"name", "secrets", "headers", "body", "now", "tolerance", "expect"}


def body_of(vector: dict[str, Any]) -> bytes:
    body = vector["body"]
    if "base64" in body:
        return base64.b64decode(body["base64"], validate=True)
    return str(body["text"] if "text" in body else body["repeat"] * body["times"]).encode()


def outcome(vector: dict[str, Any]) -> tuple[str, int | str]:
    headers = [(name, value.encode("latin-1")) for name, value in vector["headers"]]
    tolerance = float("inf") if vector["tolerance"] is None else vector["tolerance"]
    try:
        delivery = verify(body_of(vector), headers, vector["secrets"], tolerance=tolerance, now=vector["now"])
    except WebhookVerificationError as error:
        return "reject", error.reason
    return "accept", delivery.secret_index


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_vectors(vector: dict[str, Any]) -> None:
    expected = vector["secret_index"] if vector["expect"] == "accept" else vector["reason"]
    assert outcome(vector) == (vector["expect"], expected)


@pytest.mark.parametrize(
    "vector", [vector for vector in VECTORS if vector["expect"] == "accept"], ids=lambda vector: vector["name"]
)
def test_an_accepted_signature_is_the_hmac_of_timestamp_dot_body(vector: dict[str, Any]) -> None:
    value = {name.lower(): value for name, value in vector["headers"]}["svc-signature"]
    timestamp = next(part.strip()[2:] for part in value.split(",") if part.strip().startswith("t="))
    key = vector["secrets"][vector["secret_index"]].encode()
    expected = hmac.new(key, timestamp.encode() + b"." + body_of(vector), hashlib.sha256).hexdigest()
    assert expected in parse_header(value).signatures


def test_there_are_vectors_of_both_kinds_and_of_every_reason() -> None:
    assert len(VECTORS) >= 60
    assert {vector.get("reason") for vector in VECTORS} == {*EXPLANATIONS, None}


def test_every_vector_has_the_documented_fields() -> None:
    for vector in VECTORS:
        fields = FIELDS | ({"secret_index"} if vector["expect"] == "accept" else {"reason"})
        assert fields <= set(vector) <= fields | {"why"}
    assert len({vector["name"] for vector in VECTORS}) == len(VECTORS)
