"""Responses made of bytes that are ready."""

from fastapi import Response

from booking_core.idempotency import Answer
from booking_server.api.etags import TaggedAnswer


class JsonBytes(Response):
    """A response whose body is JSON already; nothing is validated or serialized on the way out."""

    media_type = "application/json"


def respond(answer: Answer) -> Response:
    """Return the response of an answer; status 204 and 304 have no body and no content type."""
    headers = {"idempotent-replayed": "true"} if answer.replayed else None
    if isinstance(answer, TaggedAnswer):
        headers = {"etag": answer.etag}
    kind = Response if answer.status in (204, 304) else JsonBytes
    return kind(answer.body, answer.status, headers)
