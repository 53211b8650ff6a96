from __future__ import annotations

import base64
import hashlib
import hmac
import time
from typing import Any

import pytest

from webhook_verify import WebhookVerificationError, generate_secret, parse_header, sign, standard_headers


@pytest.mark.parametrize("length", [7, 63, 64, 65, 200])
def test_the_signature_is_an_hmac_keyed_with_the_whole_secret(length: int, body: bytes) -> None:
    secret = "whsec_".ljust(length, "k")
    expected = hmac.new(secret.encode(), b"1780300000." + body, hashlib.sha256).hexdigest()
    assert sign(body, secret, timestamp=1_780_300_000) == f"t=1780300000,v1={expected}"


def test_every_secret_signs_in_its_place(secret: str, other_secret: str) -> None:
    first, second = (sign(b"{}", one, timestamp=5).partition(",")[2] for one in (secret, other_secret))
    assert sign(b"{}", [secret, other_secret], timestamp=5) == f"t=5,{first},{second}"


def test_text_is_signed_as_utf_8(secret: str) -> None:
    assert sign("blåbær", secret, timestamp=5) == sign("blåbær".encode(), secret, timestamp=5)


def test_timestamp_of_a_signature_defaults_to_now(secret: str) -> None:
    assert abs(parse_header(sign(b"", secret)).timestamp - time.time()) < 5


@pytest.mark.parametrize(
    ("timestamp", "error", "message"),
    [(-1, ValueError, "out of range"), (10**12, ValueError, "out of range"), (1.5, TypeError, "whole unix seconds")],
)
def test_a_timestamp_that_no_receiver_could_read_is_not_signed(
    secret: str, timestamp: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        sign(b"", secret, timestamp=timestamp)


def test_more_secrets_than_a_receiver_looks_at_are_not_signed_with() -> None:
    with pytest.raises(ValueError, match="16"):
        sign(b"", [generate_secret() for _ in range(17)])


EMPTY_OR_SPACED = ["", " ", "\n", [], ["whsec_a", ""], "whsec_a\n", " whsec_a", "whsec a"]
NOT_TEXT = [None, 5, b"whsec_a", bytearray(b"a"), [b"whsec_a"], [None]]


@pytest.mark.parametrize(
    ("error", "secrets"), [(ValueError, EMPTY_OR_SPACED), (TypeError, NOT_TEXT)], ids=["empty or spaced", "not text"]
)
def test_a_secret_is_text_without_white_space(error: type[Exception], secrets: list[Any]) -> None:
    for secret in secrets:
        with pytest.raises(error):
            sign(b"", secret)


@pytest.mark.parametrize(("secret", "problem"), [("whsec_hush\n", "white space"), ("svc_hush", "begin with whsec_")])
def test_no_complaint_about_a_secret_shows_it(secret: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        sign(b"", secret)
    assert "hush" not in str(caught.value)


def test_a_new_secret_is_32_random_bytes_behind_its_prefix() -> None:
    first, second = generate_secret(), generate_secret()
    assert first != second
    assert first.startswith("whsec_")
    assert len(base64.b64decode(first[6:], validate=True)) == 32


def test_a_header_is_taken_apart(secret: str, other_secret: str) -> None:
    parsed = parse_header(sign(b"{}", [secret, other_secret], timestamp=7))
    assert parsed.timestamp == 7
    assert [len(signature) for signature in parsed.signatures] == [64, 64]
    assert repr(parsed).startswith("ParsedSignature(timestamp=7, signatures=('")
    with pytest.raises(WebhookVerificationError) as caught:
        parse_header("")
    assert caught.value.reason == "header_malformed"


def test_a_header_has_at_most_4096_characters(secret: str) -> None:
    header = sign(b"{}", secret, timestamp=7) + ","
    assert parse_header(header.ljust(4096, "x")).timestamp == 7
    with pytest.raises(WebhookVerificationError) as caught:
        parse_header(header.ljust(4097, "x"))
    assert caught.value.reason == "header_too_long"


def test_standard_headers_are_signed_with_the_decoded_secret(secret: str) -> None:
    digest = hmac.new(bytes(range(32)), b"evt-1.1780300000.{}", hashlib.sha256).digest()
    assert standard_headers(b"{}", secret, message_id="evt-1", timestamp=1_780_300_000) == {
        "webhook-id": "evt-1",
        "webhook-timestamp": "1780300000",
        "webhook-signature": "v1," + base64.b64encode(digest).decode(),
    }


def test_standard_headers_carry_one_signature_per_secret(secret: str, other_secret: str) -> None:
    headers = standard_headers(b"{}", [secret, other_secret], message_id="evt-1")
    assert [part.partition(",")[0] for part in headers["webhook-signature"].split(" ")] == ["v1", "v1"]


@pytest.mark.parametrize("secret", ["whsec_", "whsec_a", "whsec_a-b", "whsec_c2Vjcm_0"])
def test_a_secret_that_does_not_decode_makes_no_standard_headers(secret: str) -> None:
    with pytest.raises(ValueError, match="base64"):
        standard_headers(b"{}", secret, message_id="evt-1")


@pytest.mark.parametrize("message_id", ["", "a.b"])
def test_a_message_id_that_could_be_read_two_ways_is_refused(secret: str, message_id: str) -> None:
    with pytest.raises(ValueError, match="message_id"):
        standard_headers(b"{}", secret, message_id=message_id)


def test_the_standard_webhooks_library_accepts_our_headers(secret: str, other_secret: str) -> None:
    standardwebhooks = pytest.importorskip("standardwebhooks")
    headers = standard_headers('{"a":"å"}', [other_secret, secret], message_id="evt-1")
    assert standardwebhooks.Webhook(secret).verify('{"a":"å"}'.encode(), headers) == {"a": "å"}
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(secret).verify(b'{"a":"b"}', headers)
