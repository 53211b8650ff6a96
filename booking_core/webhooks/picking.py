"""Pick what a worker may send next, of queued rows and of the events of the log, by the statement `claim`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from booking_core.db import sql_files
from booking_core.db.engine import Query
from booking_core.db.statements import as_json
from booking_core.db.tables import deliveries, webhook_cursors
from booking_core.db.unit_of_work import Update
from booking_core.webhooks import pacing
from booking_core.webhooks.queue import clock_parameter

_SQL = sql_files.load(__name__)
CLAIM, NEXT = _SQL.statement("claim"), _SQL.statement("next")


class DueDelivery(NamedTuple):
    """A due delivery, or the next event of an endpoint, in the order of the columns of CLAIM."""

    organization_id: str
    id: str
    """That of the delivery, or of the event."""
    endpoint_id: str
    event_id: str
    event_type: str
    failure_reason: str | None
    url: str
    last_timed_out: bool
    number: int
    body: str | None
    """Null: the event is no longer kept."""
    secrets: str | None
    headers_sealed: str | None
    at: int
    """The instant of the claim, by the database's clock."""
    ahead: int
    """Microseconds by which the clock of a sandbox is ahead of it."""
    resource_id: str | None
    sequence: int | None
    """Of an event, which is no delivery yet."""
    generation: int
    created_at: int
    traceparent: str | None
    """The trace context (W3C) of the event."""
    unfinished: str | None
    """The delivery of an earlier event about the same resource that has a row, when its first attempt is the only one
    that is not over and this worker holds it. Empty: there are others. Null: there is none."""
    in_flight: str | None
    """The leases of its endpoint, a line each: the worker, and the attempts. Null: none has a first attempt about the
    same resource."""
    max_per_second: int | None
    """The limit of its endpoint."""
    served_sequence: int | None
    """The cursor of its endpoint, which is locked. Null: another worker has it."""


def due(
    *,
    free: int,
    in_flight: Mapping[str, int],
    slow_free: int,
    per_endpoint: int,
    per_organization: int,
    worker: str | None,
    now: int | None,
) -> Query[list[DueDelivery]]:
    """Return the query of due deliveries and next events, at most `free`; on PostgreSQL it locks them and skips locked
    ones."""
    busy = as_json({"endpoint_id": endpoint_id, "attempts": count} for endpoint_id, count in in_flight.items())
    parameters: dict[str, Any] = {
        "free": free,
        "in_flight": busy,
        "slow_free": slow_free,
        "per_endpoint": per_endpoint,
        "per_organization": per_organization,
        "worker": worker,
        "claims_per_second": pacing.CLAIMS_PER_SECOND,
        **clock_parameter(now),
    }
    return Query(CLAIM, parameters, lambda rows: [DueDelivery._make(row) for row in rows])


def live_secrets(secrets: str | None) -> list[tuple[str, str]]:
    """Return (id, sealed secret) of a claimed delivery, the newest first.

    The current secret never expires; of the others, an older secret expires sooner.
    """
    split = [secret.split(":") for secret in (secrets or "").split()]
    split.sort(key=lambda parts: (-int(parts[0]), -int(parts[1])))
    return [(secret_id, sealed) for _, _, secret_id, sealed in split]


LEASE = Update("lease", deliveries, sets=("lease_token", "lease_until", "last_attempt_at"))
SERVED = Update(
    "served",
    webhook_cursors,
    sets=("served_sequence", "last_claimed_at"),
    keys=("organization_id", "endpoint_id"),
)
PACED = Update(
    "paced",
    webhook_cursors,
    sets=("served_sequence", "last_claimed_at", "next_send_at"),
    keys=("organization_id", "endpoint_id"),
)
