"""A decorator for Flask views that verifies deliveries and rejects other requests.

@app.post("/webhooks")
@verified(verifier)
def receive(delivery): ...
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from flask import (  # type: ignore[import-not-found,unused-ignore]
    Response,
    current_app,
    jsonify,
    make_response,
    request,
)

from webhook_verify.errors import WebhookVerificationError
from webhook_verify.refusals import REJECTIONS, answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook_verify.receiver import VerifiedDelivery, Verifier


def verified(verifier: Verifier) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator, to place below `@app.post`. The view receives the delivery as its first argument.

    When the view raises, or responds with a status other than 2xx, the event is released from the store of seen events,
    because the sender will retry.
    """

    def decorate(view: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(view)
        def verify_then_view(*args: Any, **kwargs: Any) -> Response:
            try:
                delivery = verifier.verify(_read_body(verifier.max_body_bytes), request.headers)
            except REJECTIONS as refusal:
                status, content = answer(refusal)
                return make_response(jsonify(content), status)
            return _respond(verifier, delivery, view, args, kwargs)

        return verify_then_view

    return decorate


def _read_body(limit: int) -> bytes:
    if (request.content_length or 0) > limit:
        raise WebhookVerificationError("body_too_large")
    # Never parsed as a form, even with the content type of one: parsing would consume the bytes.
    body: bytes = request.get_data(cache=True, parse_form_data=False)
    return body


def _respond(
    verifier: Verifier, delivery: VerifiedDelivery, view: Callable[..., Any], args: Any, kwargs: Any
) -> Response:
    try:
        response = make_response(current_app.ensure_sync(view)(delivery, *args, **kwargs))
    except BaseException:
        verifier.settle(delivery, succeeded=False)
        raise
    verifier.settle(delivery, succeeded=200 <= response.status_code < 300)
    return response
