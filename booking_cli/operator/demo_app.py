"""The application of `booking demo`: the service with the pictures of the examples, and a receiver of webhooks."""

from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from booking_cli.operator import server_app
from booking_core.base.errors import NotFound

if TYPE_CHECKING:
    from fastapi import FastAPI

PICTURES = Path(__file__).with_name("demo_pictures")
_FILES = StaticFiles(directory=PICTURES)

router = APIRouter(include_in_schema=False)


@router.get("/demo/pictures/{name}")
async def get_picture(request: Request, name: str) -> Response:
    """Return the picture of an experience, or status 304 if the client has it."""
    try:
        response = await _FILES.get_response(name, request.scope)
    except HTTPException:
        raise NotFound("There is no such path.") from None
    response.headers["cache-control"] = "public, max-age=3600"
    return response


@router.post("/demo/webhooks/{name}")
async def receive(name: str) -> Response:
    """Accept a delivery, or refuse it as `gone`: with a status below 500, which is not logged."""
    return Response(status_code=404 if name == "gone" else 204)


def create_app() -> "FastAPI":
    """Return the application of `booking serve` with the routes of the demo."""
    app = server_app.create_app_with_worker()
    app.include_router(router)
    return app
