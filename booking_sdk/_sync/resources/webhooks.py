# Generated from booking_sdk/resources/webhooks.py by `make sync-client`. Do not edit.
"""Webhook endpoints and their deliveries; and `unwrap`, for receivers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Unpack
from uuid import UUID

from booking_core.models.events import EventType
from booking_core.models.webhooks import Delivery, Recovered, WebhookEndpoint, WebhookEndpointWithSecret
from booking_sdk._sync._resource import APIResource
from booking_sdk._sync.pagination import Page, Paginator, fetch_page
from booking_sdk._traceback_scrubbing import scrub_tracebacks
from booking_sdk.errors import ConfigurationError
from booking_sdk.event_parsing import unwrap
from booking_sdk.models import AnyEvent
from booking_sdk.options import RequestOptions
from booking_sdk.params import EndpointStatusParam, IterateDeliveries, ListDeliveries, RecoverableStatusParam
from booking_sdk.request import (
    UNSET,
    Unset,
    get,
    idempotent_change,
    path_segment,
    utc_timestamp,
    without_none,
)

if TYPE_CHECKING:
    from webhook_verify import HeadersLike


def _string_list(name: str, values: Iterable[str] | None) -> list[str] | None:
    if isinstance(values, str):
        raise TypeError(f"{name} must hold several values, such as [{values!r}]")
    return None if values is None else [str(value) for value in values]


@scrub_tracebacks
class Webhooks(APIResource):
    """Webhook endpoints and their deliveries. Needs the scope `webhooks:manage`, except for `unwrap`.

    These endpoints take no Idempotency-Key, so a POST is not retried when it may have been executed. The error then
    has `maybe_executed` set; list the endpoints or deliveries to find out.
    """

    def list(self, *, options: RequestOptions | None = None) -> Page[WebhookEndpoint]:
        """List all endpoints, at most ten, on one page.

        Args:
            options: Settings for this call.
        """
        spec = get("webhooks", options=options)
        return fetch_page(self._client, spec, WebhookEndpoint, Page)

    def get(self, endpoint_id: str | UUID, *, options: RequestOptions | None = None) -> WebhookEndpoint:
        """Return one endpoint.

        Args:
            endpoint_id: The id of the endpoint.
            options: Settings for this call.

        Raises:
            NotFoundError: No endpoint has this id.
        """
        return self._get(WebhookEndpoint, "webhooks", path_segment("endpoint_id", endpoint_id), options=options)

    def create(
        self,
        *,
        url: str,
        event_types: Sequence[EventType | str],
        description: str | None = None,
        headers: Mapping[str, str] | None = None,
        max_per_second: int | None = None,
        options: RequestOptions | None = None,
    ) -> WebhookEndpointWithSecret:
        """Create an enabled endpoint, and return it with the secret that signs its deliveries.

        The secret is returned only here: store it.

            endpoint = client.webhooks.create(
                url="https://hooks.example.com/booking", event_types=["booking.created", "booking.cancelled"]
            )

        Args:
            url: The public HTTPS address of the receiver.
            event_types: The types of the events to send. `booking.*` means all types of bookings.
            description: A text for people.
            headers: At most ten headers of each delivery, such as `Authorization`. Their values are never shown.
            max_per_second: The maximum number of requests within any second, 1 to 1000. None sets no limit.
            options: Settings for this call.

        Raises:
            InsufficientScopeError: The key cannot read one of the event types.
            ConflictError: The organization already has ten endpoints.
            UnprocessableEntityError: The address is not public.
        """
        body = without_none(
            url=url,
            event_types=_string_list("event_types", event_types),
            description=description,
            headers=None if headers is None else dict(headers),
            max_per_second=max_per_second,
        )
        return self._post_without_key(WebhookEndpointWithSecret, "webhooks", body=body, options=options)

    def update(
        self,
        endpoint_id: str | UUID,
        *,
        url: str | None = None,
        event_types: Sequence[EventType | str] | None = None,
        description: str | Unset | None = UNSET,
        status: EndpointStatusParam | None = None,
        headers: Mapping[str, str] | None = None,
        max_per_second: int | Unset | None = UNSET,
        options: RequestOptions | None = None,
    ) -> WebhookEndpoint:
        """Change an endpoint. Omitted fields stay unchanged.

        Args:
            endpoint_id: The id of the endpoint.
            url: The new address.
            event_types: The new event types. `booking.*` means all types of bookings.
            description: The new description; None clears it.
            status: `enabled` or `disabled`. `enabled` also resumes an endpoint that the service disabled.
            headers: The headers of deliveries, which replace all former ones; an empty mapping removes them.
            max_per_second: The new limit, 1 to 1000; None removes it.
            options: Settings for this call.

        Raises:
            NotFoundError: No endpoint has this id.
            InsufficientScopeError: A new address, new headers or `enabled` would send events that the key cannot read.
        """
        body = without_none(
            url=url,
            event_types=_string_list("event_types", event_types),
            status=status,
            headers=None if headers is None else dict(headers),
        )
        if not isinstance(description, Unset):
            body["description"] = description
        if not isinstance(max_per_second, Unset):
            body["max_per_second"] = max_per_second
        segment = path_segment("endpoint_id", endpoint_id)
        spec = idempotent_change("PATCH", "webhooks", segment, body=body, options=options)
        return self._send(WebhookEndpoint, spec)

    def delete(self, endpoint_id: str | UUID, *, options: RequestOptions | None = None) -> None:
        """Delete an endpoint. Its queued deliveries are not sent.

        Args:
            endpoint_id: The id of the endpoint.
            options: Settings for this call.

        Raises:
            NotFoundError: No endpoint has this id.
        """
        segment = path_segment("endpoint_id", endpoint_id)
        self._delete("webhooks", segment, options=options)

    def rotate_secret(
        self, endpoint_id: str | UUID, *, overlap_seconds: int | None = None, options: RequestOptions | None = None
    ) -> WebhookEndpointWithSecret:
        """Create a new secret for an endpoint, and return it. The secret is returned only here: store it.

        Args:
            endpoint_id: The id of the endpoint.
            overlap_seconds: How long the old secret signs too, up to a week. Defaults to a day; use 0 after a leak.
            options: Settings for this call.

        Raises:
            NotFoundError: No endpoint has this id.
            ConflictError: Two former secrets still sign (`too_many_secrets`), and `overlap_seconds` is not 0.
        """
        path = ("webhooks", path_segment("endpoint_id", endpoint_id), "rotate-secret")
        return self._post_without_key(
            WebhookEndpointWithSecret, *path, body=without_none(overlap_seconds=overlap_seconds), options=options
        )

    def test(self, endpoint_id: str | UUID, *, options: RequestOptions | None = None) -> Delivery:
        """Send a `ping` event to an endpoint, even if it does not subscribe to the type.

        Args:
            endpoint_id: The id of the endpoint.
            options: Settings for this call.

        Returns:
            The queued delivery.

        Raises:
            NotFoundError: No endpoint has this id.
        """
        return self._post_without_key(
            Delivery, "webhooks", path_segment("endpoint_id", endpoint_id), "test", options=options
        )

    def deliveries(self, endpoint_id: str | UUID, **arguments: Unpack[ListDeliveries]) -> Page[Delivery]:
        """List one page of an endpoint's deliveries of the last 30 days, with their attempts.

        Args:
            endpoint_id: The id of the endpoint.
            **arguments: Filters and paging, see `ListDeliveries`.

        Raises:
            NotFoundError: No endpoint has this id.
        """
        segments = ("webhooks", path_segment("endpoint_id", endpoint_id), "deliveries")
        return self._list(Delivery, ListDeliveries, *segments, arguments=arguments)

    def iterate_deliveries(
        self, endpoint_id: str | UUID, **arguments: Unpack[IterateDeliveries]
    ) -> Paginator[Delivery]:
        """Iterate over all deliveries of an endpoint.

        Args:
            endpoint_id: The id of the endpoint.
            **arguments: Filters and paging, see `IterateDeliveries`.
        """
        segments = ("webhooks", path_segment("endpoint_id", endpoint_id), "deliveries")
        return self._iterate(Delivery, IterateDeliveries, *segments, arguments=arguments)

    def delivery(
        self, endpoint_id: str | UUID, delivery_id: str | UUID, *, options: RequestOptions | None = None
    ) -> Delivery:
        """Return one delivery.

        Args:
            endpoint_id: The id of the endpoint.
            delivery_id: The id of the delivery, or of one of its attempts, which the `Svc-Delivery-Id` header contains.
            options: Settings for this call.

        Raises:
            NotFoundError: No delivery of the endpoint has this id.
        """
        endpoint, delivery = path_segment("endpoint_id", endpoint_id), path_segment("delivery_id", delivery_id)
        return self._get(Delivery, "webhooks", endpoint, "deliveries", delivery, options=options)

    def retry(
        self, endpoint_id: str | UUID, delivery_id: str | UUID, *, options: RequestOptions | None = None
    ) -> Delivery:
        """Queue one more attempt of a dead delivery. `redeliver` sends any other now.

        Args:
            endpoint_id: The id of the endpoint.
            delivery_id: The id of the delivery.
            options: Settings for this call.

        Raises:
            ConflictError: The delivery is not dead, or the endpoint is not enabled.
            InsufficientScopeError: The key cannot read the event's resource.
            NotFoundError: No delivery of the endpoint has this id.
        """
        endpoint, delivery = path_segment("endpoint_id", endpoint_id), path_segment("delivery_id", delivery_id)
        return self._post_without_key(Delivery, "webhooks", endpoint, "deliveries", delivery, "retry", options=options)

    def recover(
        self,
        endpoint_id: str | UUID,
        *,
        since: datetime,
        until: datetime | None = None,
        statuses: Collection[RecoverableStatusParam] | None = None,
        event_types: Collection[EventType | str] | None = None,
        dry_run: bool = False,
        options: RequestOptions | None = None,
    ) -> Recovered:
        """Queue undelivered deliveries again, for example after an outage of the receiver.

        Args:
            endpoint_id: The id of the endpoint.
            since: Only deliveries created at or after this time.
            until: Only deliveries created before this time.
            statuses: `failed`, `dead` or both. Defaults to both.
            event_types: Only deliveries of these event types.
            dry_run: Count the deliveries, and queue none.
            options: Settings for this call.

        Raises:
            NotFoundError: No endpoint has this id.
            InsufficientScopeError: The key cannot read one of the event types that would be sent.
            ConflictError: The endpoint is not enabled.
        """
        body = without_none(
            since=utc_timestamp("since", since),
            until=None if until is None else utc_timestamp("until", until),
            statuses=_string_list("statuses", statuses),
            event_types=_string_list("event_types", event_types),
            dry_run=dry_run or None,
        )
        segment = path_segment("endpoint_id", endpoint_id)
        return self._post_without_key(Recovered, "webhooks", segment, "recover", body=body, options=options)

    def redeliver(
        self, endpoint_id: str | UUID, event_id: str | UUID, *, options: RequestOptions | None = None
    ) -> Delivery:
        """Queue any event for an endpoint again, also if it was delivered before, waits for its next attempt, or is of
        a type that the endpoint does not subscribe to.

        Args:
            endpoint_id: The id of the endpoint.
            event_id: The id of an event that the feed still has.
            options: Settings for this call.

        Raises:
            NotFoundError: No endpoint has this id.
            InsufficientScopeError: The key cannot read the event's resource.
            ConflictError: The endpoint is not enabled.
            UnprocessableEntityError: There is no such event, or it is a ping or about the endpoint itself.
        """
        segment, body = path_segment("endpoint_id", endpoint_id), {"event_id": str(event_id)}
        return self._post_without_key(Delivery, "webhooks", segment, "redeliver", body=body, options=options)

    def unwrap(
        self,
        payload: bytes | bytearray | memoryview | str,
        headers: "HeadersLike | str | None",
        *,
        secret: str | Iterable[str] | None = None,
        now: float | None = None,
    ) -> AnyEvent:
        """Verify a webhook delivery and return its event. Sends no request.

            event = client.webhooks.unwrap(request.body, request.headers)

        Args:
            payload: The raw request body.
            headers: The request headers, in the form that the web framework provides.
            secret: The secret of the endpoint. Defaults to the client's `webhook_secret`.
            now: The time of arrival in unix seconds, for a delivery that waited in a queue.

        Raises:
            WebhookVerificationError: The delivery is not authentic or not recent.
            PayloadError: The delivery is authentic, but its body is not an event.
            ConfigurationError: There is no secret.
        """
        secrets = secret or self._client._config.webhook_secret
        if not secrets:
            raise ConfigurationError("webhook_secret is missing: pass it, or set BOOKING_WEBHOOK_SECRET")
        return unwrap(payload, headers, secrets, now=now)
