"""A decorator for Django views that verifies deliveries and rejects other requests.

@verified(verifier)
def receive(request, delivery): ...
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from asgiref.sync import (  # type: ignore[import-not-found,unused-ignore]
    iscoroutinefunction,
    sync_to_async,
)
from django.core.exceptions import RequestDataTooBig  # type: ignore[import-not-found,import-untyped,unused-ignore]
from django.http import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    HttpRequest,
    HttpResponseBase,
    JsonResponse,
    RawPostDataException,
)

from webhook_verify.errors import WebhookVerificationError
from webhook_verify.refusals import REJECTIONS, answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook_verify.receiver import VerifiedDelivery, Verifier


def verified(verifier: Verifier) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator for a sync or async view, which receives the delivery as its second argument.

    Implies `csrf_exempt`. Make it the outermost decorator: reading `request.POST` consumes the body. When the view
    raises, or responds with a status other than 2xx, the event is released from the store of seen events, because the
    sender will retry.
    """

    def decorate(view: Callable[..., Any]) -> Callable[..., Any]:
        wrapped = _async_view(verifier, view) if iscoroutinefunction(view) else _view(verifier, view)
        # The attribute that Django's csrf_exempt sets. A delivery has no session to protect; it is signed.
        wrapped.csrf_exempt = True  # type: ignore[attr-defined]
        return wrapped

    return decorate


def _view(verifier: Verifier, view: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(view)
    def verify_then_view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        delivery = _accept(verifier, request)
        if isinstance(delivery, JsonResponse):
            return delivery
        try:
            response = view(request, delivery, *args, **kwargs)
        except BaseException:
            verifier.settle(delivery, succeeded=False)
            raise
        verifier.settle(delivery, succeeded=_succeeded(response))
        return response

    return verify_then_view


def _async_view(verifier: Verifier, view: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(view)
    async def verify_then_view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        # In a thread: a store of seen events may use the ORM, which Django does not allow in the event loop.
        delivery = await sync_to_async(_accept)(verifier, request)
        if isinstance(delivery, JsonResponse):
            return delivery
        try:
            response = await view(request, delivery, *args, **kwargs)
        except BaseException:
            await sync_to_async(verifier.settle)(delivery, succeeded=False)
            raise
        await sync_to_async(verifier.settle)(delivery, succeeded=_succeeded(response))
        return response

    return verify_then_view


def _accept(verifier: Verifier, request: HttpRequest) -> VerifiedDelivery | JsonResponse:
    """Return the verified delivery, or the response for a rejected request."""
    try:
        return verifier.verify(_read_body(request), request.headers)
    except REJECTIONS as refusal:
        status, content = answer(refusal)
        return JsonResponse(content, status=status)


def _read_body(request: HttpRequest) -> bytes:
    try:
        body: bytes = request.body
    except RequestDataTooBig:
        # Django's own limit, DATA_UPLOAD_MAX_MEMORY_SIZE.
        raise WebhookVerificationError("body_too_large") from None
    except RawPostDataException as error:
        raise RuntimeError(
            "the body was read before its signature could be checked: look for a middleware, a decorator above"
            " verified() or a REST framework class that touches request.POST, request.FILES or request.data"
        ) from error
    return body


def _succeeded(response: HttpResponseBase) -> bool:
    return bool(200 <= response.status_code < 300)
