"""The path operations of `/`, `/docs` and the assets. They need no key and are not in the OpenAPI document.

The functions are synchronous, so that they run in a thread: the first request for an asset reads and compresses it.
"""

from functools import lru_cache
from pathlib import Path

import orjson
from fastapi import APIRouter, Request, Response
from markupsafe import Markup

from booking_core.base.errors import NotFound
from booking_core.models.limits import API_VERSION
from booking_server.api.openapi.changelog import CHANGES
from booking_server.reference import assets
from booking_server.reference.accept import prefers_json
from booking_server.reference.assets import StaticContent

READ = ["GET", "HEAD"]
DESCRIPTION = (
    "The HTTP API of Booking Service, for operators of bookable experiences: the catalogue, departures with live "
    "seats, bookings, customers, gift cards, an event feed and signed webhooks."
)

router = APIRouter(include_in_schema=False)


@router.api_route("/", methods=READ)
def get_index(request: Request) -> Response:
    """Return where the reference, the OpenAPI document and the changelog are: as JSON if the client prefers it."""
    if prefers_json(request.headers.get("accept", "*/*")):
        return _index_json(request.scope.get("root_path", "")).response(request)
    return _index_html().response(request)


@router.api_route("/docs", methods=READ)
def get_docs(request: Request) -> Response:
    """Return the page that starts Swagger UI."""
    return assets.load_page("docs.html").response(request)


@router.api_route("/docs/assets/{name}", methods=READ)
def get_asset(request: Request, name: str) -> Response:
    """Return one of the scripts, style sheets and images."""
    if name not in assets.NAMES:
        raise NotFound("There is no such path.")
    return assets.load(name).response(request)


@lru_cache(maxsize=8)
def _index_json(root_path: str) -> StaticContent:
    body = {
        "name": "Booking Service API",
        "description": DESCRIPTION,
        "api_version": API_VERSION,
        "documentation": f"{root_path}/docs",
        "openapi": f"{root_path}/api/v1/openapi.json",
        "changelog": f"{root_path}/api/v1/openapi.json#/info/x-changelog",
    }
    return StaticContent(orjson.dumps(body, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE), "application/json")


@lru_cache(maxsize=1)
def _index_html() -> StaticContent:
    from jinja2 import (
        Environment,
        FileSystemLoader,
        StrictUndefined,
    )  # at the first page: the service starts without it

    loader = FileSystemLoader(Path(__file__).parent / "static")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["code"] = _code
    html = environment.get_template("index.html").render(
        description=DESCRIPTION, api_version=API_VERSION, changes=reversed(CHANGES)
    )
    return StaticContent(html.encode(), "text/html; charset=utf-8")


def _code(text: str) -> Markup:
    """Render the `code` of Markdown, which is all of Markdown that the changelog uses."""
    parts = text.split("`")
    return Markup().join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))
