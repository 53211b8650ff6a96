"""Deliveries in FastAPI: a dependency that hands the route a verified delivery, or answers in its place.

@app.post("/webhooks")
async def receive(delivery: Annotated[VerifiedDelivery, Depends(webhook(verifier))]): ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, TypeVar, Union, overload

from fastapi import HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from pydantic import TypeAdapter

from webhook_verify.errors import DuplicateEvent, WebhookVerificationError
from webhook_verify.frames import clear_frames

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook_verify.receiver import VerifiedDelivery, Verifier

    T = TypeVar("T")

Refusal = Union[WebhookVerificationError, DuplicateEvent]


@overload
def webhook(verifier: Verifier) -> Callable[[Request], AsyncIterator[VerifiedDelivery]]: ...
@overload
def webhook(verifier: Verifier, *, model: type[T]) -> Callable[[Request], AsyncIterator[T]]: ...


def webhook(verifier: Verifier, *, model: Any = None) -> Callable[[Request], AsyncIterator[Any]]:
    """A dependency that gives the VerifiedDelivery, or with `model` what pydantic makes of the body.

    `model` is anything a TypeAdapter takes. The route must not declare a body of its own: FastAPI would parse it
    before the signature is looked at. When the route raises, the event is given back to the store of seen events;
    a dependency does not see a failure that is returned as a Response, so raise.
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
        # A store of seen events may wait for a database, which the event loop must not.
        return await run_in_threadpool(accept, body, request)

    async def verified(request: Request) -> AsyncIterator[Any]:
        try:
            # Neither body nor value stays a variable of this frame, which an error of the route passes through.
            accepted = [*await read_and_accept(request)]
        except (WebhookVerificationError, DuplicateEvent) as refusal:
            clear_frames(refusal)
            raise _answered(request, refusal) from None
        except BaseException as error:
            clear_frames(error)
            raise
        delivery = accepted[0]
        try:
            yield accepted.pop()
        except BaseException:
            # In place and not in a thread: a request that was cancelled may not wait for one.
            verifier.release(delivery)
            raise

    return verified


async def _read_body(request: Request, limit: int) -> bytes:
    """The body, unless it outgrows the limit. Leaves it with the request, so that a route may still read it."""
    chunks, size = [], 0
    async for chunk in request.stream():
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            raise WebhookVerificationError("body_too_large")
    request._body = b"".join(chunks)
    return request._body


class _Answered(HTTPException):
    """An answer given in the route's place."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.http_status, detail=refusal.answer())


def _answered(request: Request, refusal: Refusal) -> _Answered:
    """The exception to raise. FastAPI would answer `{"detail": {…}}`; this answers the object itself.

    The handler is put where the route's own error handling looks it up. Where a later version looks elsewhere, the
    status stays as it is and the object stands under "detail".
    """
    handlers = request.scope.get("starlette.exception_handlers")
    if handlers:
        handlers[0].setdefault(_Answered, _plain_answer)
    return _Answered(refusal)


def _plain_answer(request: Request, answered: Any) -> JSONResponse:
    return JSONResponse(answered.detail, status_code=answered.status_code)
