"""Suggest the command that lists a resource which was not found."""

import re
from collections.abc import Mapping

LISTS: Mapping[str, str] = {
    "organization": "booking orgs list lists the organizations",
    "key": "booking keys list --org SLUG lists the keys",
    "experience": "booking experiences list lists the experiences",
    "departure": "booking availability lists the departures",
    "booking": "booking bookings list lists the bookings",
    "checkout": "booking bookings list --status pending lists the bookings that wait for a payment",
    "customer": "booking customers list lists the customers",
    "gift card": "booking gift-cards list lists the gift cards",
    "event": "booking events list lists the events, which are kept for 90 days",
    "endpoint": "booking webhooks list lists the endpoints",
    "delivery": "booking webhooks deliveries list ENDPOINT lists the deliveries, which are kept for 30 days",
    "recorded payment": "booking payments list BOOKING lists the recorded payments",
    "mail": "booking mails list lists the mails",
    "hold": "a hold expires; booking holds create creates a new one",
    "refund": "booking refunds list --org SLUG lists the refunds",
}
"""The hint for each noun."""

_PATHS: tuple[tuple[str, str, str], ...] = (
    ("POST", r"/(bookings|bookings/quote|checkouts|holds)", "departure"),
    (".*", r"/holds/.*", "hold"),
    (".*", r"/checkouts/.*", "checkout"),
    (".*", r"/bookings/.*", "booking"),
    (".*", r"/departures/.*", "departure"),
    (".*", r"/events/.*", "event"),
    (".*", r"/webhooks/[^/]+/deliveries/.*", "delivery"),
    (".*", r"/webhooks/.*", "endpoint"),
)
_MESSAGE = re.compile(r"There is no (?:such )?([a-z]+(?: [a-z]+)?)(?= '|[.,;])")


def hint_of_request(method: str, path: str) -> str | None:
    """Return the hint for a request with the response 404."""
    resource = path.partition("/api/v1")[2]
    for verb, pattern, noun in _PATHS:
        if re.fullmatch(verb, method) and re.fullmatch(pattern, resource):
            also = f"; {LISTS['endpoint']}" if noun == "delivery" else ""
            return LISTS[noun] + also
    return _hint_of_resource(resource)


def _hint_of_resource(path: str) -> str | None:
    """Return the hint for `/RESOURCE/ID`, if the SDK has the resource: its command has the same name."""
    from booking_sdk import BookingClient

    name, _, row_id = path.removeprefix("/").partition("/")
    if not row_id or not hasattr(BookingClient, name.replace("-", "_")):
        return None
    return f"booking {name} list lists the {name.replace('-', ' ')}"


def hint_of_message(message: str) -> str | None:
    """Return the hint for a message such as `There is no such booking.`"""
    match = _MESSAGE.match(message)
    return LISTS.get(match[1]) if match else None
