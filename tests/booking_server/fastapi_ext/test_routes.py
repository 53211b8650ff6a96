"""The table finds the operation that FastAPI would find, with one look-up, and leaves everything else to FastAPI."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import FastAPI, Header
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_dependant

import booking_server
from booking_server.api.dependencies import AnyCaller, ApiRouter, Lane, runs_in
from booking_server.app import describe
from booking_server.fastapi_ext import resolver
from booking_server.fastapi_ext.routes import ApiRoute, RouteTable

ID = "01890a5d-ac96-774b-bcce-b302099a8057"
OTHER_ID = "01890A5D-AC96-774B-BCCE-B302099A8058"


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return describe()


@pytest.fixture(scope="module")
def table(app: FastAPI) -> RouteTable:
    return RouteTable(app, routes=app.routes)


def scope_of(method: str, path: str, root_path: str = "") -> dict[str, Any]:
    return {"type": "http", "method": method, "path": path, "root_path": root_path}


def operations(app: FastAPI) -> Iterator[tuple[str, str, ApiRoute]]:
    """Yield method, a path with ids, and route of every operation of the API."""
    for route in app.routes:
        if isinstance(route, ApiRoute):
            ids = iter((ID, OTHER_ID))
            path = "/".join(next(ids) if part.startswith("{") else part for part in route.path.split("/"))
            for method in route.methods or ():
                yield method, path, route


def test_every_operation_of_the_api_is_found_as_fastapi_finds_it(app: FastAPI, table: RouteTable) -> None:
    count = 0
    for method, path, route in operations(app):
        compiled = route.path_regex.match(path)
        assert compiled
        matched = {"endpoint": route.endpoint, "route": route, "path_params": compiled.groupdict()}
        assert table.find(scope_of(method, path)) == matched, (method, path)
        count += 1
    assert count > 20


def test_a_path_below_the_root_path_of_a_proxy_is_found(table: RouteTable) -> None:
    assert table.find(scope_of("GET", "/shop/api/v1/me", "/shop"))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/me"),
        *(("GET", path) for path in ("/", "/api/v1/me/", "/api/v1/me\n")),
        *(("GET", f"/api/v1/bookings/{end}") for end in ("unknown", "*", f"{ID}\n", f"{ID}x", f"{ID}/{ID}")),
    ],
)
def test_everything_else_is_left_to_fastapi(table: RouteTable, method: str, path: str) -> None:
    assert table.find(scope_of(method, path)) is None


def test_fastapi_serves_an_operation_with_its_own_body_limit() -> None:
    router = ApiRouter(prefix="/limited", tags=[])

    @router.get("", max_body_size=10)
    @runs_in(Lane.LOOK_UPS)
    def limited(caller: AnyCaller) -> None: ...

    assert RouteTable(FastAPI(), routes=router.routes).find(scope_of("GET", "/limited")) is None


def test_a_router_of_the_api_is_not_included() -> None:
    """A dependency of the inclusion, perhaps a guard, would not run."""
    router, app = ApiRouter(prefix="/mine", tags=[]), FastAPI()

    @router.get("")
    @runs_in(Lane.LOOK_UPS)
    def mine(caller: AnyCaller) -> None: ...

    app.include_router(router)
    with pytest.raises(TypeError, match=r"pass its routes to FastAPI\(routes=\)"):
        app.openapi()


# FastAPI's inside -----------------------------------------------------------------------------------------------------


def test_only_the_resolver_touches_fastapis_inside() -> None:
    inside = re.compile(r"fastapi\.dependencies|iter_route_contexts|routing\._|routing import .*\b_")
    files = [path for path in Path(booking_server.__file__).parent.rglob("*.py") if path.name != "resolver.py"]
    assert len(files) > 50
    assert not [str(path) for path in files if inside.search(path.read_text(encoding="utf-8"))]


READ = set(
    "body_params call concurrency cookie_params dependencies header_params http_connection_param_name name"
    " own_oauth_scopes parent_oauth_scopes path path_params query_params request_param_name response_param_name"
    " background_tasks_param_name security_scopes_param_name use_cache websocket_param_name".split()
)
"""The fields of FastAPI's `Dependant` that the resolver reads."""
IGNORED = {"scope"}
"""Those without a meaning for the operations of this API: no dependency has a `yield`."""


def test_a_dependency_of_fastapi_has_the_fields_that_the_resolver_knows() -> None:
    fields = {field.name for field in dataclasses.fields(Dependant)}
    sentence = "FastAPI declares dependencies in another way: adapt fastapi_ext/resolver.py, then the bounds of fastapi"
    assert fields == READ | IGNORED, sentence
    source = Path(resolver.__file__).read_text(encoding="utf-8")
    assert not [name for name in READ if not re.search(rf"(?:dependant|sub)\.{name}\b", source)]


def test_a_parameter_of_fastapi_is_validated_as_the_resolver_calls_it() -> None:
    def listed(limit: Annotated[int, Header(alias="X-Limit")] = 25) -> None: ...

    (field,) = get_dependant(path="/", call=listed).header_params
    sentence = "FastAPI validates parameters in another way: adapt fastapi_ext/resolver.py, then the bounds of fastapi"
    value, problems = field.validate("x", {}, loc=("X-Limit",))
    assert (field.name, field.alias, field.get_default()) == ("limit", "X-Limit", 25), sentence
    assert (value, [problem["loc"] for problem in problems]) == (None, [("X-Limit",)]), sentence
    assert field.validate("3", {}, loc=("X-Limit",)) == (3, []), sentence
    assert (field.field_info.is_required(), field.field_info.annotation) == (False, int), sentence
