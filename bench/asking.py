"""Single requests outside of any measurement, for the setup and for checks of answers."""

import http.client
import json
import uuid
from collections.abc import Sequence
from typing import Any

from bench.load import FRESH, Request
from bench.processes import HOST, Server


def answer(server: Server, request: Request) -> Any:
    """Return the JSON of one response, outside of any measurement; it must be a 2xx."""
    return answers(server, [request])[0]


def answers(server: Server, requests: Sequence[Request]) -> list[Any]:
    """Return the JSON of several responses, requested one after the other on one connection."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=30)
    found = []
    for request in requests:
        body = request.body.encode() if request.body is not None else None
        headers = {name: value.replace(FRESH, uuid.uuid4().hex) for name, value in request.headers.items()}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(request.method, request.path, body=body, headers=headers)
        response = connection.getresponse()
        content = response.read()
        if not 200 <= response.status < 300:
            log = server.log.read_text()[-2000:]
            raise RuntimeError(f"{request.path} answers {response.status}: {content[:500]!r}\n{log}")
        found.append(json.loads(content))
    connection.close()
    return found
