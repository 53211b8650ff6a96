from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("fastapi")

from fastapi import Body, Depends, FastAPI, HTTPException, Request
from starlette.testclient import TestClient

from webhook_verify import MemorySeenStore, Verifier, sign
from webhook_verify.fastapi import webhook


def client_of(dependency: Any, app: FastAPI | None = None) -> TestClient:
    """Return a client of an application with one route, which responds with the value of the dependency."""
    app = app or FastAPI()

    @app.post("/webhooks")
    async def receive(value: Any = Depends(dependency)) -> Any:  # noqa: B008
        return value

    return TestClient(app)


def test_a_model_gets_the_parsed_body(verifier: Verifier, body: bytes, headers: dict[str, str]) -> None:
    client = client_of(webhook(verifier, model=dict[str, Any]))
    assert client.post("/webhooks", content=body, headers=headers).json()["data"]["object"]["name"] == "Åse"


def test_a_body_that_the_model_refuses_is_400_without_the_body(
    remembering: Verifier, seen_store: MemorySeenStore, body: bytes, headers: dict[str, str]
) -> None:
    response = client_of(webhook(remembering, model=list[int])).post("/webhooks", content=body, headers=headers)
    assert (response.status_code, response.json()["reason"]) == (400, "invalid_json")
    assert seen_store.claim("evt-1", 1)


def test_the_route_may_still_read_the_body(verifier: Verifier, body: bytes, headers: dict[str, str]) -> None:
    app = FastAPI()

    @app.post("/webhooks", dependencies=[Depends(webhook(verifier))])
    async def receive(request: Request) -> Any:
        return await request.json()

    response = TestClient(app).post("/webhooks", content=body, headers=headers)
    assert response.json()["id"] == "evt-1"


def test_a_body_that_the_route_declares_is_still_verified_as_it_came(
    verifier: Verifier, body: bytes, headers: dict[str, str]
) -> None:
    app = FastAPI()

    @app.post("/webhooks", dependencies=[Depends(webhook(verifier))])
    async def receive(event: Any = Body()) -> Any:  # noqa: B008
        return event["id"]

    assert TestClient(app).post("/webhooks", content=body, headers=headers).json() == "evt-1"
    assert TestClient(app).post("/webhooks", content=body + b" ", headers=headers).status_code == 400


def test_an_application_keeps_its_error_handler_for_its_own_errors(verifier: Verifier, body: bytes) -> None:
    app = FastAPI()

    @app.exception_handler(HTTPException)
    async def teapot(request: Request, error: HTTPException) -> Any:
        raise AssertionError

    response = client_of(webhook(verifier), app=app).post("/webhooks", content=body)
    assert (response.status_code, response.json()["reason"]) == (400, "header_missing")


def test_a_body_without_a_declared_length_is_not_read_beyond_the_limit(secret: str, now: int) -> None:
    read = []

    def chunks() -> Any:
        for size in range(100):
            read.append(size)
            yield b"a" * 1000

    verifier = Verifier(secret, clock=lambda: now, max_body_bytes=2000)
    headers = {"Svc-Signature": sign(b"", secret, timestamp=now)}
    response = client_of(webhook(verifier)).post("/webhooks", content=chunks(), headers=headers)
    assert response.status_code == 413
