"""`/api/v1/gift-cards`: list, get, the code on request, and transactions."""

from typing import Annotated

import pydantic
from fastapi import Query

from booking_core.models.gift_cards import GiftCard, GiftCardStatus, GiftCardTransaction
from booking_core.models.pages import Page
from booking_core.payments import gift_cards
from booking_server.api import parameters
from booking_server.api.dependencies import ApiRouter, GiftCardsReader, Lane, ReadTx, runs_in
from booking_server.api.parameters import ListQuery, PathId, Text, Timestamp

router = ApiRouter(prefix="/api/v1/gift-cards", tags=["Gift cards"])


class GiftCardQuery(ListQuery):
    """The filters of the list of gift cards."""

    status: GiftCardStatus | None = None
    """Only cards in this status."""
    updated_since: Timestamp | None = None
    """Only cards changed at or after it."""


class IncludeQuery(parameters.QueryParameters):
    """Fields that are omitted unless the request names them."""

    include: Text | None = pydantic.Field(None, examples=["code"])
    """Extra fields, separated by commas. The only one is `code`."""


@router.get(
    "",
    summary="List gift cards",
    response_model=Page[GiftCard],
    response_description="A page of gift cards.",
)
@runs_in(Lane.LISTS)
def list_gift_cards(caller: GiftCardsReader, tx: ReadTx, query: Annotated[GiftCardQuery, Query()]) -> object:
    """The redeemable code is never listed."""
    since = query.instant("updated_since", caller)
    return gift_cards.find(tx, caller, query.page, status=query.status, updated_since=since)


@router.get(
    "/{id}",
    summary="Get a gift card",
    response_model=GiftCard,
    response_description="The gift card.",
)
@runs_in(Lane.LOOK_UPS, has_etag=True)
def get_gift_card(
    caller: GiftCardsReader, tx: ReadTx, gift_card_id: PathId, query: Annotated[IncludeQuery, Query()]
) -> object:
    """With `include=code` the answer has the code, which is a means of payment: request it only to hand it over."""
    include_code = "code" in (query.include or "").split(",")
    return gift_cards.get(tx, caller, gift_card_id, include_code=include_code)


@router.get(
    "/{id}/transactions",
    summary="List the transactions of a gift card",
    response_model=Page[GiftCardTransaction],
    response_description="A page of transactions.",
)
@runs_in(Lane.LISTS)
def list_gift_card_transactions(
    caller: GiftCardsReader, tx: ReadTx, gift_card_id: PathId, query: Annotated[ListQuery, Query()]
) -> object:
    """Lists the changes of the card's balance, from its issue: the balance is the sum of all transactions."""
    return gift_cards.find_transactions(tx, caller, query.page, gift_card_id)
