"""Every operation of the API, one module for each resource: parse, call one door, answer."""

from booking_server.api.operations import Operation
from booking_server.api.routers import availability, bookings, customers, events, experiences, gift_cards, me, webhooks

OPERATIONS: tuple[Operation, ...] = (
    *me.OPERATIONS,
    *experiences.OPERATIONS,
    *availability.OPERATIONS,
    *bookings.OPERATIONS,
    *customers.OPERATIONS,
    *gift_cards.OPERATIONS,
    *events.OPERATIONS,
    *webhooks.OPERATIONS,
)
