"""An error reporter finds no data of the guest in the frames of an adapter when the application fails."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient

from webhook_verify import Verifier
from webhook_verify.asgi import VerifyMiddleware
from webhook_verify.aws import from_lambda
from webhook_verify.fastapi import webhook
from webhook_verify.testing import make_event, signed_request

EVENT = make_event(data={"object": {"message": "HUSH"}})


class Unreachable:
    """A store of seen events whose database is unavailable."""

    def claim(self, event_id: str, ttl: float) -> bool:
        raise ConnectionError

    def release(self, event_id: str) -> None: ...


def variables_of(error: BaseException) -> str:
    """Return the variables of all frames, except frames of this file and of the test client, which has the request."""
    stack = traceback.TracebackException.from_exception(error, capture_locals=True).stack
    frames = [frame for frame in stack if "/webhook_verify/" in frame.filename and frame.filename != __file__]
    return "".join(f"{frame.name} {frame.locals}" for frame in frames)


def failure_of(app: Any, body: bytes, headers: dict[str, str]) -> BaseException:
    with pytest.raises((ZeroDivisionError, ConnectionError)) as caught:
        TestClient(app).post("/webhooks", content=body, headers=headers)
    return caught.value


@pytest.mark.parametrize("store", [None, Unreachable()], ids=["no store", "store away"])
def test_a_failure_behind_the_middleware_shows_no_body(store: Any, secret: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ZeroDivisionError

    headers, body = signed_request(EVENT, secret)
    error = failure_of(VerifyMiddleware(app, Verifier(secret, seen=store)), body, headers)
    assert "HUSH" not in variables_of(error)


@pytest.mark.parametrize("store", [None, Unreachable()], ids=["no store", "store away"])
@pytest.mark.parametrize("model", [None, dict])
def test_a_failure_of_a_route_shows_no_body(model: Any, store: Any, secret: str) -> None:
    app = FastAPI()
    verified = webhook(Verifier(secret, seen=store), model=model)

    @app.post("/webhooks")
    async def receive(value: Any = Depends(verified)) -> None:  # noqa: B008
        await asyncio.sleep(0)
        raise ZeroDivisionError

    headers, body = signed_request(EVENT, secret)
    assert "HUSH" not in variables_of(failure_of(app, body, headers))


def test_an_event_of_lambda_that_cannot_be_read_shows_no_body() -> None:
    with pytest.raises(TypeError, match="payload") as caught:
        from_lambda({"body": {"a": "HUSH"}})
    assert "HUSH" not in variables_of(caught.value)
