"""Webhook endpoints and their deliveries in the fake. Deliveries are queued, but never sent."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from booking_core.models.events import READ_SCOPE, EventType
from booking_core.models.limits import SECRET_OVERLAP_S_DEFAULT, WEBHOOK_ATTEMPTS
from booking_core.models.limits import WEBHOOK_ENDPOINTS_PER_ORGANIZATION as ENDPOINTS_MAX
from booking_core.models.webhooks import (
    Delivery,
    DeliveryRecover,
    DeliveryRedeliver,
    DeliveryStatus,
    RecoverableStatus,
    SecretRotate,
    WebhookEndpointChange,
    WebhookEndpointCreate,
)
from booking_sdk.testing._http import Query, Refusal, conflict, malformed, not_found, unprocessable
from booking_sdk.testing._store import Row, Store
from booking_sdk.testing.factories import new_id, resource_fields, webhook_endpoint_fields
from webhook_verify import generate_secret


class Webhooks:
    """The webhook endpoints and deliveries of one organization."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.endpoints: dict[str, Row] = {}
        self.deliveries: dict[str, Row] = {}
        store.on_event = self.deliver

    def get(self, endpoint_id: str) -> Row:
        return self.store.get(self.endpoints, endpoint_id)

    def create(self, request: WebhookEndpointCreate, scopes: frozenset[str]) -> Row:
        _check(request, scopes)
        if len(self.endpoints) >= ENDPOINTS_MAX:
            raise conflict("endpoint_limit_reached", f"An organization has at most {ENDPOINTS_MAX} endpoints.")
        fields = webhook_endpoint_fields(
            url=request.url,
            description=request.description or None,
            event_types=sorted(map(str, request.event_types)),
            headers=_masked(request.headers),
            max_per_second=request.max_per_second,
            created_at=self.store.now,
            updated_at=self.store.now,
        )
        row = self.store.keep(self.endpoints, fields)
        return {**row, "secret": generate_secret()}

    def change(self, endpoint_id: str, request: WebhookEndpointChange, scopes: frozenset[str]) -> Row:
        _check(request, scopes)
        row = self.get(endpoint_id)
        changed: Row = {}
        if request.url is not None:
            changed["url"] = request.url
        if request.event_types is not None:
            changed["event_types"] = sorted(map(str, request.event_types))
        if "description" in request.model_fields_set:
            changed["description"] = request.description or None
        if request.headers is not None:
            changed["headers"] = _masked(request.headers)
        if "max_per_second" in request.model_fields_set:
            changed["max_per_second"] = request.max_per_second
        if request.status is not None and request.status != row["status"]:
            changed |= self._status_change(row, request.status)
        self.store.change(row, **changed)
        if changed.get("status") == "enabled":
            self.store.publish("webhook.enabled", row)
        return row

    def _status_change(self, row: Row, status: str) -> Row:
        if status == "enabled":
            return {"status": status, "disabled_at": None, "disabled_reason": None, "consecutive_failures": 0}
        self._fail_queued(row, "endpoint_disabled")
        return {"status": status, "disabled_at": self.store.now, "disabled_reason": "manual"}

    def _fail_queued(self, endpoint: Row, reason: str) -> None:
        for row in self.deliveries.values():
            if row["endpoint_id"] == endpoint["id"] and row["status"] == "queued":
                ended = {"next_attempt_at": None, "completed_at": self.store.now}
                self.store.change(row, status="failed", failure_reason=reason, **ended)

    def delete(self, endpoint_id: str) -> None:
        self.endpoints.pop(self.get(endpoint_id)["id"])

    def rotate(self, endpoint_id: str, request: SecretRotate) -> Row:
        row = self.get(endpoint_id)
        overlap_s = SECRET_OVERLAP_S_DEFAULT if request.overlap_seconds is None else request.overlap_seconds
        ends_at = self.store.at(self.store.clock.now + timedelta(seconds=overlap_s)) if overlap_s else None
        self.store.change(row, previous_secret_expires_at=ends_at)
        self.store.publish("webhook.secret_rotated", row)
        return {**row, "secret": generate_secret()}

    # Deliveries ----------------------------------------------------------------------------------------------------

    def deliver(self, event: Row) -> None:
        """Queue an event for every endpoint with its type."""
        for endpoint in self.endpoints.values():
            # An event about an endpoint is sent to the other endpoints only.
            if event["type"] in endpoint["event_types"] and event["resource_id"] != endpoint["id"]:
                self._queue(endpoint, event, "event")

    def _queue(self, endpoint: Row, event: Row, trigger: str) -> Row:
        is_enabled = endpoint["status"] == "enabled" or trigger == "test"
        fields = resource_fields(
            Delivery,
            id=new_id(),
            endpoint_id=endpoint["id"],
            event_id=event["id"],
            event_type=event["type"],
            status="queued" if is_enabled else "failed",
            failure_reason=None if is_enabled else "endpoint_disabled",
            trigger=trigger,
            attempt_count=0,
            max_attempts=WEBHOOK_ATTEMPTS if endpoint["status"] == "enabled" else 1,
            next_attempt_at=self.store.now if is_enabled else None,
            completed_at=None if is_enabled else self.store.now,
            created_at=self.store.now,
            updated_at=self.store.now,
        )
        return self.store.keep(self.deliveries, fields)

    def test(self, endpoint_id: str) -> Row:
        endpoint = self.get(endpoint_id)
        about = {"message": "This is a test.", "endpoint_id": endpoint["id"]}
        event = self.store.publish("ping", about, resource_type="webhook")
        return self._queue(endpoint, event, "test")

    def find(self, endpoint_id: str, query: Query) -> Row:
        endpoint = self.get(endpoint_id)
        filters = {
            "status": query.choice("status", DeliveryStatus),
            "event_type": query.text("event_type"),
            "event_id": query.uuid("event_id"),
        }
        rows = [row for row in self.deliveries.values() if row["endpoint_id"] == endpoint["id"]]
        found = [row for row in rows if all(value in (None, row[name]) for name, value in filters.items())]
        return self.store.page(f"deliveries of {endpoint['id']}", found, query, filters)

    def delivery(self, endpoint_id: str, delivery_id: str) -> Row:
        endpoint, row = self.get(endpoint_id), self.store.get(self.deliveries, delivery_id)
        if row["endpoint_id"] != endpoint["id"]:
            raise not_found()
        return row

    def retry(self, endpoint_id: str, delivery_id: str) -> Row:
        row = self.delivery(endpoint_id, delivery_id)
        self._check_enabled(self.get(endpoint_id))
        if row["status"] != "dead":
            raise conflict("delivery_not_dead", "Only a dead delivery can be tried again.")
        self._requeue(row)
        row["max_attempts"] += 1
        return row

    def redeliver(self, endpoint_id: str, request: DeliveryRedeliver, scopes: frozenset[str]) -> Row:
        endpoint = self.get(endpoint_id)
        self._check_enabled(endpoint)
        event = self.store.events.get(request.event_id)
        if event is None:
            message = "There is no such event, or it is no longer kept."
            raise unprocessable("event_id", message, "unknown_event")
        _check_readable([event["type"]], scopes)
        if event["type"] == "ping":
            raise unprocessable("event_id", "A ping is not sent again: send another test.", "ping")
        if event["resource_id"] == endpoint["id"]:
            raise unprocessable("event_id", "An endpoint is not sent events about itself.", "event_about_endpoint")
        own = (row for row in self.deliveries.values() if row["endpoint_id"] == endpoint["id"])
        row = next((row for row in own if row["event_id"] == event["id"]), None)
        if row is None:
            return self._queue(endpoint, event, "redeliver")
        if row["status"] != "queued":
            self._requeue(row, trigger="redeliver", max_attempts=row["attempt_count"] + WEBHOOK_ATTEMPTS)
        return row

    def recover(self, endpoint_id: str, request: DeliveryRecover) -> Row:
        times = {"since": request.since, **({"until": request.until} if request.until else {})}
        query = Query(times, self.store.zone)
        since, until = query.instant("since"), query.instant("until")
        endpoint = self.get(endpoint_id)
        self._check_enabled(endpoint)
        wanted = request.statuses or list(RecoverableStatus)
        matched = [
            row
            for row in self.deliveries.values()
            if row["endpoint_id"] == endpoint["id"]
            and row["status"] in wanted
            and row["trigger"] != "test"
            and (request.event_types is None or row["event_type"] in request.event_types)
            and (since is None or since <= datetime.fromisoformat(row["created_at"]))
            and (until is None or datetime.fromisoformat(row["created_at"]) < until)
        ]
        for row in matched:
            self._requeue(row, trigger="recover", max_attempts=row["attempt_count"] + WEBHOOK_ATTEMPTS)
        return {"matched": len(matched)}

    def _check_enabled(self, endpoint: Row) -> None:
        if endpoint["status"] != "enabled":
            raise conflict("endpoint_not_enabled", "The endpoint is not enabled.")

    def _requeue(self, row: Row, **changed: Any) -> None:
        changed |= {"status": "queued", "failure_reason": None, "completed_at": None}
        self.store.change(row, next_attempt_at=self.store.now, **changed)


def _masked(headers: Mapping[str, str] | None) -> dict[str, str]:
    return dict.fromkeys(sorted(headers or ()), "********")


def _check(request: WebhookEndpointCreate | WebhookEndpointChange, scopes: frozenset[str]) -> None:
    if request.url is not None and not request.url.startswith("https://"):
        raise malformed("url", "must begin with https://")
    _check_readable(request.event_types or (), scopes)


def _check_readable(types: Iterable[str], scopes: frozenset[str]) -> None:
    for kind in sorted(types):
        scope = READ_SCOPE[EventType(kind).resource_type]
        if scope not in scopes:
            raise Refusal(403, "insufficient_scope", f"The API key lacks the scope {scope}.", required_scope=scope)
