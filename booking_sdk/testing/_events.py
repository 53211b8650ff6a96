"""The event feed of the fake: filters, and the visibility of events to a key."""

from booking_core.models.events import READ_SCOPE, EventType, ResourceType
from booking_core.models.limits import EVENT_TYPES_PER_FILTER
from booking_sdk.testing._http import Query, Refusal, malformed
from booking_sdk.testing._store import Row, Store


def find(store: Store, query: Query, scopes: frozenset[str]) -> Row:
    """Return one page of the feed."""
    named = (query.text("type") or "").split(",") if query.text("type") else []
    resource = query.choice("resource_type", ResourceType)
    readable = _readable(scopes)
    for needed in [*_resources(named), *([resource] if resource else [])]:
        check_readable(needed, scopes)
    filters = {
        "type": sorted(_checked(named)),
        "resource_type": resource,
        "resource_id": query.uuid("resource_id"),
        "created_since": query.instant("created_since"),
        "created_until": query.instant("created_until"),
    }
    since, until = filters["created_since"], filters["created_until"]
    found = [
        row
        for row in store.events.values()
        if row["resource_type"] in readable
        and (not named or any(_fits(row["type"], token) for token in named))
        and resource in (None, row["resource_type"])
        and filters["resource_id"] in (None, row["resource_id"])
        and (since is None or since <= row["_changed_at"])
        and (until is None or row["_changed_at"] < until)
    ]
    page = store.page("events", found, query, filters)
    return {**page, "resume_cursor": page["_resume"]}


def get(store: Store, event_id: str, scopes: frozenset[str]) -> Row:
    """Return one event."""
    _readable(scopes)
    row = store.get(store.events, event_id)
    check_readable(row["resource_type"], scopes)
    return row


def check_readable(resource: str, scopes: frozenset[str]) -> None:
    """Check that the scopes permit reading a resource type.

    Raises:
        Refusal: The scope is missing (403).
    """
    scope = READ_SCOPE.get(ResourceType(resource)) if resource in list(ResourceType) else None
    if scope is not None and scope not in scopes:
        raise _lacks(scope)


def _readable(scopes: frozenset[str]) -> set[str]:
    readable = {str(resource) for resource, scope in READ_SCOPE.items() if scope in scopes}
    if not readable:
        raise _lacks(READ_SCOPE[ResourceType.BOOKING])
    return readable


def _lacks(scope: str) -> Refusal:
    return Refusal(403, "insufficient_scope", f"The API key lacks the scope {scope}.", required_scope=scope)


def _checked(named: list[str]) -> set[str]:
    if len(named) > EVENT_TYPES_PER_FILTER:
        raise malformed("type", f"names more than {EVENT_TYPES_PER_FILTER} types", "too_many")
    known = {str(kind) for kind in EventType} | {f"{resource}.*" for resource in ResourceType}
    if not known.issuperset(named):
        raise malformed("type", "is not an event type, nor a prefix such as booking.*", "unknown_type")
    return set(named)


def _resources(named: list[str]) -> list[str]:
    prefixes = [token.partition(".")[0] for token in named]
    return ["webhook" if prefix == "ping" else prefix for prefix in prefixes]


def _fits(kind: str, token: str) -> bool:
    return kind == token or (token.endswith(".*") and kind.startswith(token[:-1]))
