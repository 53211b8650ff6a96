"""Webhook endpoints and their deliveries; and the receiver's side, `unwrap`."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from booking_core.models.events import EventType
from booking_core.models.webhooks import (
    Delivery,
    DeliveryStatus,
    RecoverableStatus,
    Recovered,
    WantedStatus,
    WebhookEndpoint,
)
from booking_sdk._discreet import discreet_methods
from booking_sdk._parse import as_type, nothing
from booking_sdk.errors import ConfigurationError
from booking_sdk.models import AnyEvent, WebhookEndpointWithSecret
from booking_sdk.options import RequestOptions
from booking_sdk.paging import AsyncPage, AsyncPaginator, Page, Paginator, Walk
from booking_sdk.receive import unwrap
from booking_sdk.request import UNSET, Unset, absolute, get, given, instant, once, segment

if TYPE_CHECKING:
    from booking_sdk.client import AsyncBookingClient, BookingClient
    from webhook_verify import HeadersLike

StatusFilter = DeliveryStatus | Literal["queued", "succeeded", "failed", "dead"]
Switch = WantedStatus | Literal["enabled", "disabled"]
Lost = RecoverableStatus | Literal["failed", "dead"]


def _filters(
    status: StatusFilter | None, event_type: EventType | str | None, event_id: str | UUID | None
) -> dict[str, Any]:
    return {"status": status, "event_type": event_type, "event_id": event_id}


def _strings(name: str, values: Iterable[str] | None) -> list[str] | None:
    if isinstance(values, str):
        raise TypeError(f"{name} must hold several values, such as [{values!r}]")
    return None if values is None else [str(value) for value in values]


@discreet_methods
class AsyncWebhooks:
    """Where events are sent. Everything but `unwrap` needs the scope `webhooks:manage`.

    The API takes no idempotency key here, so none of the POSTs is sent again after an unknown outcome: the error says
    `maybe_executed`, and a look at the list says the rest.
    """

    def __init__(self, client: "AsyncBookingClient") -> None:
        self._client = client

    async def list(self, *, options: RequestOptions | None = None) -> AsyncPage[WebhookEndpoint]:
        """Every endpoint, at most ten, on one page."""
        return await self._client._page(get("webhooks", options=options), WebhookEndpoint, AsyncPage)

    async def get(self, endpoint_id: str | UUID, *, options: RequestOptions | None = None) -> WebhookEndpoint:
        """One endpoint.

        Raises:
            NotFoundError: there is none with this id.
        """
        spec = get("webhooks", segment("endpoint_id", endpoint_id), options=options)
        return await self._client._run(spec, as_type(WebhookEndpoint))

    async def create(
        self,
        *,
        url: str,
        event_types: Sequence[EventType | str],
        description: str | None = None,
        options: RequestOptions | None = None,
    ) -> WebhookEndpointWithSecret:
        """A new endpoint, enabled, with the secret that signs its deliveries. The secret is given only here.

        Raises:
            InsufficientScopeError: the key lacks the read scope of an event type.
            ConflictError: there are ten endpoints already.
            UnprocessableEntityError: the address is not public.
        """
        body = given(url=url, event_types=_strings("event_types", event_types), description=description)
        return await self._client._run(once("webhooks", body=body, options=options), as_type(WebhookEndpointWithSecret))

    async def update(
        self,
        endpoint_id: str | UUID,
        *,
        url: str | None = None,
        event_types: Sequence[EventType | str] | None = None,
        description: str | Unset | None = UNSET,
        status: Switch | None = None,
        options: RequestOptions | None = None,
    ) -> WebhookEndpoint:
        """Changes what is given, and leaves the rest.

        Args:
            description: None empties it.
            status: `enabled` resumes one that was disabled, by whomever.

        Raises:
            NotFoundError: there is none with this id.
        """
        body = given(url=url, event_types=_strings("event_types", event_types), status=status)
        if not isinstance(description, Unset):
            body["description"] = description
        spec = absolute("PATCH", "webhooks", segment("endpoint_id", endpoint_id), body=body, options=options)
        return await self._client._run(spec, as_type(WebhookEndpoint))

    async def delete(self, endpoint_id: str | UUID, *, options: RequestOptions | None = None) -> None:
        """Ends an endpoint; what is queued for it is not sent.

        Raises:
            NotFoundError: there is none with this id.
        """
        spec = absolute("DELETE", "webhooks", segment("endpoint_id", endpoint_id), options=options)
        await self._client._run(spec, nothing)

    async def rotate_secret(
        self, endpoint_id: str | UUID, *, overlap_seconds: int | None = None, options: RequestOptions | None = None
    ) -> WebhookEndpointWithSecret:
        """A new secret, given only here.

        Args:
            overlap_seconds: how long the old one signs too, up to a week; a day unless given. 0 after a leak.

        Raises:
            NotFoundError: there is none with this id.
        """
        path = ("webhooks", segment("endpoint_id", endpoint_id), "rotate-secret")
        spec = once(*path, body=given(overlap_seconds=overlap_seconds), options=options)
        return await self._client._run(spec, as_type(WebhookEndpointWithSecret))

    async def test(self, endpoint_id: str | UUID, *, options: RequestOptions | None = None) -> Delivery:
        """Sends a `ping` to this endpoint, whatever it listens to.

        Raises:
            NotFoundError: there is none with this id.
        """
        spec = once("webhooks", segment("endpoint_id", endpoint_id), "test", options=options)
        return await self._client._run(spec, as_type(Delivery))

    async def deliveries(
        self,
        endpoint_id: str | UUID,
        *,
        status: StatusFilter | None = None,
        event_type: EventType | str | None = None,
        event_id: str | UUID | None = None,
        limit: int = 25,
        order: Literal["asc", "desc"] = "desc",
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncPage[Delivery]:
        """One page of an endpoint's deliveries of the last 30 days, with their attempts.

        Raises:
            NotFoundError: there is no endpoint with this id.
        """
        filters = _filters(status, event_type, event_id)
        query = {**filters, "limit": limit, "order": order, "starting_after": starting_after}
        spec = get("webhooks", segment("endpoint_id", endpoint_id), "deliveries", query=query, options=options)
        return await self._client._page(spec, Delivery, AsyncPage)

    def iterate_deliveries(
        self,
        endpoint_id: str | UUID,
        *,
        status: StatusFilter | None = None,
        event_type: EventType | str | None = None,
        event_id: str | UUID | None = None,
        order: Literal["asc", "desc"] = "desc",
        page_size: int = 100,
        max_items: int | None = None,
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncPaginator[Delivery]:
        """Every delivery of an endpoint, page after page."""
        query = {**_filters(status, event_type, event_id), "order": order, "starting_after": starting_after}
        spec = get("webhooks", segment("endpoint_id", endpoint_id), "deliveries", query=query, options=options)
        return AsyncPaginator(self._client, Walk([spec], page_size, max_items), Delivery)

    async def delivery(
        self, endpoint_id: str | UUID, delivery_id: str | UUID, *, options: RequestOptions | None = None
    ) -> Delivery:
        """One delivery, by its own id or by that of an attempt, as the `Svc-Delivery-Id` header has it.

        Raises:
            NotFoundError: there is none with this id.
        """
        path = ("webhooks", segment("endpoint_id", endpoint_id), "deliveries", segment("delivery_id", delivery_id))
        return await self._client._run(get(*path, options=options), as_type(Delivery))

    async def retry(
        self, endpoint_id: str | UUID, delivery_id: str | UUID, *, options: RequestOptions | None = None
    ) -> Delivery:
        """Queues one more attempt of a dead delivery.

        Raises:
            ConflictError: the delivery is not dead, or the endpoint not enabled.
            NotFoundError: there is none with this id.
        """
        path = ("webhooks", segment("endpoint_id", endpoint_id), "deliveries", segment("delivery_id", delivery_id))
        return await self._client._run(once(*path, "retry", options=options), as_type(Delivery))

    async def recover(
        self,
        endpoint_id: str | UUID,
        *,
        since: datetime,
        until: datetime | None = None,
        statuses: Collection[Lost] | None = None,
        event_types: Collection[EventType | str] | None = None,
        options: RequestOptions | None = None,
    ) -> Recovered:
        """Queues anew what did not arrive, such as what an endpoint missed while it was away.

        Args:
            since: deliveries created at or after it, and before `until`.
            statuses: failed ones, dead ones; both unless said.

        Raises:
            NotFoundError: there is no endpoint with this id.
            ConflictError: the endpoint is not enabled.
        """
        body = given(
            since=instant("since", since),
            until=None if until is None else instant("until", until),
            statuses=_strings("statuses", statuses),
            event_types=_strings("event_types", event_types),
        )
        spec = once("webhooks", segment("endpoint_id", endpoint_id), "recover", body=body, options=options)
        return await self._client._run(spec, as_type(Recovered))

    def unwrap(
        self,
        payload: bytes | bytearray | memoryview | str,
        headers: "HeadersLike | str | None",
        *,
        secret: str | Iterable[str] | None = None,
        now: float | None = None,
    ) -> AnyEvent:
        """The event of a delivery, if it is authentic and recent. Sends nothing.

        Args:
            payload: the body as it came in, not parsed.
            headers: the request's, as the framework gives them.
            secret: the endpoint's; else the client's `webhook_secret`.
            now: when the delivery arrived, in unix seconds, for one that waited in a queue.

        Raises:
            WebhookVerificationError: it is not to be trusted; `PayloadError` when it is, and cannot be read.
            ConfigurationError: there is no secret.
        """
        secrets = secret or self._client._config.webhook_secrets
        if not secrets:
            raise ConfigurationError("webhook_secret is missing: pass it, or set BOOKING_WEBHOOK_SECRET")
        return unwrap(payload, headers, secrets, now=now)


# Made from the classes above by tests/booking_sdk/unasync.py; change those, and run it. -------------------------------


@discreet_methods
class Webhooks:
    """Where events are sent. Everything but `unwrap` needs the scope `webhooks:manage`.

    The API takes no idempotency key here, so none of the POSTs is sent again after an unknown outcome: the error says
    `maybe_executed`, and a look at the list says the rest.
    """

    def __init__(self, client: "BookingClient") -> None:
        self._client = client

    def list(self, *, options: RequestOptions | None = None) -> Page[WebhookEndpoint]:
        """Every endpoint, at most ten, on one page."""
        return self._client._page(get("webhooks", options=options), WebhookEndpoint, Page)

    def get(self, endpoint_id: str | UUID, *, options: RequestOptions | None = None) -> WebhookEndpoint:
        """One endpoint.

        Raises:
            NotFoundError: there is none with this id.
        """
        spec = get("webhooks", segment("endpoint_id", endpoint_id), options=options)
        return self._client._run(spec, as_type(WebhookEndpoint))

    def create(
        self,
        *,
        url: str,
        event_types: Sequence[EventType | str],
        description: str | None = None,
        options: RequestOptions | None = None,
    ) -> WebhookEndpointWithSecret:
        """A new endpoint, enabled, with the secret that signs its deliveries. The secret is given only here.

        Raises:
            InsufficientScopeError: the key lacks the read scope of an event type.
            ConflictError: there are ten endpoints already.
            UnprocessableEntityError: the address is not public.
        """
        body = given(url=url, event_types=_strings("event_types", event_types), description=description)
        return self._client._run(once("webhooks", body=body, options=options), as_type(WebhookEndpointWithSecret))

    def update(
        self,
        endpoint_id: str | UUID,
        *,
        url: str | None = None,
        event_types: Sequence[EventType | str] | None = None,
        description: str | Unset | None = UNSET,
        status: Switch | None = None,
        options: RequestOptions | None = None,
    ) -> WebhookEndpoint:
        """Changes what is given, and leaves the rest.

        Args:
            description: None empties it.
            status: `enabled` resumes one that was disabled, by whomever.

        Raises:
            NotFoundError: there is none with this id.
        """
        body = given(url=url, event_types=_strings("event_types", event_types), status=status)
        if not isinstance(description, Unset):
            body["description"] = description
        spec = absolute("PATCH", "webhooks", segment("endpoint_id", endpoint_id), body=body, options=options)
        return self._client._run(spec, as_type(WebhookEndpoint))

    def delete(self, endpoint_id: str | UUID, *, options: RequestOptions | None = None) -> None:
        """Ends an endpoint; what is queued for it is not sent.

        Raises:
            NotFoundError: there is none with this id.
        """
        spec = absolute("DELETE", "webhooks", segment("endpoint_id", endpoint_id), options=options)
        self._client._run(spec, nothing)

    def rotate_secret(
        self, endpoint_id: str | UUID, *, overlap_seconds: int | None = None, options: RequestOptions | None = None
    ) -> WebhookEndpointWithSecret:
        """A new secret, given only here.

        Args:
            overlap_seconds: how long the old one signs too, up to a week; a day unless given. 0 after a leak.

        Raises:
            NotFoundError: there is none with this id.
        """
        path = ("webhooks", segment("endpoint_id", endpoint_id), "rotate-secret")
        spec = once(*path, body=given(overlap_seconds=overlap_seconds), options=options)
        return self._client._run(spec, as_type(WebhookEndpointWithSecret))

    def test(self, endpoint_id: str | UUID, *, options: RequestOptions | None = None) -> Delivery:
        """Sends a `ping` to this endpoint, whatever it listens to.

        Raises:
            NotFoundError: there is none with this id.
        """
        spec = once("webhooks", segment("endpoint_id", endpoint_id), "test", options=options)
        return self._client._run(spec, as_type(Delivery))

    def deliveries(
        self,
        endpoint_id: str | UUID,
        *,
        status: StatusFilter | None = None,
        event_type: EventType | str | None = None,
        event_id: str | UUID | None = None,
        limit: int = 25,
        order: Literal["asc", "desc"] = "desc",
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> Page[Delivery]:
        """One page of an endpoint's deliveries of the last 30 days, with their attempts.

        Raises:
            NotFoundError: there is no endpoint with this id.
        """
        filters = _filters(status, event_type, event_id)
        query = {**filters, "limit": limit, "order": order, "starting_after": starting_after}
        spec = get("webhooks", segment("endpoint_id", endpoint_id), "deliveries", query=query, options=options)
        return self._client._page(spec, Delivery, Page)

    def iterate_deliveries(
        self,
        endpoint_id: str | UUID,
        *,
        status: StatusFilter | None = None,
        event_type: EventType | str | None = None,
        event_id: str | UUID | None = None,
        order: Literal["asc", "desc"] = "desc",
        page_size: int = 100,
        max_items: int | None = None,
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> Paginator[Delivery]:
        """Every delivery of an endpoint, page after page."""
        query = {**_filters(status, event_type, event_id), "order": order, "starting_after": starting_after}
        spec = get("webhooks", segment("endpoint_id", endpoint_id), "deliveries", query=query, options=options)
        return Paginator(self._client, Walk([spec], page_size, max_items), Delivery)

    def delivery(
        self, endpoint_id: str | UUID, delivery_id: str | UUID, *, options: RequestOptions | None = None
    ) -> Delivery:
        """One delivery, by its own id or by that of an attempt, as the `Svc-Delivery-Id` header has it.

        Raises:
            NotFoundError: there is none with this id.
        """
        path = ("webhooks", segment("endpoint_id", endpoint_id), "deliveries", segment("delivery_id", delivery_id))
        return self._client._run(get(*path, options=options), as_type(Delivery))

    def retry(
        self, endpoint_id: str | UUID, delivery_id: str | UUID, *, options: RequestOptions | None = None
    ) -> Delivery:
        """Queues one more attempt of a dead delivery.

        Raises:
            ConflictError: the delivery is not dead, or the endpoint not enabled.
            NotFoundError: there is none with this id.
        """
        path = ("webhooks", segment("endpoint_id", endpoint_id), "deliveries", segment("delivery_id", delivery_id))
        return self._client._run(once(*path, "retry", options=options), as_type(Delivery))

    def recover(
        self,
        endpoint_id: str | UUID,
        *,
        since: datetime,
        until: datetime | None = None,
        statuses: Collection[Lost] | None = None,
        event_types: Collection[EventType | str] | None = None,
        options: RequestOptions | None = None,
    ) -> Recovered:
        """Queues anew what did not arrive, such as what an endpoint missed while it was away.

        Args:
            since: deliveries created at or after it, and before `until`.
            statuses: failed ones, dead ones; both unless said.

        Raises:
            NotFoundError: there is no endpoint with this id.
            ConflictError: the endpoint is not enabled.
        """
        body = given(
            since=instant("since", since),
            until=None if until is None else instant("until", until),
            statuses=_strings("statuses", statuses),
            event_types=_strings("event_types", event_types),
        )
        spec = once("webhooks", segment("endpoint_id", endpoint_id), "recover", body=body, options=options)
        return self._client._run(spec, as_type(Recovered))

    def unwrap(
        self,
        payload: bytes | bytearray | memoryview | str,
        headers: "HeadersLike | str | None",
        *,
        secret: str | Iterable[str] | None = None,
        now: float | None = None,
    ) -> AnyEvent:
        """The event of a delivery, if it is authentic and recent. Sends nothing.

        Args:
            payload: the body as it came in, not parsed.
            headers: the request's, as the framework gives them.
            secret: the endpoint's; else the client's `webhook_secret`.
            now: when the delivery arrived, in unix seconds, for one that waited in a queue.

        Raises:
            WebhookVerificationError: it is not to be trusted; `PayloadError` when it is, and cannot be read.
            ConfigurationError: there is no secret.
        """
        secrets = secret or self._client._config.webhook_secrets
        if not secrets:
            raise ConfigurationError("webhook_secret is missing: pass it, or set BOOKING_WEBHOOK_SECRET")
        return unwrap(payload, headers, secrets, now=now)
