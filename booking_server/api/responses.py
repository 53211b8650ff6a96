"""Responses made of bytes that are ready."""

from collections.abc import Sequence

from fastapi import Response

from booking_core.records.idempotency import Answer
from booking_server.api.etags import TaggedAnswer

_JSON = (b"content-type", b"application/json")
_REPLAYED = ((b"idempotent-replayed", b"true"),)


class JsonBytes(Response):
    """A response whose body is JSON already; nothing is validated or serialized on the way out."""

    media_type = "application/json"


class AnswerResponse(Response):
    """The response of an answer, whose header fields are bytes from the beginning."""

    media_type = "application/json"

    def __init__(self, answer: Answer, fields: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.status_code = answer.status
        self.body = answer.body
        self.background = None
        self.raw_headers = [*fields, (b"content-length", b"%d" % len(answer.body)), _JSON]


def respond(answer: Answer) -> Response:
    """Return the response of an answer; status 204 and 304 have no body and no content type."""
    fields: Sequence[tuple[bytes, bytes]] = _REPLAYED if answer.replayed else ()
    if isinstance(answer, TaggedAnswer):
        fields = ((b"etag", answer.etag.encode()),)
    if answer.status in (204, 304):
        response = Response(answer.body, answer.status)
        response.raw_headers.extend(fields)
        return response
    return AnswerResponse(answer, fields)
