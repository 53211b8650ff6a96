"""For any bytes in a request the result is a delivery or a WebhookVerificationError; signed requests verify."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webhook_verify import Verifier, WebhookVerificationError, is_valid, parse_header, sign
from webhook_verify.__main__ import main
from webhook_verify.headers import select

SECRET = "whsec_fuzz"
NOW = 1_780_300_000
VERIFIER = Verifier([SECRET, "whsec_other"], clock=lambda: NOW)

texts = st.text(st.characters(), max_size=60)  # lone surrogates included
secrets = (
    st.text(st.characters(exclude_categories=["Cs", "Z", "Cc"]), max_size=100)
    .map("whsec_{}".format)
    .filter(lambda text: text.split() == [text])
)
names = st.sampled_from(["Svc-Signature", "svc-event-id", "SVC-EVENT-TYPE", "Svc-Delivery-Id", "HTTP_SVC_SIGNATURE"])
elements = st.one_of(
    st.sampled_from([f"t={NOW}", "v1=" + "a" * 64, "v1=" + "A" * 64, "v1=", "t", "v1", "=", "t=", "t=-1", "v2=x"]),
    st.builds("{}={}".format, st.sampled_from(["t", "v1", " t", "v1 "]), texts),
    texts,
)
signature_values = st.one_of(texts, st.lists(elements, max_size=20).map(",".join))
values = st.one_of(signature_values, st.binary(), st.lists(texts, max_size=3), st.integers(), st.none())
pairs = st.lists(st.tuples(st.one_of(names, texts, st.binary(max_size=20)), values), max_size=8)
headers_like = st.one_of(st.none(), signature_values, pairs, pairs.map(dict))
bodies = st.one_of(st.binary(max_size=500), texts)


def settled(examples: int) -> Any:
    """Return settings that are reproducible and have no deadline, which a busy machine would miss."""
    return settings(max_examples=examples, deadline=None, database=None)


@pytest.mark.exhaustive
@settled(400)
@given(body=bodies, headers=headers_like)
def test_no_request_makes_anything_but_a_verification_error(body: bytes | str, headers: Any) -> None:
    with pytest.raises(WebhookVerificationError) as caught:
        VERIFIER.verify(body, headers)
    assert str(caught.value)


@pytest.mark.exhaustive
@settled(300)
@given(value=signature_values)
def test_a_header_is_read_or_refused(value: str) -> None:
    with suppress(WebhookVerificationError):
        parsed = parse_header(value)
        assert 0 <= parsed.timestamp < 10**12
        assert 1 <= len(parsed.signatures) <= 16


@pytest.mark.exhaustive
@settled(200)
@given(body=bodies, headers=st.dictionaries(names, values, max_size=5))
def test_a_signed_body_with_any_other_headers_is_accepted_or_refused(body: bytes | str, headers: Any) -> None:
    with suppress(WebhookVerificationError):
        delivery = VERIFIER.verify(body, {**headers, "Svc-Signature": sign(body, SECRET, timestamp=NOW)})
        assert delivery.secret_index == 0
        assert delivery.payload == (body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass"))
        delivery.json()


@settled(300)
@given(body=bodies, secret=secrets, timestamp=st.integers(0, 10**12 - 1))
def test_signed_request_verifies(body: bytes | str, secret: str, timestamp: int) -> None:
    assert is_valid(body, sign(body, secret, timestamp=timestamp), secret, now=timestamp)


@pytest.mark.exhaustive
@settled(300)
@given(body=st.binary(max_size=200), data=st.data())
def test_altered_request_is_rejected(body: bytes, data: st.DataObject) -> None:
    header = sign(body, SECRET, timestamp=NOW)
    altered = data.draw(st.binary(max_size=200).filter(lambda other: other != body))
    assert not is_valid(altered, header, SECRET, now=NOW)
    position = data.draw(st.integers(len(header) - 64, len(header) - 1))
    digit = data.draw(st.sampled_from("0123456789abcdef").filter(lambda other: other != header[position]))
    assert not is_valid(body, header[:position] + digit + header[position + 1 :], SECRET, now=NOW)


@settled(200)
@given(event_id=st.text(max_size=30), event_type=st.text(max_size=30), data=st.data())
def test_headers_agree_with_the_body_exactly_when_they_say_the_same(
    event_id: str, event_type: str, data: st.DataObject
) -> None:
    separators = data.draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    body = json.dumps({"id": event_id, "type": event_type, "x": {"id": "a", "type": "b"}}, separators=separators)
    header_id = data.draw(st.one_of(st.just(event_id), texts, st.sampled_from([body[7:20], "a"])))
    headers = {"Svc-Signature": sign(body, SECRET, timestamp=NOW), "Svc-Event-Id": header_id}
    headers |= {"Svc-Event-Type": event_type, "Svc-Delivery-Id": "d"}
    assert is_valid(body, headers, SECRET, now=NOW) is (header_id == event_id)


@pytest.mark.exhaustive
@settled(200)
@given(headers=headers_like)
def test_headers_are_found_or_refused(headers: Any) -> None:
    with suppress(WebhookVerificationError):
        assert len(select(headers)) == 4


@settled(50)
@given(body=st.binary(max_size=100), header=st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
def test_command_verifies_or_prints_the_reason(
    body: bytes, header: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("delivery")
    (folder / "secret").write_text(SECRET, encoding="utf-8")
    (folder / "body").write_bytes(body)
    assert main([f"--secret-file={folder / 'secret'}", f"--header={header}", str(folder / "body")]) == 11
