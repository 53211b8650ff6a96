"""`/api/v1/gift-cards`: list, get, and the code for whoever asks for it by name."""

from booking_core import gift_cards
from booking_core.db.engine import Tx
from booking_core.errors import NotFound
from booking_core.models.gift_cards import GiftCard, GiftCardStatus
from booking_core.models.pages import Page
from booking_core.models.scopes import Scope
from booking_server.api import params
from booking_server.api.operations import Call, Operation
from booking_server.api.routers.paged import page_request


def _find(tx: Tx, call: Call) -> object:
    query = call.query
    return gift_cards.find(
        tx, call.caller, page_request(call), status=query["status"], updated_since=query["updated_since"]
    )


def _get(tx: Tx, call: Call) -> object:
    wanted = (call.query["include"] or "").split(",")
    return gift_cards.get(tx, call.caller, call.ids["id"], include_code="code" in wanted)


OPERATIONS = (
    Operation(
        id="list_gift_cards",
        method="GET",
        path="/api/v1/gift-cards",
        tag="Gift cards",
        summary="List gift cards",
        description="The redeemable code is never listed.",
        scope=Scope.GIFT_CARDS_READ,
        act=_find,
        query=(
            *params.LIST,
            params.choice("status", GiftCardStatus, "Only cards in this status."),
            params.instant("updated_since", "Only cards changed at or after it."),
        ),
        answers={200: ("A page of gift cards.", Page[GiftCard])},
    ),
    Operation(
        id="get_gift_card",
        method="GET",
        path="/api/v1/gift-cards/{id}",
        tag="Gift cards",
        summary="Get a gift card",
        description=(
            "With `include=code` the answer holds the code: a payment instrument, to be asked for only when it is "
            "about to be handed over."
        ),
        scope=Scope.GIFT_CARDS_READ,
        act=_get,
        query=(params.text("include", "Extra fields, separated by commas. The only one is `code`.", example="code"),),
        answers={200: ("The gift card.", GiftCard)},
        refusals=(NotFound,),
    ),
)
