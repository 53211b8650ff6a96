"""The experiences of the organization's catalogue."""

from datetime import datetime
from typing import Any
from uuid import UUID

from booking_core.models.experiences import Experience
from booking_sdk._base_client import AsyncAPIResource
from booking_sdk._page_iterator import PageIterator
from booking_sdk._parse import parser_for
from booking_sdk._traceback_scrubbing import scrub_tracebacks
from booking_sdk.options import RequestOptions
from booking_sdk.pagination import AsyncPage, AsyncPaginator, async_fetch_page
from booking_sdk.params import SortOrder
from booking_sdk.request import get, path_segment, utc_timestamp


def _filters(published: bool | None, updated_since: datetime | None) -> dict[str, Any]:
    return {
        "published": published,
        "updated_since": None if updated_since is None else utc_timestamp("updated_since", updated_since),
    }


@scrub_tracebacks
class AsyncExperiences(AsyncAPIResource):
    """The experiences that guests can book, published or not. Needs the scope `experiences:read`."""

    async def list(
        self,
        *,
        published: bool | None = None,
        updated_since: datetime | None = None,
        limit: int = 25,
        order: SortOrder = "desc",
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncPage[Experience]:
        """List one page of experiences, by creation time.

        Args:
            published: Only published experiences, or only unpublished ones.
            updated_since: Only experiences that changed at or after this time.
            limit: The page size, from 1 to 100.
            order: `asc` for the oldest first.
            starting_after: The `next_cursor` of the page before.
            options: Settings for this call.
        """
        query = {
            **_filters(published, updated_since),
            "limit": limit,
            "order": order,
            "starting_after": starting_after,
        }
        spec = get("experiences", query=query, options=options)
        return await async_fetch_page(self._client, spec, Experience, AsyncPage)

    def iterate(
        self,
        *,
        published: bool | None = None,
        updated_since: datetime | None = None,
        order: SortOrder = "desc",
        page_size: int = 100,
        max_items: int | None = None,
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncPaginator[Experience]:
        """Iterate over all experiences, by creation time.

        Args:
            published: Only published experiences, or only unpublished ones.
            updated_since: Only experiences that changed at or after this time.
            order: `asc` for the oldest first.
            page_size: The number of experiences per request, from 1 to 100.
            max_items: The maximum number of experiences.
            starting_after: The `cursor` of an earlier iterator.
            options: Settings for each request.
        """
        query = {**_filters(published, updated_since), "order": order, "starting_after": starting_after}
        pages = PageIterator([get("experiences", query=query, options=options)], page_size, max_items)
        return AsyncPaginator(self._client, pages, Experience)

    async def get(self, experience_id: str | UUID, *, options: RequestOptions | None = None) -> Experience:
        """Return one experience.

        Args:
            experience_id: The id of the experience.
            options: Settings for this call.

        Raises:
            NotFoundError: No experience has this id.
        """
        spec = get("experiences", path_segment("experience_id", experience_id), options=options)
        return await self._client._execute(spec, parser_for(Experience))
