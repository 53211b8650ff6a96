"""Gift cards: list and get, with the code on request, and their transactions."""

from datetime import datetime
from typing import Any
from uuid import UUID

from booking_core.models.gift_cards import GiftCard, GiftCardTransaction
from booking_sdk._base_client import AsyncAPIResource
from booking_sdk._page_iterator import PageIterator
from booking_sdk._parse import parser_for
from booking_sdk._traceback_scrubbing import scrub_tracebacks
from booking_sdk.options import RequestOptions
from booking_sdk.pagination import AsyncPage, AsyncPaginator, async_fetch_page
from booking_sdk.params import GiftCardStatusParam, SortOrder
from booking_sdk.request import get, path_segment, utc_timestamp


def _filters(status: GiftCardStatusParam | None, updated_since: datetime | None) -> dict[str, Any]:
    since = None if updated_since is None else utc_timestamp("updated_since", updated_since)
    return {"status": status, "updated_since": since}


@scrub_tracebacks
class AsyncGiftCards(AsyncAPIResource):
    """Gift cards: prepaid amounts that pay for bookings. Needs the scope `gift_cards:read`."""

    async def list(
        self,
        *,
        status: GiftCardStatusParam | None = None,
        updated_since: datetime | None = None,
        limit: int = 25,
        order: SortOrder = "desc",
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncPage[GiftCard]:
        """List one page of gift cards without their codes, by creation time.

        Args:
            status: Only gift cards with this status.
            updated_since: Only gift cards that changed at or after this time.
            limit: The page size, from 1 to 100.
            order: `asc` for the oldest first.
            starting_after: The `next_cursor` of the page before.
            options: Settings for this call.
        """
        query = {**_filters(status, updated_since), "limit": limit, "order": order, "starting_after": starting_after}
        spec = get("gift-cards", query=query, options=options)
        return await async_fetch_page(self._client, spec, GiftCard, AsyncPage)

    def iterate(
        self,
        *,
        status: GiftCardStatusParam | None = None,
        updated_since: datetime | None = None,
        order: SortOrder = "desc",
        page_size: int = 100,
        max_items: int | None = None,
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncPaginator[GiftCard]:
        """Iterate over all gift cards without their codes, by creation time.

        Args:
            status: Only gift cards with this status.
            updated_since: Only gift cards that changed at or after this time.
            order: `asc` for the oldest first.
            page_size: The number of gift cards per request, from 1 to 100.
            max_items: The maximum number of gift cards.
            starting_after: The `cursor` of an earlier iterator.
            options: Settings for each request.
        """
        query = {**_filters(status, updated_since), "order": order, "starting_after": starting_after}
        pages = PageIterator([get("gift-cards", query=query, options=options)], page_size, max_items)
        return AsyncPaginator(self._client, pages, GiftCard)

    async def get(
        self, gift_card_id: str | UUID, *, include_code: bool = False, options: RequestOptions | None = None
    ) -> GiftCard:
        """Return one gift card.

        Args:
            gift_card_id: The id of the gift card.
            include_code: True to include the code that redeems the card. The code is money: request it only to hand
                it over.
            options: Settings for this call.

        Raises:
            NotFoundError: No gift card has this id.
        """
        query = {"include": "code" if include_code else None}
        spec = get("gift-cards", path_segment("gift_card_id", gift_card_id), query=query, options=options)
        return await self._client._execute(spec, parser_for(GiftCard))

    async def transactions(
        self,
        gift_card_id: str | UUID,
        *,
        limit: int = 25,
        order: SortOrder = "desc",
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncPage[GiftCardTransaction]:
        """List one page of the changes of a gift card's balance, by creation time.

        Args:
            gift_card_id: The id of the gift card.
            limit: The page size, from 1 to 100.
            order: `asc` for the oldest first.
            starting_after: The `next_cursor` of the page before.
            options: Settings for this call.

        Raises:
            NotFoundError: No gift card has this id.
        """
        query = {"limit": limit, "order": order, "starting_after": starting_after}
        segment = path_segment("gift_card_id", gift_card_id)
        spec = get("gift-cards", segment, "transactions", query=query, options=options)
        return await async_fetch_page(self._client, spec, GiftCardTransaction, AsyncPage)

    def iterate_transactions(
        self,
        gift_card_id: str | UUID,
        *,
        order: SortOrder = "desc",
        page_size: int = 100,
        max_items: int | None = None,
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncPaginator[GiftCardTransaction]:
        """Iterate over all changes of a gift card's balance, by creation time.

        Args:
            gift_card_id: The id of the gift card.
            order: `asc` for the oldest first.
            page_size: The number of transactions per request, from 1 to 100.
            max_items: The maximum number of transactions.
            starting_after: The `cursor` of an earlier iterator.
            options: Settings for each request.
        """
        query = {"order": order, "starting_after": starting_after}
        segment = path_segment("gift_card_id", gift_card_id)
        spec = get("gift-cards", segment, "transactions", query=query, options=options)
        return AsyncPaginator(self._client, PageIterator([spec], page_size, max_items), GiftCardTransaction)
