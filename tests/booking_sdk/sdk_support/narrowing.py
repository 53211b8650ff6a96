"""Events told apart by their type, as a type checker sees it; each reveal is compared by `test_typing`."""

from typing import reveal_type

from booking_sdk import AnyEvent, Booking, BookingClient, Event, Feed, UnknownEvent, unwrap


def by_text(event: AnyEvent) -> None:
    if event.type == "booking.cancelled":
        reveal_type(event)  # BookingCancelled
        reveal_type(event.data)  # CancellationData
    elif event.type == "gift_card.redeemed":
        reveal_type(event)  # GiftCardRedeemed
        reveal_type(event.data.booking_id)  # str
    elif event.type == "booking.updated":
        reveal_type(event)  # BookingUpdated
        reveal_type(event.data.changes)  # dict[str, Any] | None
    elif isinstance(event, UnknownEvent):
        reveal_type(event.data)  # dict[str, Any]


def by_one_of_several(event: AnyEvent) -> None:
    if event.type == "customer.created" or event.type == "customer.updated":
        reveal_type(event.data.object)  # Customer
    if event.type == "customer.updated":
        reveal_type(event.data)  # CustomerUpdateData
    if event.type != "ping":
        return
    reveal_type(event.data.object)  # PingObject


def as_given(client: BookingClient, body: bytes) -> None:
    for event in client.events.follow(poll=None):
        if event.type == "customer.created":
            reveal_type(event)  # CustomerCreated
    for booked in client.events.follow(types=["booking.*"]):
        reveal_type(booked.data.object)  # Booking
    for changed in client.events.iterate(types=["departure.updated"], order="asc"):
        reveal_type(changed)  # DepartureUpdated
    for listed in client.events.list(types=["gift_card.redeemed"]).data:
        reveal_type(listed.data.object)  # GiftCard
    feed: Feed = client.events.follow(types=["booking.*", "customer.created"])
    for event in feed:
        if event.type == "customer.created":
            reveal_type(event)  # CustomerCreated
    one = client.events.get("e1")
    if one.type == "webhook.delivery_dead":
        reveal_type(one.data)  # DeliveryDeadData
    delivered = unwrap(body, {}, "whsec_x")
    if delivered.type == "booking.created":
        reveal_type(delivered.data.object)  # Booking


def as_a_model(client: BookingClient) -> None:
    reveal_type(client.request("GET", "/api/v1/events/e1", cast_to=Event))  # Event
    reveal_type(Event.model_validate({}))  # Event


def statuses(booking: Booking) -> bool:
    return booking.status == "confirmed" or booking.payment.status == "of tomorrow"
