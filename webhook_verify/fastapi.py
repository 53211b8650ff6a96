"""A FastAPI dependency that verifies deliveries and rejects other requests.

@app.post("/webhooks")
async def receive(delivery: Annotated[VerifiedDelivery, Depends(webhook(verifier))]): ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, TypeVar, overload

from fastapi import HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from pydantic import TypeAdapter

from webhook_verify.errors import WebhookVerificationError
from webhook_verify.frames import clear_frames
from webhook_verify.refusals import REJECTIONS, Rejection, answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook_verify.receiver import VerifiedDelivery, Verifier

    T = TypeVar("T")


@overload
def webhook(verifier: Verifier) -> Callable[[Request], AsyncIterator[VerifiedDelivery]]: ...
@overload
def webhook(verifier: Verifier, *, model: type[T]) -> Callable[[Request], AsyncIterator[T]]: ...


def webhook(verifier: Verifier, *, model: Any = None) -> Callable[[Request], AsyncIterator[Any]]:
    """Return a dependency that provides the VerifiedDelivery, or the body as a model.

    The path operation must not declare a body: FastAPI would parse it before the signature is checked. When the path
    operation raises, the event is released from the store of seen events. Raise an exception to report a failure: a
    dependency does not see an error that is returned as a Response.

    Args:
        verifier: The verifier of the endpoint.
        model: Any type that a pydantic TypeAdapter accepts.
    """
    loads = None if model is None else TypeAdapter(model).validate_json

    def accept(body: bytes, request: Request) -> tuple[VerifiedDelivery, Any]:
        if loads is not None:
            return verifier.unwrap(body, request.headers, loads=loads)
        delivery = verifier.verify(body, request.headers)
        return delivery, delivery

    async def read_and_accept(request: Request) -> tuple[VerifiedDelivery, Any]:
        body = await _read_body(request, verifier.max_body_bytes)
        if verifier.seen is None:
            return accept(body, request)
        # A store of seen events may wait for a database, which would block the event loop.
        return await run_in_threadpool(accept, body, request)

    async def verified(request: Request) -> AsyncIterator[Any]:
        try:
            # Body and value must not stay variables of this frame: an error of the path operation passes through it.
            accepted = [*await read_and_accept(request)]
        except REJECTIONS as refusal:
            clear_frames(refusal)
            raise _rejection(request, refusal) from None
        except BaseException as error:
            clear_frames(error)
            raise
        delivery = accepted[0]
        try:
            yield accepted.pop()
        except BaseException:
            # Not in a thread: a cancelled request must not wait for one.
            verifier.settle(delivery, succeeded=False)
            raise
        if verifier.seen is not None:
            await run_in_threadpool(verifier.settle, delivery, succeeded=True)

    return verified


async def _read_body(request: Request, limit: int) -> bytes:
    """Return the body and cache it on the request, where the path operation can read it again.

    Raises:
        WebhookVerificationError: The body is larger than the limit.
    """
    chunks, size = [], 0
    async for chunk in request.stream():
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            raise WebhookVerificationError("body_too_large")
    request._body = b"".join(chunks)
    return request._body


class _Rejected(HTTPException):
    """The response to a rejected request."""


def _rejection(request: Request, refusal: Rejection) -> _Rejected:
    """Return the exception that responds with the object itself. FastAPI would respond with `{"detail": {…}}`.

    The handler is registered in the request scope, where Starlette looks it up. If a later version looks elsewhere, the
    status stays the same and the object is nested under "detail".
    """
    handlers = request.scope.get("starlette.exception_handlers")
    if handlers:
        handlers[0].setdefault(_Rejected, _plain_answer)
    return _Rejected(*answer(refusal))


def _plain_answer(request: Request, rejection: Any) -> JSONResponse:
    return JSONResponse(rejection.detail, status_code=rejection.status_code)
