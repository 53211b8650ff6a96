"""The base class of the resources of the async client: it sends their requests, and parses the responses."""

from collections.abc import Mapping
from typing import Any, TypeVar

from booking_core.models.suggestions import Suggesting
from booking_sdk._base_client import AsyncAPIClient
from booking_sdk._lists import list_spec, page_iterator
from booking_sdk._parse import expect_empty_body, parser_for
from booking_sdk.options import RequestOptions
from booking_sdk.pagination import AsyncPage, AsyncPaginator, async_fetch_page
from booking_sdk.request import RequestSpec, get, idempotent_change, post_with_key, post_without_key

T = TypeVar("T")


class AsyncAPIResource(Suggesting):
    """The base class of the resources of a client. Its methods take the path below `/api/v1` in segments."""

    def __init__(self, client: AsyncAPIClient) -> None:
        self._client = client

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._client!r}>"

    async def _send(self, model: type[T], spec: RequestSpec) -> T:
        """Send a request, and return the resource of the response."""
        return await self._client._execute(spec, parser_for(model))

    async def _get(
        self, model: type[T], *segments: str, options: RequestOptions | None, query: Mapping[str, Any] | None = None
    ) -> T:
        """Return a resource."""
        return await self._send(model, get(*segments, query=query, options=options))

    async def _post(
        self, model: type[T], *segments: str, body: Mapping[str, Any], key: str | None, options: RequestOptions | None
    ) -> T:
        """Make a change that the service makes once for its Idempotency-Key, and return the resource."""
        return await self._send(model, post_with_key(*segments, body=body, key=key, options=options))

    async def _post_without_key(
        self, model: type[T], *segments: str, options: RequestOptions | None, body: Mapping[str, Any] | None = None
    ) -> T:
        """Make a change that has no Idempotency-Key, and return the resource."""
        return await self._send(model, post_without_key(*segments, body=body, options=options))

    async def _delete(self, *segments: str, options: RequestOptions | None) -> None:
        """Delete a resource."""
        await self._client._execute(idempotent_change("DELETE", *segments, options=options), expect_empty_body)

    async def _list(self, model: type[T], kind: type, *segments: str, arguments: Mapping[str, Any]) -> AsyncPage[T]:
        """Return one page of a list; `kind` is the TypedDict of the arguments."""
        spec = list_spec(kind, *segments, arguments=arguments)
        return await async_fetch_page(self._client, spec, model, AsyncPage)

    def _iterate(self, model: type[T], kind: type, *segments: str, arguments: Mapping[str, Any]) -> AsyncPaginator[T]:
        """Return the iterator over all items of a list; `kind` is the TypedDict of the arguments."""
        pages = page_iterator(kind, *segments, arguments=arguments)
        return AsyncPaginator(self._client, pages, model)
