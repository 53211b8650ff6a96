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
def test_an_error_survives_copies_and_asks_for_no_retry(reason: str) -> None:
    assert WebhookVerificationError(reason).http_status == (413 if reason == "body_too_large" else 400)
    for error in (WebhookVerificationError(reason), PayloadError(reason)):
        for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(twin) is type(error)
            assert twin.reason == reason
            assert str(twin) == str(error) == EXPLANATIONS[reason]


def test_the_answer_names_the_reason() -> None:
    error = WebhookVerificationError("header_missing")
    assert error.answer() == {"error": str(error), "reason": "header_missing"}
    assert PayloadError().reason == "invalid_json"


def test_a_duplicate_is_answered_as_a_success_and_is_no_verification_error() -> None:
    duplicate = pickle.loads(pickle.dumps(DuplicateEvent("evt-1")))
    assert duplicate.event_id == "evt-1"
    assert "evt-1" not in str(duplicate)
    assert duplicate.http_status == 200
    assert duplicate.answer() == {"status": "duplicate"}
    assert not isinstance(duplicate, WebhookVerificationError)
