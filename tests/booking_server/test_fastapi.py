"""The service is a FastAPI application: what FastAPI's manual describes works on it as it says."""

import threading
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import JSONResponse
from starlette.testclient import TestClient
from support.world.world import SECRET, World

from booking_core.base.context import Caller
from booking_core.base.settings import Settings
from booking_core.models.scopes import Scope
from booking_core.organizations import keys
from booking_server.api.dependencies import AnyCaller, authorize, get_service
from booking_server.app import create_app

pytestmark = pytest.mark.one_database


@pytest.fixture
def app(world: World, fresh_database_url: str) -> FastAPI:
    return create_app(Settings(database_url=fresh_database_url, secret_key=SECRET))


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, raise_server_exceptions=False) as running:
        yield running


def test_a_plain_path_operation_is_served_and_documented(app: FastAPI, client: TestClient) -> None:
    @app.get("/status/{name}")
    def status(name: str, times: Annotated[int, Query(ge=1)] = 1) -> dict[str, str]:
        return {"status": name * times}

    assert client.get("/status/ok", params={"times": 2}).json() == {"status": "okok"}
    assert "/status/{name}" in app.openapi()["paths"]


def test_invalid_parameters_of_a_plain_operation_have_the_contracts_error(app: FastAPI, client: TestClient) -> None:
    @app.get("/status")
    def status(times: int) -> int:
        return times

    refused = client.get("/status", params={"times": "x"})
    assert (refused.status_code, refused.json()["code"]) == (400, "validation_failed")
    assert refused.json()["details"][0]["field"] == "times"
    assert client.get("/status").json()["details"][0]["reason"] == "required"


def test_middleware_sees_every_request(app: FastAPI) -> None:
    requests: list[tuple[str, int]] = []

    @app.middleware("http")
    async def record(request: Request, call_next: Any) -> Any:
        response = await call_next(request)
        requests.append((request.url.path, response.status_code))
        response.headers["x-seen"] = "yes"
        return response

    with TestClient(app) as client:
        response = client.get("/api/v1/me")
    assert requests == [("/api/v1/me", 401)]
    assert response.headers["x-seen"] == "yes"
    assert response.headers["x-request-id"]


def test_an_exception_handler_is_called(app: FastAPI) -> None:
    class Teapot(Exception):
        pass

    @app.exception_handler(Teapot)
    async def teapot(request: Request, error: Teapot) -> JSONResponse:
        return JSONResponse({"short": "and stout"}, 418)

    @app.get("/tea")
    def tea() -> None:
        raise Teapot

    @app.get("/coffee")
    def coffee() -> None:
        raise HTTPException(402, "Pay first.")

    with TestClient(app) as client:
        answers = [client.get(path) for path in ("/tea", "/coffee")]
    assert [(answer.status_code, answer.json()) for answer in answers] == [
        (418, {"short": "and stout"}),
        (402, {"detail": "Pay first."}),
    ]


def test_an_exception_of_an_operation_reaches_the_applications_handler_once(
    app: FastAPI,
) -> None:
    class Teapot(Exception):
        pass

    runs: list[str] = []

    async def teapot_caller() -> None:
        runs.append("called")
        raise Teapot

    @app.exception_handler(Teapot)
    async def teapot(request: Request, error: Teapot) -> JSONResponse:
        return JSONResponse({"operation": request.scope["endpoint"].__name__}, 418)

    app.dependency_overrides[authorize] = teapot_caller
    with TestClient(app) as client:
        answered = client.get("/api/v1/me")
    assert (answered.status_code, answered.json(), runs) == (418, {"operation": "get_me"}, ["called"])
    assert answered.headers["x-request-id"]


def test_an_unhandled_error_has_one_answer_with_the_request_id(app: FastAPI, client: TestClient) -> None:
    @app.get("/broken")
    def broken() -> None:
        raise RuntimeError("with a secret")

    response = client.get("/broken", headers={"x-request-id": "mine"})
    assert (response.status_code, response.json()["code"]) == (500, "internal_error")
    assert response.headers["x-request-id"] == response.json()["request_id"] == "mine"
    assert "secret" not in response.text


@pytest.mark.parametrize("status", [400, 404])
def test_an_http_exception_of_a_plain_operation_is_unchanged(app: FastAPI, client: TestClient, status: int) -> None:
    @app.get("/cups/{name}")
    def cup(name: str) -> None:
        raise HTTPException(status, f"There is no cup {name}.")

    answered = client.get("/cups/blue")
    assert (answered.status_code, answered.json()) == (status, {"detail": "There is no cup blue."})
    assert "ratelimit-limit" not in {name.lower() for name in answered.headers}
    missing = client.get("/saucers/blue")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")


def test_other_requests_are_answered_while_the_document_is_rendered(
    app: FastAPI, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, was_answered, answers = app.openapi, threading.Event(), []

    def openapi() -> dict[str, Any]:
        # Ends only when the other request was answered, or after so long that the test fails.
        assert was_answered.wait(60)
        return original()

    monkeypatch.setattr(app, "openapi", openapi)
    fetching = threading.Thread(target=lambda: answers.append(client.get("/api/v1/openapi.json")))
    fetching.start()
    try:
        assert client.get("/api/v1/me").status_code == 401
    finally:
        was_answered.set()
        fetching.join()
    assert answers[0].json()["openapi"].startswith("3.1")


def test_a_dependency_is_overridden(app: FastAPI, client: TestClient, world: World) -> None:
    async def anyone() -> Caller:
        caller = world.database.read(lambda tx: keys.identify_many(tx, [key], world.installation)[0])
        assert isinstance(caller, Caller)
        return caller

    key = world.key(Scope.BOOKINGS_READ)
    app.dependency_overrides[authorize] = anyone
    assert client.get("/api/v1/me").json()["organization"]["id"] == world.org
    app.dependency_overrides.clear()
    assert client.get("/api/v1/me").status_code == 401


def test_a_router_is_included_with_the_dependencies_of_the_api(app: FastAPI, client: TestClient) -> None:
    router = APIRouter(prefix="/extra", tags=["Extra"])

    @router.get("/who")
    async def who(caller: AnyCaller, service: Annotated[Any, Depends(get_service)]) -> dict[str, str]:
        return {"organization": caller.organization.slug, "service": type(service).__name__}

    app.include_router(router)
    assert client.get("/extra/who").json()["code"] == "api_key_missing"
    assert app.openapi()["paths"]["/extra/who"]["get"]["security"]


def test_the_refusal_of_a_method_names_the_methods_of_the_path(app: FastAPI, client: TestClient) -> None:
    @app.put("/thing")
    def put() -> None: ...

    @app.post("/thing")
    def post() -> None: ...

    response = client.get("/thing")
    assert (response.status_code, response.headers["allow"]) == (405, "POST, PUT")
