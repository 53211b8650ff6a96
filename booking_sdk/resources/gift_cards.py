"""Gift cards: list, and get, with the code for whoever asks for it by name."""

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from booking_core.models.gift_cards import GiftCardStatus
from booking_sdk._discreet import discreet_methods
from booking_sdk._parse import as_type
from booking_sdk.models import GiftCard
from booking_sdk.options import RequestOptions
from booking_sdk.paging import AsyncPage, AsyncPaginator, Page, Paginator, Walk
from booking_sdk.request import get, instant, segment

if TYPE_CHECKING:
    from booking_sdk.client import AsyncBookingClient, BookingClient

StatusFilter = GiftCardStatus | Literal["active", "expired", "inactive"]


def _filters(status: StatusFilter | None, updated_since: datetime | None) -> dict[str, Any]:
    since = None if updated_since is None else instant("updated_since", updated_since)
    return {"status": status, "updated_since": since}


@discreet_methods
class AsyncGiftCards:
    """Prepaid amounts that pay for bookings."""

    def __init__(self, client: "AsyncBookingClient") -> None:
        self._client = client

    async def list(
        self,
        *,
        status: StatusFilter | None = None,
        updated_since: datetime | None = None,
        limit: int = 25,
        order: Literal["asc", "desc"] = "desc",
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncPage[GiftCard]:
        """One page of gift cards, by creation, without their codes.

        Args:
            updated_since: only those changed at or after it.
        """
        query = {**_filters(status, updated_since), "limit": limit, "order": order, "starting_after": starting_after}
        return await self._client._page(get("gift-cards", query=query, options=options), GiftCard, AsyncPage)

    def iterate(
        self,
        *,
        status: StatusFilter | None = None,
        updated_since: datetime | None = None,
        order: Literal["asc", "desc"] = "desc",
        page_size: int = 100,
        max_items: int | None = None,
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncPaginator[GiftCard]:
        """Every gift card, page after page."""
        query = {**_filters(status, updated_since), "order": order, "starting_after": starting_after}
        walk = Walk([get("gift-cards", query=query, options=options)], page_size, max_items)
        return AsyncPaginator(self._client, walk, GiftCard)

    async def get(
        self, gift_card_id: str | UUID, *, include_code: bool = False, options: RequestOptions | None = None
    ) -> GiftCard:
        """One gift card.

        Args:
            include_code: with the code that redeems it: money, to be asked for only when it is handed over.

        Raises:
            NotFoundError: there is none with this id.
        """
        query = {"include": "code" if include_code else None}
        spec = get("gift-cards", segment("gift_card_id", gift_card_id), query=query, options=options)
        return await self._client._run(spec, as_type(GiftCard))


# Made from the classes above by tests/booking_sdk/unasync.py; change those, and run it. -------------------------------


@discreet_methods
class GiftCards:
    """Prepaid amounts that pay for bookings."""

    def __init__(self, client: "BookingClient") -> None:
        self._client = client

    def list(
        self,
        *,
        status: StatusFilter | None = None,
        updated_since: datetime | None = None,
        limit: int = 25,
        order: Literal["asc", "desc"] = "desc",
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> Page[GiftCard]:
        """One page of gift cards, by creation, without their codes.

        Args:
            updated_since: only those changed at or after it.
        """
        query = {**_filters(status, updated_since), "limit": limit, "order": order, "starting_after": starting_after}
        return self._client._page(get("gift-cards", query=query, options=options), GiftCard, Page)

    def iterate(
        self,
        *,
        status: StatusFilter | None = None,
        updated_since: datetime | None = None,
        order: Literal["asc", "desc"] = "desc",
        page_size: int = 100,
        max_items: int | None = None,
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> Paginator[GiftCard]:
        """Every gift card, page after page."""
        query = {**_filters(status, updated_since), "order": order, "starting_after": starting_after}
        walk = Walk([get("gift-cards", query=query, options=options)], page_size, max_items)
        return Paginator(self._client, walk, GiftCard)

    def get(
        self, gift_card_id: str | UUID, *, include_code: bool = False, options: RequestOptions | None = None
    ) -> GiftCard:
        """One gift card.

        Args:
            include_code: with the code that redeems it: money, to be asked for only when it is handed over.

        Raises:
            NotFoundError: there is none with this id.
        """
        query = {"include": "code" if include_code else None}
        spec = get("gift-cards", segment("gift_card_id", gift_card_id), query=query, options=options)
        return self._client._run(spec, as_type(GiftCard))
