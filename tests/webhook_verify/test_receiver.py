from __future__ import annotations

import copy
import json
import pickle
import traceback
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from webhook_verify import (
    DuplicateEvent,
    MemorySeenStore,
    PayloadError,
    VerifiedDelivery,
    Verifier,
    WebhookVerificationError,
    is_valid,
    sign,
    verify,
)


def refused(verifier: Verifier, body: Any, headers: Any, **options: Any) -> str:
    with pytest.raises(WebhookVerificationError) as caught:
        verifier.verify(body, headers, **options)
    return caught.value.reason


# Verifying


def test_an_authentic_delivery_comes_back_with_what_is_known_of_it(
    body: bytes, headers: dict[str, str], secret: str, now: int
) -> None:
    delivery = verify(body, headers, secret, now=now + 3)
    assert delivery.payload == body
    assert (delivery.timestamp, delivery.age, delivery.secret_index) == (now, 3, 0)
    assert (delivery.event_id, delivery.event_type) == ("evt-1", "booking.created")
    assert delivery.delivery_id == "attempt-1"
    assert delivery.json()["data"]["object"]["name"] == "Åse"


def test_the_clock_of_the_machine_is_used_when_no_time_is_given(body: bytes, secret: str) -> None:
    assert abs(verify(body, sign(body, secret), secret).age) < 5


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, bytes.decode], ids=lambda wrap: wrap.__name__)
def test_the_body_may_be_any_kind_of_bytes_or_text(
    wrap: Any, verifier: Verifier, body: bytes, headers: dict[str, str]
) -> None:
    delivery = verifier.verify(wrap(body), headers)
    assert type(delivery.payload) is bytes
    assert delivery.payload == body


@pytest.mark.parametrize("payload", [{}, [], None, 5, Ellipsis], ids=repr)
def test_a_parsed_body_is_a_mistake_that_is_named(payload: Any, verifier: Verifier, headers: dict[str, str]) -> None:
    with pytest.raises(TypeError, match="raw body"):
        verifier.verify(payload, headers)


def test_text_that_is_not_utf_8_does_not_match(verifier: Verifier, headers: dict[str, str]) -> None:
    assert refused(verifier, "\ud800", headers) == "signature_mismatch"


def test_is_valid_answers_where_verify_raises(
    body: bytes, headers: dict[str, str], secret: str, other_secret: str, now: int
) -> None:
    assert is_valid(body, headers, secret, now=now)
    assert not is_valid(body, headers, other_secret, now=now)
    assert not is_valid(body, headers, secret, now=now + 301)
    assert is_valid(body, headers, secret, now=now + 301, tolerance=301)
    assert not is_valid(body, None, secret)


def test_is_valid_raises_on_misuse(body: bytes, headers: dict[str, str], secret: str) -> None:
    with pytest.raises(TypeError):
        is_valid({}, headers, secret)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        is_valid(body, headers, "")


# Time


# The vectors have every other combination of tolerance and time, with its reason.
@pytest.mark.parametrize(("tolerance", "later"), [(300, -300.5), (300, float("nan")), (float("inf"), float("nan"))])
def test_a_time_too_new_by_half_a_second_is_refused(
    tolerance: float, later: float, body: bytes, headers: Any, secret: str, now: int
) -> None:
    assert not is_valid(body, headers, secret, tolerance=tolerance, now=now + later)


@pytest.mark.parametrize(("later", "reason"), [(0.5, "timestamp_too_old"), (-0.5, "timestamp_too_new")])
def test_half_a_second_is_too_much_without_a_tolerance(
    later: float, reason: str, body: bytes, headers: Any, secret: str, now: int
) -> None:
    assert refused(Verifier(secret, tolerance=0), body, headers, now=now + later) == reason


@pytest.mark.parametrize(
    ("error", "tolerances"),
    [(ValueError, (-1, -0.001, float("-inf"), float("nan"))), (TypeError, ("300", None, True))],
)
def test_a_tolerance_is_a_number_from_zero(error: Any, tolerances: Any, secret: str) -> None:
    for tolerance in tolerances:
        with pytest.raises(error, match="tolerance"):
            Verifier(secret, tolerance=tolerance)


# Secrets


@pytest.mark.parametrize("secrets", ["", "  ", [], ["", "whsec_a"], "whsec_a\n"])
def test_an_empty_secret_is_refused_before_any_request(secrets: Any) -> None:
    with pytest.raises(ValueError):
        Verifier(secrets)


def test_sixteen_secrets_are_enough(body: bytes, headers: dict[str, str], secret: str, now: int) -> None:
    assert Verifier([secret] * 16, clock=lambda: now).verify(body, headers)
    with pytest.raises(ValueError, match="more than 16 secrets"):
        Verifier([secret] * 17)


@pytest.mark.parametrize("secrets", ["svc_live_a", "WHSEC_a", ["whsec_a", "c2VjcmV0"]])
def test_a_secret_of_something_else_is_refused_before_any_request(secrets: Any) -> None:
    with pytest.raises(ValueError, match="does not begin with whsec_"):
        Verifier(secrets)


def test_secrets_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, body: bytes, secret: str, other_secret: str
) -> None:
    monkeypatch.setenv("BOOKING_WEBHOOK_SECRET", f" {other_secret} , {secret},\n")
    assert Verifier.from_env().verify(body, sign(body, secret)).secret_index == 1
    monkeypatch.setenv("HOOKS", secret)
    assert Verifier.from_env("HOOKS", tolerance=0, clock=lambda: 5).verify(body, sign(body, secret, timestamp=5))

    for value in ("", " , "):
        monkeypatch.setenv("BOOKING_WEBHOOK_SECRET", value)
        with pytest.raises(ValueError, match="BOOKING_WEBHOOK_SECRET"):
            Verifier.from_env()
    monkeypatch.delenv("BOOKING_WEBHOOK_SECRET")
    with pytest.raises(ValueError, match="BOOKING_WEBHOOK_SECRET"):
        Verifier.from_env()


@pytest.mark.parametrize("text", ["{0}\n{1}\n", "\ufeff{0}\r\n\r\n{1}\r\n", " {0},{1}"])
def test_secrets_come_from_a_file_with_or_without_newlines(
    text: str, tmp_path: Path, body: bytes, secret: str, other_secret: str
) -> None:
    file = tmp_path / "hook.secret"
    file.write_text(text.format(other_secret, secret), encoding="utf-8", newline="")
    for path in (file, str(file)):
        assert Verifier.from_file(path).verify(body, sign(body, secret)).secret_index == 1
    assert Verifier.from_file(file, tolerance=0, clock=lambda: 5).verify(body, sign(body, secret, timestamp=5))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "hook.secret holds no secret"),
        (b"\n", "holds no secret"),
        ("whsec_a".encode("utf-16"), "begin with whsec_"),
    ],
)
def test_a_file_without_a_secret_is_refused_before_any_request(content: bytes, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "hook.secret"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=problem):
        Verifier.from_file(file)
    with pytest.raises(FileNotFoundError):
        Verifier.from_file(tmp_path / "nothing")


def test_a_traceback_of_a_refused_secret_does_not_show_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hook.secret").write_text("svc_hush", encoding="utf-8")
    monkeypatch.setenv("BOOKING_WEBHOOK_SECRET", "svc_hush")
    for make in (Verifier.from_env, partial(Verifier.from_file, tmp_path / "hook.secret")):
        with pytest.raises(ValueError, match="begin with whsec_") as caught:
            make()
        frames = traceback.TracebackException.from_exception(caught.value, capture_locals=True).stack[1:]
        assert "hush" not in "".join(str(frame.locals) for frame in frames)


def test_no_repr_shows_a_secret_or_the_body(verifier: Verifier, body: bytes, headers: dict[str, str]) -> None:
    assert "whsec_" not in repr(verifier)
    assert "1 secrets" in repr(verifier)
    text = repr(verifier.verify(body, headers))
    assert "booking" not in text
    assert f"{len(body)} bytes" in text


# Body


def test_the_limit_of_a_body_is_checked_before_the_hash(verifier: Verifier, secret: str, now: int) -> None:
    body = b"a" * 4096
    assert verifier.verify(body, sign(body, secret, timestamp=now))
    assert refused(verifier, b"a" * 4097, None) == "body_too_large"
    with pytest.raises(ValueError, match="max_body_bytes"):
        Verifier(secret, max_body_bytes=0)
    assert Verifier(secret, max_body_bytes=1).max_body_bytes == 1


def test_unsigned_headers_may_be_absent(verifier: Verifier, body: bytes, headers: dict[str, str]) -> None:
    for name in ("Svc-Event-Id", "Svc-Event-Type", "Svc-Delivery-Id"):
        rest = {key: value for key, value in headers.items() if key != name}
        assert verifier.verify(body, rest).event_id == "evt-1"
    for name in ("Svc-Event-Id", "Svc-Event-Type"):
        assert refused(verifier, body, {"Svc-Signature": headers["Svc-Signature"], name: "x"}) == "header_body_mismatch"
    delivery = verifier.verify(body, headers["Svc-Signature"])
    assert (delivery.event_id, delivery.event_type) == ("evt-1", "booking.created")
    assert delivery.delivery_id is None


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'"x"', b'{"id":1,"type":"x"}', b"\xff", b"[" * 4000])
def test_a_body_that_is_no_event_has_no_event_id(body: bytes, secret: str, now: int, verifier: Verifier) -> None:
    delivery = verifier.verify(body, sign(body, secret, timestamp=now))
    with pytest.raises(PayloadError):
        _ = delivery.event_id


def test_a_decoding_error_does_not_carry_the_body_along(verifier: Verifier, secret: str, now: int) -> None:
    body = b"confidential"
    with pytest.raises(PayloadError) as caught:
        verifier.verify(body, sign(body, secret, timestamp=now)).json()
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


# Unwrapping


def test_unwrap_returns_the_delivery_and_the_parsed_body(
    verifier: Verifier, body: bytes, headers: dict[str, str]
) -> None:
    delivery, event = verifier.unwrap(body, headers)
    assert event == json.loads(body) == delivery.json()
    assert verifier.unwrap(body, headers, loads=len)[1] == len(body)


def test_an_unparsable_body_is_a_payload_error_and_not_remembered(
    remembering: Verifier, body: bytes, headers: dict[str, str]
) -> None:
    with pytest.raises(PayloadError) as caught:
        remembering.unwrap(body, headers, loads=lambda body: int(body))
    assert caught.value.reason == "invalid_json"
    assert remembering.unwrap(body, headers)


# Seen events


def test_an_event_is_delivered_once_until_it_is_released(
    remembering: Verifier, body: bytes, headers: dict[str, str], secret: str, now: int
) -> None:
    delivery = remembering.verify(body, headers)
    again = {**headers, "Svc-Signature": sign(body, secret, timestamp=now + 60), "Svc-Delivery-Id": "attempt-2"}
    for attempt in (headers, again):
        with pytest.raises(DuplicateEvent) as caught:
            remembering.verify(body, attempt)
        assert caught.value.event_id == "evt-1"
    remembering.release(delivery)
    assert remembering.verify(body, headers)


def test_a_forged_request_claims_nothing(
    remembering: Verifier, seen_store: MemorySeenStore, body: bytes, headers: dict[str, str], now: int
) -> None:
    assert refused(remembering, body + b" ", headers) == "signature_mismatch"
    assert refused(remembering, body, headers, now=now + 301) == "timestamp_too_old"
    assert refused(remembering, body, {**headers, "Svc-Event-Id": "evt-2"}) == "header_body_mismatch"
    assert seen_store.claim("evt-1", 1)
    assert seen_store.claim("evt-2", 1)


def test_releasing_without_a_store_does_nothing(verifier: Verifier, body: bytes, headers: dict[str, str]) -> None:
    verifier.release(verifier.verify(body, headers))


def test_a_claim_outlives_the_six_attempts_of_a_delivery(secret: str, body: bytes) -> None:
    claims = []

    class Store:
        def claim(self, event_id: str, ttl: float) -> bool:
            claims.append((event_id, ttl))
            return True

        def release(self, event_id: str) -> None:
            raise AssertionError

    Verifier(secret, seen=Store()).verify(body, sign(body, secret))
    Verifier(secret, seen=Store(), seen_ttl=12 * 3600).verify(body, sign(body, secret))
    assert claims == [("evt-1", 30 * 86_400), ("evt-1", 12 * 3600)]
    with pytest.raises(ValueError, match="12 hours"):
        Verifier(secret, seen=Store(), seen_ttl=10 * 3600)


# Deliveries


@pytest.fixture
def delivery(verifier: Verifier, body: bytes, headers: dict[str, str]) -> VerifiedDelivery:
    return verifier.verify(body, headers)


@pytest.mark.parametrize(
    "name",
    ["payload", "timestamp", "age", "secret_index", "delivery_id", "event_id", "event_type", "something_else"],
)
def test_a_delivery_does_not_change(name: str, delivery: VerifiedDelivery) -> None:
    with pytest.raises(AttributeError):
        setattr(delivery, name, "x")


def test_a_delivery_survives_pickling_and_copying(delivery: VerifiedDelivery) -> None:
    for twin in (pickle.loads(pickle.dumps(delivery)), copy.deepcopy(delivery)):
        assert twin.payload == delivery.payload
        assert twin.event_id == delivery.event_id
        assert repr(twin) == repr(delivery)


def test_the_json_of_a_delivery_is_parsed_anew_each_time(delivery: VerifiedDelivery) -> None:
    delivery.json()["id"] = "changed"
    assert delivery.json()["id"] == "evt-1"
