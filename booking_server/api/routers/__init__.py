"""The routers of the API, one module for each resource."""

from fastapi import APIRouter

from booking_server.api.openapi import document
from booking_server.api.routers import (
    bookings,
    checkouts,
    customers,
    departures,
    events,
    experiences,
    gift_cards,
    holds,
    me,
    sandbox,
    webhooks,
)

ROUTERS: tuple[APIRouter, ...] = (
    me.router,
    bookings.router,
    holds.router,
    checkouts.router,
    departures.availability,
    departures.router,
    experiences.router,
    customers.router,
    gift_cards.router,
    events.router,
    webhooks.router,
    sandbox.router,
    document.router,
)
