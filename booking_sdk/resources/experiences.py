"""The catalogue."""

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from booking_core.models.experiences import Experience
from booking_sdk._discreet import discreet_methods
from booking_sdk._parse import as_type
from booking_sdk.options import RequestOptions
from booking_sdk.paging import AsyncPage, AsyncPaginator, Page, Paginator, Walk
from booking_sdk.request import get, instant, segment

if TYPE_CHECKING:
    from booking_sdk.client import AsyncBookingClient, BookingClient


def _filters(published: bool | None, updated_since: datetime | None) -> dict[str, Any]:
    return {
        "published": published,
        "updated_since": None if updated_since is None else instant("updated_since", updated_since),
    }


@discreet_methods
class AsyncExperiences:
    """What guests can book, published or not."""

    def __init__(self, client: "AsyncBookingClient") -> None:
        self._client = client

    async def list(
        self,
        *,
        published: bool | None = None,
        updated_since: datetime | None = None,
        limit: int = 25,
        order: Literal["asc", "desc"] = "desc",
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncPage[Experience]:
        """One page of experiences, by creation.

        Args:
            published: only published ones, or only unpublished ones.
            updated_since: only those changed at or after it.
        """
        query = {
            **_filters(published, updated_since),
            "limit": limit,
            "order": order,
            "starting_after": starting_after,
        }
        return await self._client._page(get("experiences", query=query, options=options), Experience, AsyncPage)

    def iterate(
        self,
        *,
        published: bool | None = None,
        updated_since: datetime | None = None,
        order: Literal["asc", "desc"] = "desc",
        page_size: int = 100,
        max_items: int | None = None,
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncPaginator[Experience]:
        """Every experience, page after page."""
        query = {**_filters(published, updated_since), "order": order, "starting_after": starting_after}
        walk = Walk([get("experiences", query=query, options=options)], page_size, max_items)
        return AsyncPaginator(self._client, walk, Experience)

    async def get(self, experience_id: str | UUID, *, options: RequestOptions | None = None) -> Experience:
        """One experience.

        Raises:
            NotFoundError: there is none with this id.
        """
        spec = get("experiences", segment("experience_id", experience_id), options=options)
        return await self._client._run(spec, as_type(Experience))


# Made from the classes above by tests/booking_sdk/unasync.py; change those, and run it. -------------------------------


@discreet_methods
class Experiences:
    """What guests can book, published or not."""

    def __init__(self, client: "BookingClient") -> None:
        self._client = client

    def list(
        self,
        *,
        published: bool | None = None,
        updated_since: datetime | None = None,
        limit: int = 25,
        order: Literal["asc", "desc"] = "desc",
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> Page[Experience]:
        """One page of experiences, by creation.

        Args:
            published: only published ones, or only unpublished ones.
            updated_since: only those changed at or after it.
        """
        query = {
            **_filters(published, updated_since),
            "limit": limit,
            "order": order,
            "starting_after": starting_after,
        }
        return self._client._page(get("experiences", query=query, options=options), Experience, Page)

    def iterate(
        self,
        *,
        published: bool | None = None,
        updated_since: datetime | None = None,
        order: Literal["asc", "desc"] = "desc",
        page_size: int = 100,
        max_items: int | None = None,
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> Paginator[Experience]:
        """Every experience, page after page."""
        query = {**_filters(published, updated_since), "order": order, "starting_after": starting_after}
        walk = Walk([get("experiences", query=query, options=options)], page_size, max_items)
        return Paginator(self._client, walk, Experience)

    def get(self, experience_id: str | UUID, *, options: RequestOptions | None = None) -> Experience:
        """One experience.

        Raises:
            NotFoundError: there is none with this id.
        """
        spec = get("experiences", segment("experience_id", experience_id), options=options)
        return self._client._run(spec, as_type(Experience))
