"""The feed is read by its sequence, shows a key the events that it may read, and a follower misses none."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from support.world.world import DAY, HOUR, NOON, World

from booking_core.base import tokens
from booking_core.base.errors import InsufficientScope, Malformed, NotFound
from booking_core.db.paging import PageRequest
from booking_core.models.events import Envelope, Event, EventType, ResourceType
from booking_core.models.pages import EventPage, Order
from booking_core.models.reasons import Fault
from booking_core.models.scopes import READ_SCOPES, Scope
from booking_core.records import events
from booking_core.records.events import NewEvent

ASC, DESC = Order.ASC, Order.DESC


def publish(world: World, *types: EventType, resource_id: str | None = None, **extra: Any) -> list[str]:
    """Publish an event of each type, about one resource or each about another."""
    new_events = [NewEvent(kind, resource_id or tokens.new_id(), b'{"id":"\xc3\xa5"}', extra) for kind in types]
    return world.database.write(lambda tx: events.publish(tx, world.organization, new_events, at=world.clock()))


def find(world: World, *scopes: Scope, page: PageRequest = PageRequest(), **filters: Any) -> Any:  # noqa: B008
    """Return a page as a client reads it."""
    page_of_events = world.database.read(lambda tx: events.find(tx, world.caller(*scopes), page, **filters))
    return orjson.loads(orjson.dumps(page_of_events))


def get(world: World, event_id: str, *scopes: Scope) -> Any:
    event = world.database.read(lambda tx: events.get(tx, world.caller(*scopes), event_id))
    return orjson.loads(orjson.dumps(event))


def walk(world: World, order: Order, limit: int, *scopes: Scope, **filters: Any) -> list[str]:
    """Return the ids of all pages."""
    walked, page = [], find(world, *scopes, page=PageRequest(limit, order), **filters)
    while page["has_more"]:
        assert page["next_cursor"] == page["resume_cursor"]
        walked += ids(page)
        page = find(world, *scopes, page=PageRequest(limit, order, page["next_cursor"]), **filters)
    assert page["next_cursor"] is None
    return walked + ids(page)


def ids(page: dict[str, Any]) -> list[str]:
    return [item["id"] for item in page["data"]]


def types(page: dict[str, Any]) -> list[str]:
    return [item["type"] for item in page["data"]]


# Shape and order -------------------------------------------------------------------------------------------------


def test_an_event_is_what_the_wire_calls_one(world: World) -> None:
    card = tokens.new_id()
    amount = {"amount_minor": 500, "currency": "NOK"}
    (event_id,) = publish(world, EventType.GIFT_CARD_REDEEMED, resource_id=card, redeemed_amount=amount)
    event = get(world, event_id)
    assert Event.model_validate(event).to_json() == event
    assert list(event) == [*Envelope.model_fields, "resource_type", "resource_id"]
    assert event["data"] == {"object": {"id": "å"}, "redeemed_amount": amount}
    assert (event["resource_type"], event["resource_id"]) == ("gift_card", card)
    page = find(world)
    assert page["data"] == [event]
    assert EventPage[Event].model_validate(page).to_json() == page


def test_an_event_about_no_resource_says_so(world: World) -> None:
    ping = [NewEvent(EventType.PING, None, b"{}")]
    world.database.write(lambda tx: events.publish(tx, world.organization, ping, at=world.clock()))
    (event,) = find(world, resource_type=ResourceType.WEBHOOK)["data"]
    assert (event["type"], event["resource_type"], event["resource_id"]) == ("ping", "webhook", None)


@pytest.mark.parametrize("order", [ASC, DESC])
@pytest.mark.parametrize("scopes", [(), (Scope.BOOKINGS_READ,), tuple(sorted(READ_SCOPES))])
def test_a_walk_sees_every_event_once(world: World, order: Order, scopes: tuple[Scope, ...]) -> None:
    event_ids = publish(
        world, *[EventType.BOOKING_CREATED, EventType.BOOKING_CONFIRMED] * 8, EventType.BOOKING_RESCHEDULED
    )
    assert walk(world, order, 3, *scopes) == (event_ids if order is ASC else event_ids[::-1])


def test_a_page_and_an_event_take_one_statement_each(world: World, statements: list[str]) -> None:
    (event_id,) = publish(world, EventType.BOOKING_CREATED)
    questions: list[dict[str, Any]] = [
        {},
        {"types": ["booking.*", "customer.created"]},
        {"resource_id": tokens.new_id(), "created_since": NOON},
        {"created_since": NOON, "created_until": NOON + DAY},
    ]
    statements.clear()
    for count, filters in enumerate(questions, start=1):
        find(world, *READ_SCOPES, **filters)
        assert len(statements) == count
    get(world, event_id)
    assert len(statements) == len(questions) + 1


# Scopes ----------------------------------------------------------------------------------------------------------

ONE_OF_EACH = [
    EventType(kind) for kind in ("booking.created", "customer.created", "gift_card.issued", "webhook.enabled")
]


@pytest.mark.parametrize(
    ("scopes", "expected"),
    [
        ((Scope.BOOKINGS_READ,), ["booking.created"]),
        ((Scope.CUSTOMERS_READ, Scope.EXPERIENCES_READ), ["customer.created"]),
        ((Scope.GIFT_CARDS_READ, Scope.BOOKINGS_READ), ["gift_card.issued", "booking.created"]),
        ((Scope.WEBHOOKS_MANAGE,), ["webhook.enabled"]),
        (tuple(sorted(READ_SCOPES)), ["gift_card.issued", "customer.created", "booking.created"]),
        ((), ["webhook.enabled", "gift_card.issued", "customer.created", "booking.created"]),
    ],
)
def test_unasked_a_key_sees_what_it_may_read(world: World, scopes: tuple[Scope, ...], expected: list[str]) -> None:
    publish(world, *ONE_OF_EACH)
    assert types(find(world, *scopes)) == expected


@pytest.mark.parametrize(
    ("filters", "required"),
    [
        ({"types": ["customer.created"]}, Scope.CUSTOMERS_READ),
        ({"types": ["booking.created", "gift_card.*"]}, Scope.GIFT_CARDS_READ),
        ({"types": ["ping"]}, Scope.WEBHOOKS_MANAGE),
        ({"resource_type": ResourceType.WEBHOOK}, Scope.WEBHOOKS_MANAGE),
        ({"types": ["booking.created"], "resource_type": ResourceType.CUSTOMER}, Scope.CUSTOMERS_READ),
        ({"types": ["booking.create", "customer.created"]}, Scope.CUSTOMERS_READ),
    ],
)
def test_what_is_asked_for_by_name_needs_its_scope(world: World, filters: dict[str, Any], required: Scope) -> None:
    with pytest.raises(InsufficientScope) as refused:
        find(world, Scope.BOOKINGS_READ, **filters)
    assert refused.value.required_scope is required


def test_a_key_that_can_read_nothing_is_refused_whatever_it_asks(world: World) -> None:
    (event_id,) = publish(world, EventType.BOOKING_CREATED)
    questions: list[dict[str, Any]] = [{}, {"types": ["nonsense"]}, {"resource_id": tokens.new_id()}]
    for filters in questions:
        with pytest.raises(InsufficientScope):
            find(world, Scope.EXPERIENCES_READ, Scope.BOOKINGS_WRITE, **filters)
    for one in (event_id, tokens.new_id()):
        with pytest.raises(InsufficientScope):
            get(world, one, Scope.EXPERIENCES_READ)


# Filters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"types": ["customer.created"]}, ["customer.created"]),
        ({"types": ["booking.*"]}, ["booking.cancelled", "booking.created"]),
        ({"types": ["gift_card.*", "customer.created"]}, ["gift_card.issued", "customer.created"]),
        ({"types": ["booking.created", "booking.*", "booking.created"]}, ["booking.cancelled", "booking.created"]),
        ({"types": ["webhook.*"]}, ["webhook.enabled"]),
        ({"types": ["booking.rescheduled"]}, []),
        ({"resource_type": ResourceType.GIFT_CARD}, ["gift_card.issued"]),
        ({"resource_type": ResourceType.WEBHOOK}, ["ping", "webhook.enabled"]),
        ({"resource_type": ResourceType.BOOKING, "types": ["booking.created"]}, ["booking.created"]),
        ({"resource_type": ResourceType.BOOKING, "types": ["customer.created"]}, []),
    ],
)
def test_types_are_named_one_by_one_or_by_prefix(world: World, filters: dict[str, Any], expected: list[str]) -> None:
    publish(world, *ONE_OF_EACH, EventType.BOOKING_CANCELLED, EventType.PING)
    assert types(find(world, **filters)) == expected


@pytest.mark.parametrize(
    "names", [["booking.create"], ["nope.*"], ["*"], [""], [".*"], ["booking.created", "x"], ["Booking.created"]]
)
def test_an_unknown_type_is_refused(names: list[str]) -> None:
    with pytest.raises(Fault) as refused:
        events.split_types(",".join(names))
    assert refused.value.reason == "unknown_value"


@pytest.mark.parametrize("order", [ASC, DESC])
@pytest.mark.parametrize(
    "filters", [{}, {"created_since": NOON - DAY}, {"created_since": NOON, "created_until": NOON + 1}]
)
def test_a_walk_sees_every_event_of_a_resource_once_whatever_its_types(
    world: World, order: Order, filters: dict[str, Any]
) -> None:
    booking, event_ids = tokens.new_id(), []
    single = [EventType.BOOKING_CREATED, EventType.BOOKING_CONFIRMED, EventType.BOOKING_CANCELLED]
    for kind in single:
        event_ids += publish(
            world, kind, *[EventType.BOOKING_UPDATED, EventType.BOOKING_REFUNDED] * 2, resource_id=booking
        )
        publish(world, EventType.BOOKING_UPDATED)
    expected = event_ids if order is ASC else event_ids[::-1]
    assert walk(world, order, 2, resource_id=booking, **filters) == expected
    of_updates = find(world, page=PageRequest(order=order), resource_id=booking, types=["booking.updated"], **filters)
    assert ids(of_updates) == [event_id for event_id in expected if event_ids.index(event_id) % 5 in (1, 3)]


@pytest.mark.parametrize("order", [ASC, DESC])
@pytest.mark.parametrize("kinds", [(), ("booking.created",), ("booking.created", "customer.created")])
def test_the_first_instant_counts_and_the_last_does_not(world: World, order: Order, kinds: tuple[str, ...]) -> None:
    event_ids = []
    for _ in range(6):
        event_ids += publish(world, EventType.BOOKING_CREATED)
        world.clock.advance(HOUR)

    def within(since: int | None, until: int | None) -> list[str]:
        walked = walk(world, order, 2, created_since=since, created_until=until, types=kinds)
        return walked if order is ASC else walked[::-1]

    assert within(NOON + HOUR, None) == event_ids[1:]
    assert within(NOON + HOUR + 1, None) == event_ids[2:]
    assert within(None, NOON + 3 * HOUR) == event_ids[:3]
    assert within(None, NOON + 3 * HOUR + 1) == event_ids[:4]
    assert within(NOON + HOUR, NOON + 5 * HOUR) == event_ids[1:5]
    assert within(NOON - 9000 * DAY, NOON + 9000 * DAY) == event_ids
    assert within(NOON + HOUR, NOON + HOUR) == []
    assert within(NOON + DAY, None) == []
    assert within(None, NOON) == []


def test_the_events_of_one_resource_are_bounded_in_time_too(world: World) -> None:
    booking = tokens.new_id()
    publish(world, EventType.BOOKING_CREATED, resource_id=booking)
    world.clock.advance(HOUR)
    confirmed = publish(world, EventType.BOOKING_CONFIRMED, resource_id=booking)
    assert ids(find(world, resource_id=booking, created_since=NOON + 1)) == confirmed
    assert ids(find(world, resource_id=booking, created_until=NOON)) == []


def test_an_event_dated_before_its_predecessor_is_found_by_its_date(world: World) -> None:
    late = publish(world, EventType.BOOKING_CREATED)
    world.clock.advance(-20 * HOUR // 3600)
    early = publish(world, EventType.BOOKING_CREATED)
    assert ids(find(world, created_since=NOON)) == late
    assert ids(find(world, created_until=NOON)) == early
    assert ids(find(world, created_since=world.clock(), created_until=NOON + 1)) == early + late


# Tenants and cursors ---------------------------------------------------------------------------------------------


def test_a_cursor_opens_only_what_it_was_issued_for(world: World, new_world: Callable[..., World]) -> None:
    other, booking = new_world(), tokens.new_id()
    searches: list[dict[str, Any]] = [
        {},
        {"types": ["booking.*"]},
        {"types": ["booking.created"]},
        {"resource_type": ResourceType.BOOKING},
        {"resource_id": booking},
        {"created_since": NOON},
        {"created_until": NOON + 1},
    ]
    for tenant in (world, other):
        publish(tenant, *[EventType.BOOKING_RESCHEDULED] * 3, *[EventType.BOOKING_CREATED] * 3)
        publish(tenant, EventType.BOOKING_CREATED, EventType.BOOKING_CONFIRMED, resource_id=booking)
    for issued in searches:
        cursor = find(world, page=PageRequest(1), **issued)["next_cursor"]
        assert find(world, page=PageRequest(5, DESC, cursor), **issued)["data"]
        for search in searches:
            for tenant, order in [(world, DESC), (world, ASC), (other, DESC)]:
                if (tenant, order, search) != (world, DESC, issued):
                    with pytest.raises(Malformed):
                        find(tenant, page=PageRequest(1, order, cursor), **search)


def test_types_may_be_named_in_another_order_on_the_next_page(world: World) -> None:
    publish(world, *[EventType.BOOKING_CREATED] * 3)
    cursor = find(world, types=["booking.created", "ping"], page=PageRequest(1))["next_cursor"]
    assert find(world, types=["ping", "booking.created", "ping"], page=PageRequest(1, starting_after=cursor))["data"]


def test_a_cursor_outlives_the_key_it_was_given_to(world: World) -> None:
    event_ids = publish(world, EventType.BOOKING_CREATED, EventType.CUSTOMER_CREATED, EventType.BOOKING_CONFIRMED)
    cursor = find(world, page=PageRequest(1))["next_cursor"]
    assert ids(find(world, Scope.BOOKINGS_READ, page=PageRequest(starting_after=cursor))) == [event_ids[0]]


def test_a_cursor_is_checked_where_nothing_can_match(world: World) -> None:
    with pytest.raises(Malformed):
        find(world, types=["ping"], resource_type=ResourceType.BOOKING, page=PageRequest(starting_after="x"))


@pytest.mark.parametrize("order", [ASC, DESC])
def test_a_cursor_into_what_was_purged_goes_on_at_the_oldest_kept(world: World, order: Order) -> None:
    event_ids = publish(world, *[EventType.CUSTOMER_CREATED] * 10)
    cursor = find(world, page=PageRequest(2, order))["next_cursor"]
    assert world.database.write(lambda tx: events.purge(tx, world.org, before=world.clock() + 1, limit=6)) == 6
    remaining = ids(find(world, page=PageRequest(20, order, cursor)))
    assert remaining == (event_ids[6:] if order is ASC else event_ids[6:8][::-1])
    with pytest.raises(NotFound):
        get(world, event_ids[0])


# Following -------------------------------------------------------------------------------------------------------


def test_a_follower_resumes_at_the_tail(world: World) -> None:
    first = publish(world, *[EventType.CUSTOMER_CREATED] * 2)
    page = find(world, page=PageRequest(order=ASC))
    assert (ids(page), page["has_more"], page["next_cursor"]) == (first, False, None)
    resume = page["resume_cursor"]
    for _ in range(2):
        page = find(world, page=PageRequest(25, ASC, resume))
        assert (page["data"], page["resume_cursor"]) == ([], resume)
    second = publish(world, EventType.CUSTOMER_CREATED)
    page = find(world, page=PageRequest(25, ASC, resume))
    assert ids(page) == second
    assert page["resume_cursor"] != resume


@pytest.mark.parametrize("order", [ASC, DESC])
@pytest.mark.parametrize(
    "filters", [{}, {"types": ["gift_card.*"]}, {"types": ["ping"], "resource_type": ResourceType.BOOKING}]
)
def test_an_empty_page_without_a_cursor_can_be_resumed(world: World, order: Order, filters: dict[str, Any]) -> None:
    publish(world, *([EventType.CUSTOMER_CREATED] if filters else []))
    empty = find(world, page=PageRequest(order=order), **filters)
    assert (empty["data"], empty["next_cursor"]) == ([], None)
    issued = publish(world, EventType.GIFT_CARD_ISSUED)
    resumed = find(world, page=PageRequest(25, order, empty["resume_cursor"]), **filters)
    assert ids(resumed) == ([] if "resource_type" in filters else issued)


def test_resuming_the_other_way_leads_on_to_older_events(world: World) -> None:
    event_ids = publish(world, *[EventType.CUSTOMER_CREATED] * 3)
    page = find(world, page=PageRequest(2))
    page = find(world, page=PageRequest(2, DESC, page["resume_cursor"]))
    assert ids(page) == [event_ids[0]]
    publish(world, EventType.CUSTOMER_CREATED)
    page = find(world, page=PageRequest(2, DESC, page["resume_cursor"]))
    assert page["data"] == []
    assert page["resume_cursor"] is not None
