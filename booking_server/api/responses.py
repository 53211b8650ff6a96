"""Responses made of bytes that are ready."""

from typing import Any

from fastapi import Response

from booking_core.idempotency import Answer


class JsonBytes(Response):
    """A response whose body is JSON already; nothing is validated or serialized on the way out."""

    media_type = "application/json"


def respond(answer: Answer) -> Response:
    """Return the response of an answer; status 204 has no body and no content type."""
    headers = {"idempotent-replayed": "true"} if answer.replayed else None
    kind: Any = Response if answer.status == 204 else JsonBytes
    response: Response = kind(content=answer.body, status_code=answer.status, headers=headers)
    return response
