"""What to look at when a thing is not found: one command for each noun, whether the service or the database said so."""

import re
from collections.abc import Mapping

LISTS: Mapping[str, str] = {
    "organization": "booking orgs list shows the organizations",
    "key": "booking keys list --org SLUG shows the keys",
    "experience": "booking experiences list shows the experiences",
    "departure": "booking availability shows the departures",
    "booking": "booking bookings list shows the bookings",
    "customer": "booking customers list shows the customers",
    "gift card": "booking gift-cards list shows the gift cards",
    "event": "booking events list shows the events, which are kept for 90 days",
    "endpoint": "booking webhooks list shows the endpoints",
    "delivery": "booking webhooks deliveries list ENDPOINT shows the deliveries, which are kept for 30 days",
    "recorded payment": "booking payments list BOOKING shows the payments that were recorded",
    "mail": "booking mails list shows the mails",
    "hold": "a hold ends by itself; booking storefront hold makes another",
    "refund": "booking refunds list --org SLUG shows the refunds",
}
"""The hint for each noun."""

_PATHS: tuple[tuple[str, str, str], ...] = (
    ("POST", r"/bookings", "departure"),
    (".*", r"/bookings/.*", "booking"),
    (".*", r"/experiences/.*", "experience"),
    (".*", r"/customers/.*", "customer"),
    (".*", r"/gift-cards/.*", "gift card"),
    (".*", r"/events/.*", "event"),
    (".*", r"/webhooks/[^/]+/deliveries/.*", "delivery"),
    (".*", r"/webhooks/.*", "endpoint"),
)
_SENTENCE = re.compile(r"There is no (?:such )?([a-z]+(?: [a-z]+)?)(?= '|[.,;])")


def hint_of_request(method: str, path: str) -> str | None:
    """Return the hint for a request that was answered 404; the path is that of the API."""
    place = path.partition("/api/v1")[2]
    for verb, pattern, noun in _PATHS:
        if re.fullmatch(verb, method) and re.fullmatch(pattern, place):
            also = f"; {LISTS['endpoint']}" if noun == "delivery" else ""
            return LISTS[noun] + also
    return None


def hint_of_sentence(message: str) -> str | None:
    """Return the hint for a sentence such as `There is no such booking.`"""
    found = _SENTENCE.match(message)
    return LISTS.get(found[1]) if found else None
