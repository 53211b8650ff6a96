"""The webhooks of the OpenAPI document: one for each event type, declared as on FastAPI's `app.webhooks`."""

import re
from functools import cache
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Header
from pydantic import AwareDatetime, BaseModel, Field, create_model

from booking_core.models.base import Id, Open, Resource
from booking_core.models.bookings import Booking, CancelReason, CancelReasonName
from booking_core.models.customers import Customer
from booking_core.models.departures import Departure
from booking_core.models.events import Envelope, EventType, EventTypeName
from booking_core.models.gift_cards import GiftCard
from booking_core.models.money import Money
from booking_core.models.webhooks import WebhookEndpoint
from booking_server.api.openapi import data

Changes = Annotated[
    dict[str, Any] | None,
    Field(
        default=None,
        description="The fields of `object` that differ, each with its whole value before the change. Absent from"
        " events that were published before this field was added.",
    ),
]


class BookingEventData(Resource):
    object: Booking
    """As REST shows it, with `manage_url` null."""


class BookingCancelledData(BookingEventData):
    reason: Open[CancelReason, CancelReasonName]
    """The cause of the cancellation."""


class PreviousDeparture(Resource):
    id: Id
    starts_at: AwareDatetime


class BookingUpdatedData(BookingEventData):
    changes: Changes


class BookingRescheduledData(BookingUpdatedData):
    previous_departure: PreviousDeparture
    """The departure it was moved from."""


class BookingRefundedData(BookingUpdatedData):
    refunded_amount: Money
    """The amount that was returned now."""
    total_refunded: Money
    """The amount that was returned of the booking's payment in all."""


class DepartureUpdatedData(Resource):
    object: Departure
    changes: Annotated[
        dict[str, Any] | None,
        Field(
            description="The fields of `object` that differ from its last event, each with its value there; null in the"
            " first event of a departure."
        ),
    ]


class CustomerEventData(Resource):
    object: Customer


class CustomerUpdatedData(CustomerEventData):
    changes: Changes


class GiftCardEventData(Resource):
    object: GiftCard
    """As lists show it, without its `code`."""


class GiftCardRedeemedData(GiftCardEventData):
    redeemed_amount: Money
    booking_id: Id


class GiftCardRestoredData(GiftCardEventData):
    restored_amount: Money
    booking_id: Id
    """The booking that was cancelled."""


class WebhookEventData(Resource):
    object: WebhookEndpoint


class WebhookFailingData(WebhookEventData):
    failing_since: AwareDatetime
    """The endpoint's last success; or when it was created or enabled, if that was later."""


class WebhookDeliveryDeadData(WebhookEventData):
    delivery_id: Id
    event_id: Id
    """Of the event that was not delivered."""
    event_type: Open[EventType, EventTypeName]


class Ping(Resource):
    message: str
    endpoint_id: Id


class PingData(Resource):
    object: Ping


_DATA: dict[EventType, type[Resource]] = {
    EventType.BOOKING_CREATED: BookingEventData,
    EventType.BOOKING_CONFIRMED: BookingEventData,
    EventType.BOOKING_CANCELLED: BookingCancelledData,
    EventType.BOOKING_RESCHEDULED: BookingRescheduledData,
    EventType.BOOKING_UPDATED: BookingUpdatedData,
    EventType.BOOKING_REFUNDED: BookingRefundedData,
    EventType.DEPARTURE_UPDATED: DepartureUpdatedData,
    EventType.CUSTOMER_CREATED: CustomerEventData,
    EventType.CUSTOMER_UPDATED: CustomerUpdatedData,
    EventType.GIFT_CARD_ISSUED: GiftCardEventData,
    EventType.GIFT_CARD_REDEEMED: GiftCardRedeemedData,
    EventType.GIFT_CARD_RESTORED: GiftCardRestoredData,
    EventType.WEBHOOK_FAILING: WebhookFailingData,
    EventType.WEBHOOK_AUTO_DISABLED: WebhookEventData,
    EventType.WEBHOOK_ENABLED: WebhookEventData,
    EventType.WEBHOOK_SECRET_ROTATED: WebhookEventData,
    EventType.WEBHOOK_DELIVERY_DEAD: WebhookDeliveryDeadData,
    EventType.PING: PingData,
}


def _model(kind: EventType) -> type[Resource]:
    """Return the envelope with the type and the data of one event type."""
    name = re.sub(r"[._]", " ", kind).title().replace(" ", "")
    fields: Any = {"type": (Literal.__getitem__(kind), ...), "data": (_DATA[kind], ...)}
    return create_model(f"{name}Event", __base__=Envelope, __doc__=data.examples()["events"][kind], **fields)


def _headers(kind: EventType) -> type[BaseModel]:
    """Return the model of the headers of a delivery, as in FastAPI's "Header Parameter Models"."""
    fields: Any = {
        name.lower().replace("-", "_"): (
            str,
            Field(alias=name, description=header["description"], examples=[header["example"]]),
        )
        for name, header in data.components()["delivery_headers"].items()
    }
    fields["svc_event_type"] = (
        Literal.__getitem__(kind),
        Field(alias="Svc-Event-Type", description="The same as `type` in the body."),
    )
    return create_model(f"{_DATA[kind].__name__}Headers", **fields)


def _endpoint(kind: EventType) -> Any:
    """Return the path operation that a receiver would implement."""

    def receive(body: Any, headers: Any) -> None: ...

    receive.__annotations__ = {
        "body": Annotated[_model(kind), Body()],
        "headers": Annotated[_headers(kind), Header(convert_underscores=False)],
        "return": None,
    }
    return receive


@cache
def router() -> APIRouter:
    """Return the webhooks as a router; its models are built once, when a document is first generated."""
    webhooks = APIRouter()
    for kind in EventType:
        webhooks.add_api_route(
            str(kind),
            _endpoint(kind),
            methods=["POST"],
            operation_id="on_" + kind.replace(".", "_"),
            tags=["Webhooks"],
            summary=data.examples()["events"][kind],
            description=data.webhook_description(),
            status_code=200,
            response_model=None,
            responses={
                "2XX": {"description": "The event is taken."},
                "default": {"description": "The attempt failed and is made again later."},
            },
        )
    return webhooks
