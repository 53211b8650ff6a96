"""Explains a delivery in a sentence: its result, or the reason why it waits."""

from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from booking_cli.client import api_client
from booking_cli.framework.formatting import counted, shortened

if TYPE_CHECKING:
    from booking_sdk import BookingClient

Json = dict[str, Any]

EARLIER_MAX = 5
"""Earlier events about the same resource that are looked up."""


def explain(client: "BookingClient", delivery: Json) -> str:
    """Return the sentence about a delivery."""
    endpoint = api_client.get(client, f"webhooks/{delivery['endpoint_id']}")
    if delivery["status"] != "queued":
        return _ended(delivery, endpoint)
    unrecorded = [attempt["started_at"] for attempt in delivery["attempts"][-1:] if attempt["duration_ms"] is None]
    due = delivery["next_attempt_at"]
    # A delivery that is due again after its attempt began has lost it with its worker.
    if unrecorded and datetime.fromisoformat(due) <= datetime.fromisoformat(unrecorded[0]):
        return f"An attempt is under way since {shortened(unrecorded[0])}."
    if endpoint["status"] != "enabled" and delivery["trigger"] != "test":
        return f"Not sent: endpoint disabled since {shortened(endpoint['disabled_at'])}."
    if delivery["attempt_count"] and (delivery["last_error"] or unrecorded):
        return f"Waits for the retry at {shortened(due)}, after {_answer(delivery)} from {_host(endpoint)}."
    earlier = None if delivery["attempt_count"] else _earlier(client, delivery)
    if earlier is not None:
        resource = earlier["resource_type"].replace("_", " ")
        return f"Waits for the first attempt of event {earlier['sequence']} of the same {resource}."
    limit = endpoint["max_per_second"]
    bound = f"; the endpoint gets at most {limit} requests in a second" if limit else ""
    return f"Waits for a worker, due since {shortened(due)}{bound}."


def _ended(delivery: Json, endpoint: Json) -> str:
    at, attempts = shortened(delivery["completed_at"]), counted(len(delivery["attempts"]), "attempt")
    if delivery["status"] == "succeeded":
        return f"Delivered at {at}, after {attempts}."
    if delivery["status"] == "dead":
        return f"Dead since {at}, after {attempts}, the last with {_answer(delivery)} from {_host(endpoint)}."
    if endpoint["status"] != "enabled":
        return f"Not sent: endpoint disabled since {shortened(endpoint['disabled_at'])}."
    return f"Not sent: the endpoint was disabled at {at}. Send it with booking webhooks redeliver or recover."


def _earlier(client: "BookingClient", delivery: Json) -> Json | None:
    """Return the event whose first attempt the delivery waits for; None when there is none, or the key may not read
    the events."""
    from booking_sdk import PermissionDeniedError

    try:
        event = api_client.get(client, f"events/{delivery['event_id']}")
        about = {"resource_id": event["resource_id"], "order": "desc", "limit": 100}
        events = api_client.fetch_page(client, "events", about)["data"] if event["resource_id"] else []
    except PermissionDeniedError:
        return None
    earlier = [other for other in events if other["sequence"] < event["sequence"]]
    for candidate in earlier[:EARLIER_MAX]:
        path = f"webhooks/{delivery['endpoint_id']}/deliveries"
        page = api_client.fetch_page(client, path, {"event_id": candidate["id"]})
        if any(other["status"] == "queued" and not other["attempt_count"] for other in page["data"]):
            return dict(candidate)
    return None


def _answer(delivery: Json) -> str:
    """Return the answer to the last attempt: its status, or the error of one without an answer."""
    return str(delivery["last_response_status"] or (delivery["last_error"] or "no answer").replace("_", " "))


def _host(endpoint: Json) -> str:
    return urlsplit(endpoint["url"]).hostname or endpoint["url"]
