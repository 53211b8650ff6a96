"""Webhook endpoints and their deliveries in the fake: registered, asked about, and queued; nothing is ever sent."""

from datetime import datetime, timedelta
from typing import Any

from booking_core.models.events import READ_SCOPE, EventType
from booking_core.models.limits import SECRET_OVERLAP_S_DEFAULT, WEBHOOK_ATTEMPTS
from booking_core.models.limits import WEBHOOK_ENDPOINTS_PER_ORGANIZATION as ENDPOINTS_MAX
from booking_core.models.webhooks import (
    DeliveryRecover,
    DeliveryStatus,
    RecoverableStatus,
    SecretRotate,
    WebhookEndpointChange,
    WebhookEndpointCreate,
)
from booking_sdk.testing._http import Query, Refusal, conflict, malformed, not_found
from booking_sdk.testing._store import Row, Store
from booking_sdk.testing.factories import new_id, webhook_endpoint_fields
from webhook_verify import generate_secret


class Endpoints:
    """The webhooks of one organization."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.endpoints: dict[str, Row] = {}
        self.deliveries: dict[str, Row] = {}
        store.on_event = self.deliver

    def get(self, endpoint_id: str) -> Row:
        return self.store.get(self.endpoints, endpoint_id)

    def create(self, asked: WebhookEndpointCreate, scopes: frozenset[str]) -> Row:
        _check(asked, scopes)
        if len(self.endpoints) >= ENDPOINTS_MAX:
            raise conflict("endpoint_limit_reached", f"An organization has at most {ENDPOINTS_MAX} endpoints.")
        fields = webhook_endpoint_fields(
            url=asked.url,
            description=asked.description or None,
            event_types=sorted(map(str, asked.event_types)),
            created_at=self.store.now,
            updated_at=self.store.now,
        )
        row = self.store.keep(self.endpoints, fields)
        return {**row, "secret": generate_secret()}

    def change(self, endpoint_id: str, asked: WebhookEndpointChange, scopes: frozenset[str]) -> Row:
        _check(asked, scopes)
        row = self.get(endpoint_id)
        changed: Row = {}
        if asked.url is not None:
            changed["url"] = asked.url
        if asked.event_types is not None:
            changed["event_types"] = sorted(map(str, asked.event_types))
        if "description" in asked.model_fields_set:
            changed["description"] = asked.description or None
        if asked.status is not None and asked.status != row["status"]:
            changed |= self._switched(row, asked.status)
        self.store.change(row, **changed)
        if changed.get("status") == "enabled":
            self.store.tell("webhook.enabled", row)
        return row

    def _switched(self, row: Row, status: str) -> Row:
        if status == "enabled":
            return {"status": status, "disabled_at": None, "disabled_reason": None, "consecutive_failures": 0}
        self._give_up(row, "endpoint_disabled")
        return {"status": status, "disabled_at": self.store.now, "disabled_reason": "manual"}

    def _give_up(self, endpoint: Row, reason: str) -> None:
        for row in self.deliveries.values():
            if row["endpoint_id"] == endpoint["id"] and row["status"] == "queued":
                ended = {"next_attempt_at": None, "completed_at": self.store.now}
                self.store.change(row, status="failed", failure_reason=reason, **ended)

    def delete(self, endpoint_id: str) -> None:
        self.endpoints.pop(self.get(endpoint_id)["id"])

    def rotate(self, endpoint_id: str, asked: SecretRotate) -> Row:
        row = self.get(endpoint_id)
        overlap_s = SECRET_OVERLAP_S_DEFAULT if asked.overlap_seconds is None else asked.overlap_seconds
        ends_at = self.store.at(self.store.clock.now + timedelta(seconds=overlap_s)) if overlap_s else None
        self.store.change(row, previous_secret_expires_at=ends_at)
        self.store.tell("webhook.secret_rotated", row)
        return {**row, "secret": generate_secret()}

    # Deliveries ----------------------------------------------------------------------------------------------------

    def deliver(self, event: Row) -> None:
        """Queues an event for every endpoint that listens to it."""
        for endpoint in self.endpoints.values():
            # What is told of an endpoint is told to the others.
            if event["type"] in endpoint["event_types"] and event["resource_id"] != endpoint["id"]:
                self._queue(endpoint, event, "event")

    def _queue(self, endpoint: Row, event: Row, trigger: str) -> Row:
        is_enabled = endpoint["status"] == "enabled" or trigger == "test"
        fields = {
            "id": new_id(),
            "endpoint_id": endpoint["id"],
            "event_id": event["id"],
            "event_type": event["type"],
            "status": "queued" if is_enabled else "failed",
            "failure_reason": None if is_enabled else "endpoint_disabled",
            "trigger": trigger,
            "attempt_count": 0,
            "max_attempts": WEBHOOK_ATTEMPTS if endpoint["status"] == "enabled" else 1,
            "next_attempt_at": self.store.now if is_enabled else None,
            "last_attempt_at": None,
            "completed_at": None if is_enabled else self.store.now,
            "last_response_status": None,
            "last_error": None,
            "attempts": [],
            "created_at": self.store.now,
            "updated_at": self.store.now,
        }
        return self.store.keep(self.deliveries, fields)

    def test(self, endpoint_id: str) -> Row:
        endpoint = self.get(endpoint_id)
        about = {"message": "This is a test.", "endpoint_id": endpoint["id"]}
        event = self.store.tell("ping", about, resource_type="webhook")
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
        self._again(row)
        row["max_attempts"] += 1
        return row

    def recover(self, endpoint_id: str, asked: DeliveryRecover) -> Row:
        times = {"since": asked.since, **({"until": asked.until} if asked.until else {})}
        query = Query(times, self.store.zone)
        since, until = query.instant("since"), query.instant("until")
        endpoint = self.get(endpoint_id)
        self._check_enabled(endpoint)
        wanted = asked.statuses or list(RecoverableStatus)
        matched = [
            row
            for row in self.deliveries.values()
            if row["endpoint_id"] == endpoint["id"]
            and row["status"] in wanted
            and row["trigger"] != "test"
            and (asked.event_types is None or row["event_type"] in asked.event_types)
            and (since is None or since <= datetime.fromisoformat(row["created_at"]))
            and (until is None or datetime.fromisoformat(row["created_at"]) < until)
        ]
        for row in matched:
            self._again(row, trigger="recover", max_attempts=row["attempt_count"] + WEBHOOK_ATTEMPTS)
        return {"matched": len(matched)}

    def _check_enabled(self, endpoint: Row) -> None:
        if endpoint["status"] != "enabled":
            raise conflict("endpoint_not_enabled", "The endpoint is not enabled.")

    def _again(self, row: Row, **changed: Any) -> None:
        changed |= {"status": "queued", "failure_reason": None, "completed_at": None}
        self.store.change(row, next_attempt_at=self.store.now, **changed)


def _check(asked: WebhookEndpointCreate | WebhookEndpointChange, scopes: frozenset[str]) -> None:
    if asked.url is not None and not asked.url.startswith("https://"):
        raise malformed("url", "must begin with https://")
    for kind in sorted(asked.event_types or ()):
        scope = READ_SCOPE[EventType(kind).resource_type]
        if scope not in scopes:
            raise Refusal(403, "insufficient_scope", f"The API key lacks the scope {scope}.", required_scope=scope)
