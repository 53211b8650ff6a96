"""`/api/v1/openapi.json`: the OpenAPI document."""

import asyncio
import threading
from typing import Any

from fastapi import FastAPI, Request

from booking_core.models.base import Resource
from booking_core.records.idempotency import Answer
from booking_server.api.dependencies import ApiRouter, ServiceDep, credentials_of
from booking_server.api.openapi.document import rendered

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
async def get_openapi(request: Request, service: ServiceDep) -> Answer:
    """Needs no key. Where it and prose elsewhere disagree, it is right."""

    def run() -> Answer:
        service.authenticator.count_address(credentials_of(request))
        return Answer(200, _rendered(request.app))

    # In a thread, since a shared store of the limiter is asked over a socket, and since the first rendering takes about
    # a second, in which no other request would be answered.
    return await asyncio.to_thread(run)


_rendering = threading.Lock()


def _rendered(app: FastAPI) -> bytes:
    """Return the document as JSON, rendered at the first call."""
    with _rendering:
        if not hasattr(app.state, "openapi_bytes"):
            app.state.openapi_bytes = rendered(app.openapi())
        document: bytes = app.state.openapi_bytes
        return document
