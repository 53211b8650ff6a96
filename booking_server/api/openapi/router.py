"""`/api/v1/openapi.json`: the OpenAPI document."""

import asyncio
import threading
from typing import Any

from fastapi import FastAPI, Request, Response

from booking_core.models.base import Resource
from booking_server.api.dependencies import ServiceDep, counted
from booking_server.api.openapi.document import rendered
from booking_server.api.responses import JsonBytes
from booking_server.api.routing import ApiRouter
from booking_server.execution.authenticator import Credentials

router = ApiRouter(prefix="/api/v1/openapi.json", tags=["Description"])


class OpenApi(Resource):
    """An OpenAPI 3.1 document."""

    openapi: str
    info: dict[str, Any]
    paths: dict[str, Any]


@router.get(
    "",
    summary="This description",
    response_model=OpenApi,
    response_description="The description.",
)
async def get_openapi(request: Request, service: ServiceDep) -> Response:
    """Needs no key. Where it and prose elsewhere disagree, it is right."""

    def run(credentials: Credentials) -> bytes:
        service.authenticator.count_address(credentials)
        return _rendered(request.app)

    with counted(request) as credentials:
        # In a thread, since a shared store of the limiter is asked over a socket, and since the first rendering takes
        # about a second, in which no other request would be answered.
        return JsonBytes(await asyncio.to_thread(run, credentials))


_rendering = threading.Lock()


def _rendered(app: FastAPI) -> bytes:
    """Return the document as JSON, rendered at the first call."""
    with _rendering:
        if not hasattr(app.state, "openapi_bytes"):
            app.state.openapi_bytes = rendered(app.openapi())
        document: bytes = app.state.openapi_bytes
        return document
