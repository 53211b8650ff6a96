"""Responses made of bytes that are ready."""

from fastapi import Response

from booking_core.idempotency import Answer


class JsonBytes(Response):
    """A response whose body is JSON already; nothing is validated or serialized on the way out."""

    media_type = "application/json"


def respond(answer: Answer) -> Response:
    """Return the response of an answer; status 204 has no body and no content type."""
    headers = {"idempotent-replayed": "true"} if answer.replayed else None
    kind = Response if answer.status == 204 else JsonBytes
    return kind(answer.body, answer.status, headers)
