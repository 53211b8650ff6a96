"""Reading lists page by page (API v1 section 4, decisions L1, L2, L5, L7): every row once, in order, beside concurrent
writes."""

import base64
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import pytest
from support.api.api import PAGES_MAX, Api, error_of
from support.api.refusals import invalid_field
from support.databases.databases import analyze, connect, fill
from support.world import rows
from support.world.resources import LISTINGS, Listing
from support.world.world import DAY, NOON, SECRET, FixedClock, World, make_world

from booking_core import bookings
from booking_core.base import cursors
from booking_core.base.context import Caller, Installation
from booking_core.base.errors import Malformed
from booking_core.base.tokens import SecretKeys, new_id
from booking_core.bookings import BookingConditions
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.db.paging import PageRequest
from booking_core.models.pages import Order
from booking_core.records import events

FindPage = Callable[[PageRequest], dict[str, Any]]

each_list = pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: listing.path[1:])
both_orders = pytest.mark.parametrize("order", list(Order))


def in_order(ascending: Sequence[str], order: Order) -> list[str]:
    return list(ascending) if order is Order.ASC else list(reversed(ascending))


def walked(api: Api, path: str, **params: Any) -> list[str]:
    """Return the ids of all pages."""
    return [item["id"] for page in api.pages(path, **params) for item in page["data"]]


# Every list ------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive(but=("sqlite", "postgresql-a-microsecond-apart"))
@each_list
@both_orders
@pytest.mark.parametrize(
    ("instants", "limit"),
    [
        pytest.param([NOON] * 500, 60, id="500-at-once"),
        pytest.param(range(NOON, NOON + 30), 4, id="a-microsecond-apart"),
    ],
)
def test_rows_are_listed_once_each_in_the_order_of_their_creation(
    api: Api, shared_database_url: str, listing: Listing, order: Order, instants: Sequence[int], limit: int
) -> None:
    expected = in_order(listing.filled(api.world, shared_database_url, instants), order)
    assert walked(api, listing.path, limit=limit, order=order) == expected


@each_list
def test_the_newest_25_come_first_unless_said_otherwise(api: Api, shared_database_url: str, listing: Listing) -> None:
    ascending = listing.filled(api.world, shared_database_url, range(NOON, NOON + 101))
    for parameters, length in (({}, 25), ({"limit": 1}, 1), ({"limit": 100}, 100)):
        page = api.get(listing.path, **parameters).json()
        assert [item["id"] for item in page["data"]] == in_order(ascending, Order.DESC)[:length]
        assert page["has_more"] is True


@each_list
def test_a_page_with_the_last_row_says_nothing_follows(api: Api, shared_database_url: str, listing: Listing) -> None:
    listing.filled(api.world, shared_database_url, range(NOON, NOON + 6))
    for limit in (6, 7, 100):
        page = api.get(listing.path, limit=limit).json()
        assert (len(page["data"]), page["has_more"], page["next_cursor"]) == (6, False, None)
    assert [len(page["data"]) for page in api.pages(listing.path, limit=3)] == [3, 3]
    assert [len(page["data"]) for page in api.pages(listing.path, limit=5)] == [5, 1]


@each_list
def test_an_empty_list_is_one_empty_page(api: Api, listing: Listing) -> None:
    page = api.get(listing.path).json()
    assert (page["data"], page["has_more"], page["next_cursor"]) == ([], False, None)


@each_list
def test_the_size_of_a_page_may_change_on_the_way(api: Api, shared_database_url: str, listing: Listing) -> None:
    ascending = listing.filled(api.world, shared_database_url, [NOON] * 10)
    first = api.get(listing.path, limit=3, order="asc").json()
    second = api.get(listing.path, limit=7, order="asc", starting_after=first["next_cursor"]).json()
    assert [item["id"] for page in (first, second) for item in page["data"]] == ascending


@each_list
@both_orders
def test_a_cursor_whose_row_is_deleted_continues_after_it(
    api: Api, shared_database_url: str, listing: Listing, order: Order
) -> None:
    expected = in_order(listing.filled(api.world, shared_database_url, [NOON] * 9), order)
    first = api.get(listing.path, limit=4, order=order).json()
    with connect(shared_database_url) as connection:
        for row_id in expected[3:5]:
            connection.execute(f"DELETE FROM {listing.table.name} WHERE id = '{row_id}'")
    rest = walked(api, listing.path, limit=4, order=order, starting_after=first["next_cursor"])
    assert rest == expected[5:]


@pytest.mark.one_database
@each_list
def test_a_cursor_works_only_for_its_list(api: Api, shared_database_url: str, listing: Listing, other_api: Api) -> None:
    listing.filled(api.world, shared_database_url, [NOON] * 3)
    cursor = api.get(listing.path, limit=1).json()["next_cursor"]
    assert api.get(listing.path, starting_after=cursor, order="desc").status_code == 200
    refused = [
        api.get(listing.path, starting_after=cursor, order="asc"),
        other_api.get(listing.path, starting_after=cursor),
        *(api.get(other.path, starting_after=cursor) for other in LISTINGS if other is not listing),
    ]
    if listing.since:
        since_years = {since: {listing.since: f"{since}-01-01T00:00:00Z"} for since in (2020, 2021)}
        later = api.get(listing.path, limit=1, **since_years[2021]).json()["next_cursor"]
        refused += [api.get(listing.path, starting_after=one, **since_years[2020]) for one in (cursor, later)]
    for response in refused:
        assert invalid_field(response) == "starting_after"


def test_a_cursor_is_the_same_in_every_release() -> None:
    binding = cursors.Binding("org", "bookings", "asc")
    text = cursors.encode_row(SecretKeys("k" * 40), binding, NOON, "01900000-1234-7abc-8def-0123456789ab")
    assert text == "AQAGYMgZoXAAAZAAABI0eryN7wEjRWeJq6bNQ8E42u4fynl18yHfkXs"


@pytest.mark.one_database
@each_list
def test_a_cursor_that_was_changed_or_made_up_is_refused(api: Api, shared_database_url: str, listing: Listing) -> None:
    listing.filled(api.world, shared_database_url, [NOON] * 3)
    cursor = api.get(listing.path, limit=1).json()["next_cursor"]
    for forged in forgeries(cursor):
        response = api.get(listing.path, starting_after=forged)
        assert error_of(response) == (400, "validation_failed"), forged
        assert forged not in response.text


def forgeries(cursor: str) -> Iterator[str]:
    """Return invalid cursors: with each byte changed, with the first and the last character changed, cut, lengthened.

    `CURSORS_REFUSED` of test_params.py has other texts.
    """
    for place in (0, len(cursor) - 1):
        yield f"{cursor[:place]}{'A' if cursor[place] != 'A' else 'B'}{cursor[place + 1 :]}"
    data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    for place in range(len(data)):
        yield _encoded(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    yield from (cursor[:-1], cursor[1:], cursor[: len(cursor) // 2], cursor + "A", cursor + "=", cursor * 2)
    yield _encoded(b"\x00" * len(data))


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


# While rows are inserted -----------------------------------------------------------------------------------------

ROWS = 20_000
TIED = 500
TIES_AT = 8_000
"""The number of rows before the rows with the same timestamp."""
INSERTS = 60


@dataclass(frozen=True)
class Long:
    """An organization with 20,000 bookings (500 of them share one instant), and a function to make more."""

    world: World
    departure: str
    experience: str
    ascending: list[str]
    """Those that are there from the beginning."""

    def without_inserted(self, ids: Iterable[str]) -> list[str]:
        """Return the given ids without the ids of rows inserted later."""
        initial = set(self.ascending)
        return [row_id for row_id in ids if row_id in initial]

    def insert(self, at: int) -> None:
        row = rows.booking(self.world.org, new_id(), self.departure, self.experience, at)
        self.world.insert(tables.bookings, **{name: row[name] for name in row if name != "organization_id"})

    def find(self, caller: Caller) -> FindPage:
        """`bookings.find`, each page on its own as over HTTP."""
        return lambda page: self.world.database.read(lambda tx: bookings.find(tx, caller, page, BookingConditions()))


@pytest.fixture(scope="module")
def long(backend: str, new_database_url: Callable[[str], str]) -> Iterator[Long]:
    url = new_database_url(backend)
    database = Database(url)
    world = make_world(database, FixedClock())
    ties = NOON + TIES_AT
    instants = [*range(NOON, ties), *[ties] * TIED, *range(ties + 1, ties + 1 + ROWS - TIES_AT - TIED)]
    ids = LISTINGS[0].filled(world, url, instants)
    analyze(url)
    departure = world.rows(tables.departures)[0]
    yield Long(world, departure["id"], departure["experience_id"], ids)
    database.close()


def walk(find: FindPage, order: Order, limit: int, start: str | None = None) -> Iterator[list[str]]:
    """Yield the ids of each page."""
    for _ in range(PAGES_MAX):
        page = find(PageRequest(limit, order, start))
        yield [booking["id"] for booking in page["data"]]
        start = page["next_cursor"]
        if start is None:
            return
    raise AssertionError("the walk does not end")


@pytest.mark.exhaustive(but="sqlite-desc")
@pytest.mark.parametrize(("order", "limit"), [(Order.ASC, 33), (Order.DESC, 100)])
def test_20_000_bookings_are_listed_once_each_while_others_are_inserted(long: Long, order: Order, limit: int) -> None:
    row_ids: list[str] = []
    between = ROWS // limit // INSERTS
    places = [NOON - 1, NOON + TIES_AT // 2, NOON + TIES_AT, NOON + ROWS // 2, NOON + 2 * ROWS]
    for number, page in enumerate(walk(long.find(long.world.caller()), order, limit)):
        assert len(page) <= limit
        row_ids += page
        if number % between == 0:
            long.insert(places[number // between % len(places)])
    assert len(row_ids) == len(set(row_ids))
    assert long.without_inserted(row_ids) == in_order(long.ascending, order)


@pytest.mark.exhaustive(but="sqlite")
@both_orders
def test_pages_of_one_are_exact_among_500_rows_of_an_instant(long: Long, order: Order) -> None:
    find, expected = long.find(long.world.caller()), in_order(long.ascending, order)
    ties = TIES_AT if order is Order.ASC else ROWS - TIES_AT - TIED
    behind_the_walk = NOON - 1 if order is Order.ASC else NOON + 2 * ROWS
    for begin in (0, ties - 50, ROWS - 100):
        start, row_ids = cursor_behind(long, order, expected[begin - 1]) if begin else None, []
        pages = TIED + 100 if begin == ties - 50 else 200
        for number, page in enumerate(islice(walk(find, order, 1, start), pages)):
            assert len(page) == 1
            row_ids += page
            if number % 100 == 0:
                long.insert(behind_the_walk)
        initial = long.without_inserted(row_ids)
        assert len(row_ids) == len(set(row_ids))
        assert initial == expected[begin : begin + len(initial)]
        assert len(initial) >= min(pages - 100, ROWS - begin)


def cursor_behind(long: Long, order: Order, row_id: str) -> str:
    """Return the cursor after the row."""
    created_at = long.world.row(tables.bookings, row_id)["created_at"]
    binding = cursors.Binding(long.world.org, "bookings", order)
    return cursors.encode_row(long.world.caller().secret_keys, binding, created_at, row_id)


# Filters whose rows lie scattered along the list are carried out in one of two ways, by how many rows pass them.


@pytest.mark.exhaustive(but="sqlite")
@both_orders
@pytest.mark.parametrize("count", [1, 499, 500, 501, 3_000])
def test_updated_since_finds_exactly_the_changed_rows(long: Long, order: Order, count: int) -> None:
    caller, since = long.world.caller(), NOON + ROWS - TIED + 1 - count

    def find(page: PageRequest) -> dict[str, Any]:
        return long.world.database.read(
            lambda tx: bookings.find(tx, caller, page, BookingConditions(updated_since=since))
        )

    row_ids = [row_id for page in walk(find, order, 100) for row_id in page]
    assert len(row_ids) == len(set(row_ids))
    assert long.without_inserted(row_ids) == in_order(long.ascending[-count:], order)


@pytest.mark.exhaustive(but=("sqlite", "postgresql-22-24-3-desc"))
@both_orders
@pytest.mark.parametrize(("first", "last", "days"), [(22, 22, 1), (22, 23, 2), (23, 24, 2), (22, 24, 3), (25, 26, 0)])
def test_a_window_finds_exactly_its_departures(
    api: Api, world: World, shared_database_url: str, order: Order, first: int, last: int, days: int
) -> None:
    experience = world.experience()
    leaving = [world.departure(experience, starts_at=NOON + day * DAY) for day in (1, 2, 3)]
    per_departure = 260
    booked = [
        rows.booking(
            world.org, row_id, leaving[n % 3], experience, NOON + n // 2, status=("confirmed", "pending")[n % 2]
        )
        for n, row_id in zip(range(3 * per_departure), rows.ids(), strict=False)
    ]
    fill(shared_database_url, tables.bookings, booked)
    inside = {leaving[day - 22] for day in range(first, min(last, 24) + 1)}
    listed = [row for row in booked if row["departure_id"] in inside]
    expected = sorted(listed, key=lambda row: (row["created_at"], row["id"]))
    window = {"departure_from": f"2026-11-{first}", "departure_to": f"2026-11-{last}"}
    assert len(expected) == days * per_departure
    assert walked(api, "/bookings", limit=100, order=order, **window) == in_order([r["id"] for r in expected], order)
    pending = in_order([row["id"] for row in expected if row["status"] == "pending"], order)
    assert walked(api, "/bookings", limit=100, order=order, status="pending", **window) == pending


# Keys that sign --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "find", [partial(bookings.find, filters=BookingConditions()), events.find], ids=["bookings", "events"]
)
def test_a_cursor_lives_as_long_as_the_key_that_signed_it(
    world: World, shared_database_url: str, find: Callable[..., Any]
) -> None:
    LISTINGS[0].filled(world, shared_database_url, [NOON] * 3)
    LISTINGS[4].filled(world, shared_database_url, [NOON] * 3)

    def page(secret_keys: SecretKeys, cursor: str | None) -> Any:
        caller = replace(world, installation=Installation(secret_keys)).caller()
        return world.database.read(lambda tx: find(tx, caller, PageRequest(1, Order.ASC, cursor)))

    cursor = page(SecretKeys(SECRET), None)["next_cursor"]
    both = page(SecretKeys("the new secret key", SECRET), cursor)
    assert both["data"]
    assert page(SecretKeys("the new secret key"), both["next_cursor"])["data"]
    with pytest.raises(Malformed):
        page(SecretKeys("the new secret key"), cursor)


# The feed --------------------------------------------------------------------------------------------------------


def test_a_follower_of_the_feed_misses_nothing_while_eight_write(api: Api) -> None:
    departures = [api.world.departure(api.world.experience(), seats=100) for _ in range(4)]
    writers, per_writer = 8, 12
    stopped = threading.Event()

    def write(writer: int) -> None:
        for number in range(per_writer):
            guest = {"name": "A guest", "email": f"{writer}-{number}@example.com"}
            assert api.book(departures[number % 4], customer=guest).status_code == 201

    def follow() -> list[int]:
        sequences: list[int] = []
        cursor = None
        while True:
            finished = stopped.is_set()
            params = {"starting_after": cursor} if cursor else {}
            page = api.get("/events", order="asc", limit=5, **params).json()
            sequences += [event["sequence"] for event in page["data"]]
            cursor = page["resume_cursor"]
            if finished and not page["has_more"]:
                return sequences

    with ThreadPoolExecutor(writers + 1) as threads:
        follower = threads.submit(follow)
        for written in [threads.submit(write, writer) for writer in range(writers)]:
            written.result()
        stopped.set()
        assert follower.result() == list(range(1, 3 * writers * per_writer + 1))


def test_an_event_is_not_seen_before_one_with_a_lower_sequence(api: Api, world: World) -> None:
    """The lower one is written by a transaction that takes its time; the higher one has to wait for it."""
    departures = [world.departure(world.experience()) for _ in range(2)]
    api.book(departures[0])
    before = len(api.event_types())
    begun, go_on = threading.Event(), threading.Event()

    def stall(text: str) -> None:
        if "INSERT INTO events" in text:
            world.database.observer = None
            begun.set()
            go_on.wait(timeout=30)

    with ThreadPoolExecutor(2) as threads:
        world.database.observer = stall
        slow = threads.submit(api.book, departures[0])
        assert begun.wait(timeout=30)
        fast = threads.submit(api.book, departures[1])
        assert len(api.event_types()) == before
        go_on.set()
        numbers = [booked.result().json()["booking_number"] for booked in (slow, fast)]
    assert numbers == [2, 3]
    sequences = [event["sequence"] for event in api.get("/events", order="asc").json()["data"]]
    assert sequences == list(range(1, before + 5))
