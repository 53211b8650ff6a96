"""Gift cards: list and get, with the code on request, and their transactions."""

from typing import Unpack
from uuid import UUID

from booking_core.models.gift_cards import GiftCard, GiftCardTransaction
from booking_sdk._resource import AsyncAPIResource
from booking_sdk._traceback_scrubbing import scrub_tracebacks
from booking_sdk.options import RequestOptions
from booking_sdk.pagination import AsyncPage, AsyncPaginator
from booking_sdk.params import IterateGiftCards, IterateItems, ListGiftCards, ListItems
from booking_sdk.request import path_segment


@scrub_tracebacks
class AsyncGiftCards(AsyncAPIResource):
    """Gift cards: prepaid amounts that pay for bookings. Needs the scope `gift_cards:read`."""

    async def list(self, **arguments: Unpack[ListGiftCards]) -> AsyncPage[GiftCard]:
        """List one page of gift cards without their codes, by creation time.

        Args:
            **arguments: Filters and paging, see `ListGiftCards`.
        """
        return await self._list(GiftCard, ListGiftCards, "gift-cards", arguments=arguments)

    def iterate(self, **arguments: Unpack[IterateGiftCards]) -> AsyncPaginator[GiftCard]:
        """Iterate over all gift cards without their codes, by creation time.

        Args:
            **arguments: Filters and paging, see `IterateGiftCards`.
        """
        return self._iterate(GiftCard, IterateGiftCards, "gift-cards", arguments=arguments)

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
        return await self._get(
            GiftCard, "gift-cards", path_segment("gift_card_id", gift_card_id), query=query, options=options
        )

    async def transactions(
        self, gift_card_id: str | UUID, **arguments: Unpack[ListItems]
    ) -> AsyncPage[GiftCardTransaction]:
        """List one page of the changes of a gift card's balance, by creation time.

        Args:
            gift_card_id: The id of the gift card.
            **arguments: The page, see `ListItems`.

        Raises:
            NotFoundError: No gift card has this id.
        """
        segments = ("gift-cards", path_segment("gift_card_id", gift_card_id), "transactions")
        return await self._list(GiftCardTransaction, ListItems, *segments, arguments=arguments)

    def iterate_transactions(
        self, gift_card_id: str | UUID, **arguments: Unpack[IterateItems]
    ) -> AsyncPaginator[GiftCardTransaction]:
        """Iterate over all changes of a gift card's balance, by creation time.

        Args:
            gift_card_id: The id of the gift card.
            **arguments: The pages, see `IterateItems`.
        """
        segments = ("gift-cards", path_segment("gift_card_id", gift_card_id), "transactions")
        return self._iterate(GiftCardTransaction, IterateItems, *segments, arguments=arguments)
