"""Starlette's test client with one turn of its event loop's thread for a request.

The test client takes eight turns: one for each step of a streamed response. They are most of the time of a short
request, and a run sends tens of thousands.
"""

from typing import Any

import httpx2
from starlette.testclient import TestClient


class WholeResponses(TestClient):
    """A test client that receives a response as a whole, if the call asks neither for a stream nor for redirects.

    A request that fails with an exception has the response of the service.
    """

    def __init__(self, app: Any) -> None:
        super().__init__(app, raise_server_exceptions=False)
        self._application = httpx2.ASGITransport(app, raise_app_exceptions=False, client=("testclient", 50_000))

    def send(
        self, request: httpx2.Request, *, stream: bool = False, follow_redirects: Any = True, **arguments: Any
    ) -> httpx2.Response:
        if stream or follow_redirects is not False or self.portal is None:
            return super().send(request, stream=stream, follow_redirects=follow_redirects, **arguments)
        request.read()  # a body that the test yields in pieces cannot be awaited
        return self.portal.call(self._receive, request)

    async def _receive(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._application.handle_async_request(request)
        response.request = request
        await response.aread()
        return response
