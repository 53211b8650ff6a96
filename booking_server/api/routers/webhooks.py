"""`/api/v1/webhooks`: endpoints, their delivery log, and having something sent (again)."""

from collections.abc import Callable

import orjson

from booking_core import webhooks
from booking_core.db.engine import Tx
from booking_core.errors import Conflict, NotFound, Unprocessable
from booking_core.idempotency import Answer
from booking_core.models.events import EventType
from booking_core.models.pages import Page
from booking_core.models.scopes import Scope
from booking_core.models.webhooks import (
    Delivery,
    DeliveryRecover,
    DeliveryStatus,
    Recovered,
    SecretRotate,
    WebhookEndpoint,
    WebhookEndpointChange,
    WebhookEndpointCreate,
    WebhookEndpointWithSecret,
)
from booking_server.api import params
from booking_server.api.operations import Call, Operation
from booking_server.api.routers.paged import page_request


def _find_all(tx: Tx, call: Call) -> object:
    return webhooks.find_all(tx, call.caller)


def _get(tx: Tx, call: Call) -> object:
    return webhooks.get(tx, call.caller, call.ids["id"])


def _look_up(call: Call, is_public: Callable[[str], bool]) -> bool:
    """Whether the URL is public, if there is one. DNS is asked only for a request that is in order otherwise."""
    webhooks.check(call.caller, call.body)
    return call.body.url is None or is_public(call.body.url)


def _create(tx: Tx, call: Call) -> Answer:
    created = webhooks.create(tx, call.caller, call.body, is_public=lambda _: call.prepared)
    return Answer(201, orjson.dumps(created))


def _change(tx: Tx, call: Call) -> Answer:
    endpoint_id = call.ids["id"]
    changed = webhooks.change(tx, call.caller, endpoint_id, call.body, is_public=lambda _: call.prepared)
    return Answer(200, orjson.dumps(changed))


def _delete(tx: Tx, call: Call) -> Answer:
    webhooks.delete(tx, call.caller, call.ids["id"])
    return Answer(204, b"")


def _rotate_secret(tx: Tx, call: Call) -> Answer:
    rotated = webhooks.rotate_secret(tx, call.caller, call.ids["id"], call.body)
    return Answer(200, orjson.dumps(rotated))


def _send_test(tx: Tx, call: Call) -> Answer:
    return Answer(202, orjson.dumps(webhooks.send_test(tx, call.caller, call.ids["id"])))


def _recover(tx: Tx, call: Call) -> Answer:
    return Answer(202, orjson.dumps({"matched": webhooks.recover(tx, call.caller, call.ids["id"], call.body)}))


def _find_deliveries(tx: Tx, call: Call) -> object:
    query = call.query
    return webhooks.find_deliveries(
        tx,
        call.caller,
        page_request(call),
        call.ids["id"],
        status=query["status"],
        event_type=query["event_type"],
        event_id=query["event_id"],
    )


def _get_delivery(tx: Tx, call: Call) -> object:
    return webhooks.get_delivery(tx, call.caller, call.ids["id"], call.ids["deliveryId"])


def _retry(tx: Tx, call: Call) -> Answer:
    delivery = webhooks.retry(tx, call.caller, call.ids["id"], call.ids["deliveryId"])
    return Answer(202, orjson.dumps(delivery))


OPERATIONS = (
    Operation(
        id="list_webhooks",
        method="GET",
        path="/api/v1/webhooks",
        tag="Webhooks",
        summary="List webhook endpoints",
        description="Every endpoint on one page, the newest first.",
        scope=Scope.WEBHOOKS_MANAGE,
        act=_find_all,
        answers={200: ("Every endpoint.", Page[WebhookEndpoint])},
    ),
    Operation(
        id="create_webhook",
        method="POST",
        path="/api/v1/webhooks",
        tag="Webhooks",
        summary="Create a webhook endpoint",
        description=(
            "The secret that signs its deliveries is in this answer and nowhere else. An organization has at most ten "
            "endpoints. Subscribing to a type also needs the read scope of its resource. The URL is https, its port is "
            "443 or one from 1024 that is not known for another service (`port_not_allowed`), and its host resolves to "
            "public addresses only (`address_not_public`); all of it is checked again at every delivery."
        ),
        scope=Scope.WEBHOOKS_MANAGE,
        prepare=_look_up,
        write=_create,
        body=WebhookEndpointCreate,
        answers={201: ("The endpoint, with its secret.", WebhookEndpointWithSecret)},
        refusals=(Conflict, Unprocessable),
        example={
            "url": "https://hooks.example.com/booking",
            "event_types": ["booking.created", "booking.cancelled"],
            "description": "The calendar",
        },
    ),
    Operation(
        id="get_webhook",
        method="GET",
        path="/api/v1/webhooks/{id}",
        tag="Webhooks",
        summary="Get a webhook endpoint",
        scope=Scope.WEBHOOKS_MANAGE,
        act=_get,
        answers={200: ("The endpoint.", WebhookEndpoint)},
        refusals=(NotFound,),
    ),
    Operation(
        id="change_webhook",
        method="PATCH",
        path="/api/v1/webhooks/{id}",
        tag="Webhooks",
        summary="Change a webhook endpoint",
        description=(
            "What is not given stays as it is. With `status` `disabled` nothing more is sent, and what is queued is "
            "`failed` with `endpoint_disabled`; events that happen meanwhile are logged so too. With `enabled`, also "
            "after `auto_disabled`, failures and the 72 hours are counted anew; nothing that failed is sent again "
            "unless `recover` is asked for it. A new URL needs the read scope of everything that is subscribed to."
        ),
        scope=Scope.WEBHOOKS_MANAGE,
        prepare=_look_up,
        write=_change,
        body=WebhookEndpointChange,
        answers={200: ("The endpoint as it is now.", WebhookEndpoint)},
        refusals=(NotFound, Unprocessable),
        example={"status": "enabled"},
    ),
    Operation(
        id="delete_webhook",
        method="DELETE",
        path="/api/v1/webhooks/{id}",
        tag="Webhooks",
        summary="Delete a webhook endpoint",
        description="For good: its secrets are forgotten, its log can no longer be read, what is queued is not sent.",
        scope=Scope.WEBHOOKS_MANAGE,
        write=_delete,
        body_optional=True,
        answers={204: ("It is deleted.", None)},
        refusals=(NotFound,),
    ),
    Operation(
        id="rotate_webhook_secret",
        method="POST",
        path="/api/v1/webhooks/{id}/rotate-secret",
        tag="Webhooks",
        summary="Give a webhook endpoint a new secret",
        description=(
            "Until the overlap ends every delivery carries a signature of each live secret, so that receivers can "
            "change over at leisure. Beside the new one at most two former secrets are live; with an overlap of 0, for "
            "a secret that leaked, none is."
        ),
        scope=Scope.WEBHOOKS_MANAGE,
        write=_rotate_secret,
        body=SecretRotate,
        body_optional=True,
        answers={200: ("The endpoint, with its new secret.", WebhookEndpointWithSecret)},
        refusals=(NotFound,),
        example={"overlap_seconds": 86400},
    ),
    Operation(
        id="test_webhook",
        method="POST",
        path="/api/v1/webhooks/{id}/test",
        tag="Webhooks",
        summary="Send a ping to a webhook endpoint",
        description=(
            "Whatever it subscribes to. To an enabled endpoint it is a delivery like any other, with its retries, and "
            "counts like one. An endpoint that is off gets one attempt, by which nothing is judged."
        ),
        scope=Scope.WEBHOOKS_MANAGE,
        write=_send_test,
        body_optional=True,
        answers={202: ("The delivery, queued.", Delivery)},
        refusals=(NotFound,),
    ),
    Operation(
        id="recover_webhook",
        method="POST",
        path="/api/v1/webhooks/{id}/recover",
        tag="Webhooks",
        summary="Send again what a webhook endpoint did not get",
        description=(
            "Queues the failed and dead deliveries of a time, those of events that happened while the endpoint was off "
            "included. Each has six more attempts with the usual waits. Tests are left alone."
        ),
        scope=Scope.WEBHOOKS_MANAGE,
        write=_recover,
        body=DeliveryRecover,
        answers={202: ("How many deliveries were queued.", Recovered)},
        refusals=(NotFound, Conflict, Unprocessable),
        example={"since": "2026-11-20T00:00:00+01:00", "statuses": ["dead"]},
    ),
    Operation(
        id="list_deliveries",
        method="GET",
        path="/api/v1/webhooks/{id}/deliveries",
        tag="Webhooks",
        summary="List the deliveries of a webhook endpoint",
        description="One for each event, with every attempt, kept for 30 days.",
        scope=Scope.WEBHOOKS_MANAGE,
        act=_find_deliveries,
        query=(
            *params.LIST,
            params.choice("status", DeliveryStatus, "Only deliveries in this status."),
            params.choice("event_type", EventType, "Only deliveries of events of this type."),
            params.uuid("event_id", "Only the delivery of this event."),
        ),
        answers={200: ("A page of deliveries.", Page[Delivery])},
        refusals=(NotFound,),
    ),
    Operation(
        id="get_delivery",
        method="GET",
        path="/api/v1/webhooks/{id}/deliveries/{deliveryId}",
        tag="Webhooks",
        summary="Get a delivery",
        description=(
            "An attempt whose `duration_ms` is null is under way, or its outcome was never learnt: then it was made "
            "again."
        ),
        scope=Scope.WEBHOOKS_MANAGE,
        act=_get_delivery,
        answers={200: ("The delivery.", Delivery)},
        refusals=(NotFound,),
    ),
    Operation(
        id="retry_delivery",
        method="POST",
        path="/api/v1/webhooks/{id}/deliveries/{deliveryId}/retry",
        tag="Webhooks",
        summary="Try a dead delivery once more",
        description="Queues one more attempt. When it fails too, the delivery is dead again.",
        scope=Scope.WEBHOOKS_MANAGE,
        write=_retry,
        body_optional=True,
        answers={202: ("The delivery, queued.", Delivery)},
        refusals=(NotFound, Conflict),
    ),
)
