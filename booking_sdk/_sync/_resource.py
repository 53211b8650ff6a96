# Generated from booking_sdk/_resource.py by `make sync-client`. Do not edit.
"""The base class of the resources of the sync client: it sends their requests, and parses the responses."""

from collections.abc import Mapping
from typing import Any, TypeVar

from booking_core.models.suggestions import Suggesting
from booking_sdk._lists import list_spec, page_iterator
from booking_sdk._parse import expect_empty_body, parser_for
from booking_sdk._sync._base_client import APIClient
from booking_sdk._sync.pagination import Page, Paginator, fetch_page
from booking_sdk.options import RequestOptions
from booking_sdk.request import RequestSpec, get, idempotent_change, post_with_key, post_without_key

T = TypeVar("T")


class APIResource(Suggesting):
    """The base class of the resources of a client. Its methods take the path below `/api/v1` in segments."""

    def __init__(self, client: APIClient) -> None:
        self._client = client

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._client!r}>"

    def _send(self, model: type[T], spec: RequestSpec) -> T:
        """Send a request, and return the resource of the response."""
        return self._client._execute(spec, parser_for(model))

    def _get(
        self, model: type[T], *segments: str, options: RequestOptions | None, query: Mapping[str, Any] | None = None
    ) -> T:
        """Return a resource."""
        return self._send(model, get(*segments, query=query, options=options))

    def _post(
        self, model: type[T], *segments: str, body: Mapping[str, Any], key: str | None, options: RequestOptions | None
    ) -> T:
        """Make a change that the service makes once for its Idempotency-Key, and return the resource."""
        return self._send(model, post_with_key(*segments, body=body, key=key, options=options))

    def _post_without_key(
        self, model: type[T], *segments: str, options: RequestOptions | None, body: Mapping[str, Any] | None = None
    ) -> T:
        """Make a change that has no Idempotency-Key, and return the resource."""
        return self._send(model, post_without_key(*segments, body=body, options=options))

    def _delete(self, *segments: str, options: RequestOptions | None) -> None:
        """Delete a resource."""
        self._client._execute(idempotent_change("DELETE", *segments, options=options), expect_empty_body)

    def _list(self, model: type[T], kind: type, *segments: str, arguments: Mapping[str, Any]) -> Page[T]:
        """Return one page of a list; `kind` is the TypedDict of the arguments."""
        spec = list_spec(kind, *segments, arguments=arguments)
        return fetch_page(self._client, spec, model, Page)

    def _iterate(self, model: type[T], kind: type, *segments: str, arguments: Mapping[str, Any]) -> Paginator[T]:
        """Return the iterator over all items of a list; `kind` is the TypedDict of the arguments."""
        pages = page_iterator(kind, *segments, arguments=arguments)
        return Paginator(self._client, pages, model)
