"""The table finds the operation that FastAPI would find, with one look-up, and leaves everything else to FastAPI."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts
from starlette.routing import BaseRoute, Match
from starlette.testclient import TestClient

import booking_server
from booking_server.api.dependencies import AnyCaller, ApiRouter, Lane, runs_in
from booking_server.app import describe
from booking_server.fastapi_ext.routes import ApiRoute, RouteTable

ID = "01890a5d-ac96-774b-bcce-b302099a8057"
OTHER_ID = "01890A5D-AC96-774B-BCCE-B302099A8058"


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return describe()


def routers(app: FastAPI) -> list[BaseRoute]:
    return [route for route in app.routes if not isinstance(route, RouteTable)]


@pytest.fixture(scope="module")
def table(app: FastAPI) -> RouteTable:
    table = app.routes[0]
    assert isinstance(table, RouteTable)
    return table


def scope_of(method: str, path: str, root_path: str = "") -> dict[str, Any]:
    return {"type": "http", "method": method, "path": path, "root_path": root_path}


def operations(app: FastAPI) -> Iterator[tuple[str, str, RouteContext]]:
    """Yield method, a path with ids, and route of every operation of the API."""
    for route in iter_route_contexts(routers(app)):
        if isinstance(route.original_route, ApiRoute):
            ids = iter((ID, OTHER_ID))
            path = "/".join(next(ids) if part.startswith("{") else part for part in (route.path or "").split("/"))
            for method in route.methods or ():
                yield method, path, route


def test_every_operation_of_the_api_is_found_as_fastapi_finds_it(app: FastAPI, table: RouteTable) -> None:
    found = 0
    for method, path, route in operations(app):
        match, child = table.matches(scope_of(method, path))
        assert match is Match.FULL, (method, path)
        assert child["endpoint"] is route.endpoint
        assert child["route"] is route.original_route
        assert isinstance(route.original_route, APIRoute)
        compiled = route.path_regex.match(path)
        assert child["path_params"] == compiled.groupdict()
        found += 1
    assert found > 20


def test_a_path_below_the_root_path_of_a_proxy_is_found(table: RouteTable) -> None:
    assert table.matches(scope_of("GET", "/shop/api/v1/me", "/shop"))[0] is Match.FULL


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/me"),
        ("GET", "/api/v1/me/"),
        ("GET", "/api/v1/me\n"),
        ("GET", f"/api/v1/bookings/{ID}\n"),
        ("GET", f"/api/v1/bookings/{ID}x"),
        ("GET", f"/api/v1/bookings/{ID}/{ID}"),
        ("GET", "/api/v1/bookings/unknown"),
        ("GET", "/api/v1/bookings/*"),
        ("GET", "/"),
    ],
)
def test_everything_else_is_left_to_the_routes_after_it(table: RouteTable, method: str, path: str) -> None:
    assert table.matches(scope_of(method, path)) == (Match.NONE, {})
    assert table.matches({"type": "websocket", "path": "/api/v1/me"}) == (Match.NONE, {})


def test_fastapi_serves_an_operation_with_its_own_body_limit() -> None:
    router = ApiRouter(prefix="/limited", tags=[])

    @router.get("", max_body_size=10)
    @runs_in(Lane.LOOK_UPS)
    def limited(caller: AnyCaller) -> None: ...

    assert RouteTable(router.routes).matches(scope_of("GET", "/limited"))[0] is Match.NONE


def test_a_route_before_the_table_replaces_the_route_of_the_table() -> None:
    app = describe()

    @app.get("/api/v1/me")
    def mine() -> str:
        return "mine"

    app.router.routes.insert(0, app.router.routes.pop())
    assert TestClient(app).get("/api/v1/me").json() == "mine"


def test_no_other_package_of_the_server_touches_fastapis_inside() -> None:
    inside = re.compile(r"fastapi\.dependencies|iter_route_contexts|_effective_route|fastapi\.routing\._|Dependant\b")
    files = [path for path in Path(booking_server.__file__).parent.rglob("*.py") if path.parent.name != "fastapi_ext"]
    assert not [str(path) for path in files if inside.search(path.read_text(encoding="utf-8"))]
