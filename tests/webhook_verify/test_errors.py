from __future__ import annotations

import ast
import copy
import pickle
from pathlib import Path

import pytest

import webhook_verify.errors
from webhook_verify import DuplicateEvent, PayloadError, WebhookVerificationError
from webhook_verify.errors import EXPLANATIONS


def declared_reasons() -> set[str]:
    """Return the members of the Reason type, which exists for type checkers only."""
    for node in ast.walk(ast.parse(Path(webhook_verify.errors.__file__).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Literal":
            return set(ast.literal_eval(node.slice))
    raise AssertionError("errors.py declares no Literal")


def test_every_reason_is_explained() -> None:
    assert set(EXPLANATIONS) == declared_reasons()


@pytest.mark.parametrize("reason", EXPLANATIONS)
def test_an_error_survives_pickling_and_copying(reason: str) -> None:
    for error in (WebhookVerificationError(reason), PayloadError(reason)):
        for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(twin) is type(error)
            assert twin.reason == reason
            assert str(twin) == str(error) == EXPLANATIONS[reason]


def test_a_duplicate_survives_pickling() -> None:
    twin = pickle.loads(pickle.dumps(DuplicateEvent("evt-1")))
    assert twin.event_id == "evt-1"
    assert "evt-1" not in str(twin)


def test_the_answer_names_the_reason() -> None:
    error = WebhookVerificationError("header_missing")
    assert error.answer() == {"error": str(error), "reason": "header_missing"}


@pytest.mark.parametrize("reason", EXPLANATIONS)
def test_no_reason_asks_the_sender_to_try_again(reason: str) -> None:
    assert WebhookVerificationError(reason).http_status == (413 if reason == "body_too_large" else 400)


def test_a_duplicate_is_answered_as_a_success_and_is_no_verification_error() -> None:
    duplicate = DuplicateEvent("evt-1")
    assert duplicate.http_status == 200
    assert duplicate.answer() == {"status": "duplicate"}
    assert not isinstance(duplicate, WebhookVerificationError)


def test_payload_error_has_the_reason_invalid_json() -> None:
    assert PayloadError().reason == "invalid_json"
