"""`/api/v1/webhooks`: endpoints, their delivery log, tests, retries and recovery."""

from typing import Annotated

from fastapi import Query, Request

from booking_core import webhooks
from booking_core.base.context import Caller
from booking_core.base.errors import Conflict, NotFound, Unprocessable
from booking_core.db.engine import Tx
from booking_core.models.events import EventType
from booking_core.models.pages import Page
from booking_core.models.webhooks import (
    Delivery,
    DeliveryRecover,
    DeliveryRedeliver,
    DeliveryStatus,
    Recovered,
    SecretRotate,
    WebhookEndpoint,
    WebhookEndpointChange,
    WebhookEndpointCreate,
    WebhookEndpointWithSecret,
)
from booking_core.records.idempotency import Answer
from booking_server.api.commands import PlainCommand
from booking_server.api.dependencies import ApiRouter, Lane, ReadTx, ServiceDep, WebhooksManager, runs_in, service_of
from booking_server.api.errors import refusals
from booking_server.api.parameters import DeliveryId, ListQuery, PathId, QueryId
from booking_server.execution.service import Service
from booking_server.fastapi_ext.requests import BodyContext

router = ApiRouter(prefix="/api/v1/webhooks", tags=["Webhooks"])


_ADDRESS_NOT_PUBLIC = Unprocessable.at("url", "Webhooks go to public addresses.", "address_not_public")


def _schemes(request: Request) -> dict[str, bool]:
    """Return the context of a model with a URL: whether the settings allow plain http."""
    return {"allow_http": service_of(request).settings.webhook_allow_http}


async def _is_public(service: Service, caller: Caller, body: WebhookEndpointCreate | WebhookEndpointChange) -> bool:
    """Return whether the URL of the body, if it has one, leads to a public address; the rest is checked before DNS."""

    def look_up() -> bool:
        webhooks.check(caller, body)
        return body.url is None or service.is_public_address(body.url)

    return await service.look_up(look_up, organization_id=caller.organization.id)


# Endpoints -----------------------------------------------------------------------------------------------------------


@router.get(
    "",
    summary="List webhook endpoints",
    response_model=Page[WebhookEndpoint],
    response_description="Every endpoint.",
)
@runs_in(Lane.LISTS)
def list_webhooks(caller: WebhooksManager, tx: ReadTx) -> object:
    """Every endpoint on one page, the newest first."""
    return webhooks.find_all(tx, caller)


@router.post(
    "",
    summary="Create a webhook endpoint",
    status_code=201,
    response_model=WebhookEndpointWithSecret,
    response_description="The endpoint, with its secret.",
    responses=refusals(
        Conflict("endpoint_limit_reached", "The organization has 10 webhook endpoints."), _ADDRESS_NOT_PUBLIC
    ),
)
async def create_webhook(
    caller: WebhooksManager,
    command: PlainCommand,
    service: ServiceDep,
    body: Annotated[WebhookEndpointCreate, BodyContext(_schemes)],
) -> Answer:
    """The secret that signs its deliveries is in this answer and nowhere else. An organization has at most ten
    endpoints. Subscribing to a type also needs the read scope of its resource. The URL is https, its port is 443 or one
    from 1024 that is not known for another service (`port_not_allowed`), and its host resolves to public addresses only
    (`address_not_public`); all of it is checked again at every delivery."""
    is_public = await _is_public(service, caller, body)

    def create(tx: Tx) -> object:
        return webhooks.create(tx, caller, body, is_public=lambda _: is_public)

    return await command.write_audited(caller, "webhooks.create", create)


@router.get(
    "/{id}",
    summary="Get a webhook endpoint",
    response_model=WebhookEndpoint,
    response_description="The endpoint.",
)
@runs_in(Lane.LOOK_UPS)
def get_webhook(caller: WebhooksManager, tx: ReadTx, endpoint_id: PathId) -> object:
    return webhooks.get(tx, caller, endpoint_id)


@router.patch(
    "/{id}",
    summary="Change a webhook endpoint",
    response_model=WebhookEndpoint,
    response_description="The endpoint as it is now.",
    responses=refusals(_ADDRESS_NOT_PUBLIC),
)
async def change_webhook(
    caller: WebhooksManager,
    command: PlainCommand,
    service: ServiceDep,
    endpoint_id: PathId,
    body: Annotated[WebhookEndpointChange, BodyContext(_schemes)],
) -> Answer:
    """Fields that are not given are unchanged. With `status` `disabled` nothing more is sent: queued deliveries, and
    deliveries of later events, are `failed` with `endpoint_disabled`. With `enabled`, also after `auto_disabled`,
    failures and the 72 hours are counted from zero; failed deliveries are only sent again by `recover`. A new URL, new
    headers and `enabled` need the read scope of every event type that the endpoint subscribes to, or has in its log of
    deliveries."""
    is_public = await _is_public(service, caller, body)

    def change(tx: Tx) -> object:
        return webhooks.change(tx, caller, endpoint_id, body, is_public=lambda _: is_public)

    return await command.write_audited(caller, "webhooks.change", change, {"endpoint": endpoint_id})


@router.delete(
    "/{id}",
    summary="Delete a webhook endpoint",
    status_code=204,
    response_model=None,
    response_description="It is deleted.",
)
async def delete_webhook(caller: WebhooksManager, command: PlainCommand, endpoint_id: PathId) -> Answer:
    """Cannot be undone: its secrets are deleted, its log can no longer be read, queued deliveries are not sent."""

    def delete(tx: Tx) -> None:
        webhooks.delete(tx, caller, endpoint_id)

    return await command.write_audited(caller, "webhooks.delete", delete, {"endpoint": endpoint_id})


@router.post(
    "/{id}/rotate-secret",
    summary="Give a webhook endpoint a new secret",
    response_model=WebhookEndpointWithSecret,
    response_description="The endpoint, with its new secret.",
    responses=refusals(
        NotFound, Conflict("too_many_secrets", "Two former secrets are in use. An overlap of 0 seconds ends both now.")
    ),
)
async def rotate_webhook_secret(
    caller: WebhooksManager,
    command: PlainCommand,
    endpoint_id: PathId,
    body: SecretRotate = SecretRotate(),  # noqa: B008 - frozen
) -> Answer:
    """Until the overlap ends every delivery has a signature of each live secret, so receivers have time to change over.
    At most two former secrets are live beside the new secret, and `former_secrets` has their ends; a rotation that
    would end one of them earlier is refused. With an overlap of 0, for a secret that leaked, all end at once."""
    return await command.write_audited(
        caller,
        "webhooks.rotate_secret",
        lambda tx: webhooks.rotate_secret(tx, caller, endpoint_id, body),
        {"endpoint": endpoint_id},
    )


# Sending -------------------------------------------------------------------------------------------------------------


@router.post(
    "/{id}/test",
    summary="Send a ping to a webhook endpoint",
    status_code=202,
    response_model=Delivery,
    response_description="The delivery, queued.",
)
async def test_webhook(caller: WebhooksManager, command: PlainCommand, endpoint_id: PathId) -> Answer:
    """The event types that it subscribes to do not matter. To an enabled endpoint it is a delivery like any other, with
    its retries, and counts like one. A disabled endpoint gets one attempt, which does not count."""
    return await command.write_audited(
        caller, "webhooks.test", lambda tx: webhooks.send_test(tx, caller, endpoint_id), {"endpoint": endpoint_id}
    )


@router.post(
    "/{id}/recover",
    summary="Send the failed deliveries of a webhook endpoint again",
    status_code=202,
    response_model=Recovered,
    response_description="How many deliveries were queued, or would be.",
    responses=refusals(
        Conflict("endpoint_not_enabled", "The endpoint is not enabled."),
        Unprocessable.at("until", "The time ends before it begins.", "window_reversed"),
    ),
)
async def recover_webhook(
    caller: WebhooksManager, command: PlainCommand, endpoint_id: PathId, body: DeliveryRecover
) -> Answer:
    """Queues the failed and dead deliveries of a period, also of events that occurred while the endpoint was disabled.
    Each has six more attempts with the usual waits. Tests are not repeated. It needs the read scope of each type that
    it sends; `event_types` leaves the others out."""
    return await command.write_audited(
        caller,
        "webhooks.recover",
        lambda tx: webhooks.recover(tx, caller, endpoint_id, body),
        {"endpoint": endpoint_id},
    )


@router.post(
    "/{id}/redeliver",
    summary="Send an event to a webhook endpoint again",
    status_code=202,
    response_model=Delivery,
    response_description="The delivery, queued.",
    responses=refusals(
        Conflict("endpoint_not_enabled", "The endpoint is not enabled."),
        Unprocessable.at("event_id", "There is no such event, or it is no longer kept.", "unknown_event"),
    ),
)
async def redeliver_webhook(
    caller: WebhooksManager, command: PlainCommand, endpoint_id: PathId, body: DeliveryRedeliver
) -> Answer:
    """Queues an event that is still in the feed, also if it was delivered before, or is of a type that the endpoint
    does not subscribe to; it needs the read scope of the event's resource. The body and its `id` are the same as
    before, so a receiver that acts on each id once has to forget the id first. A delivery that waits for its next
    attempt is sent now, with six more attempts. A delivery that is due already is not queued again."""
    ids = {"endpoint": endpoint_id, "event": body.event_id}
    return await command.write_audited(
        caller, "webhooks.redeliver", lambda tx: webhooks.redeliver(tx, caller, endpoint_id, body), ids
    )


# The delivery log ----------------------------------------------------------------------------------------------------


class DeliveryQuery(ListQuery):
    """The filters of the delivery log."""

    status: DeliveryStatus | None = None
    """Only deliveries in this status."""
    event_type: EventType | None = None
    """Only deliveries of events of this type."""
    event_id: QueryId | None = None
    """Only the delivery of this event."""
    recovery_id: QueryId | None = None
    """Only deliveries that this recovery queued last."""


@router.get(
    "/{id}/deliveries",
    summary="List the deliveries of a webhook endpoint",
    response_model=Page[Delivery],
    response_description="A page of deliveries.",
)
@runs_in(Lane.LISTS)
def list_deliveries(
    caller: WebhooksManager, tx: ReadTx, endpoint_id: PathId, query: Annotated[DeliveryQuery, Query()]
) -> object:
    """Each event has one, with every attempt. They are kept for 30 days."""
    return webhooks.find_deliveries(
        tx,
        caller,
        query.page,
        endpoint_id,
        status=query.status,
        event_type=query.event_type,
        event_id=query.event_id,
        recovery_id=query.recovery_id,
    )


@router.get(
    "/{id}/deliveries/{deliveryId}",
    summary="Get a delivery",
    response_model=Delivery,
    response_description="The delivery.",
)
@runs_in(Lane.LOOK_UPS)
def get_delivery(caller: WebhooksManager, tx: ReadTx, endpoint_id: PathId, delivery_id: DeliveryId) -> object:
    """An attempt whose `duration_ms` is null is in progress, or its outcome is unknown and it was repeated."""
    return webhooks.get_delivery(tx, caller, endpoint_id, delivery_id)


@router.post(
    "/{id}/deliveries/{deliveryId}/retry",
    summary="Try a dead delivery once more",
    status_code=202,
    response_model=Delivery,
    response_description="The delivery, queued.",
    responses=refusals(Conflict("delivery_not_dead", webhooks.NOT_DEAD)),
)
async def retry_delivery(
    caller: WebhooksManager, command: PlainCommand, endpoint_id: PathId, delivery_id: DeliveryId
) -> Answer:
    """Queues one more attempt. When it fails too, the delivery is dead again. It needs the read scope of the event's
    resource."""
    ids = {"endpoint": endpoint_id, "delivery": delivery_id}
    return await command.write_audited(
        caller, "webhooks.retry", lambda tx: webhooks.retry(tx, caller, endpoint_id, delivery_id), ids
    )
