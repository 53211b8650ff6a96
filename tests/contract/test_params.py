"""Query parameters: list rules, filters, windows of days (API v1 section 4, decisions R2, R6, R7, L3, L4)."""

import itertools
import time
import uuid
from collections.abc import Callable

import httpx
import pytest
from support.api.api import Api
from support.api.refusals import field_of, invalid_field, reason_of, refused
from support.world.resources import LISTINGS
from support.world.world import World

pytestmark = pytest.mark.one_database


LISTS = [listing.path for listing in LISTINGS]
CPU_S = 1.0


def ask(api: Api, path: str, query: str = "") -> httpx.Response:
    """Send a GET with exactly this query."""
    return api.call("GET", f"{path}?{query}" if query else path)


LIMITS_REFUSED = {
    "out-of-range": ("0", "101", "-1", "9" * 5_000),
    "another-notation": ("1e1", "5_0", "25.0", "0x10", "%2B5", "+5", "%EF%BC%95", "%D9%A5"),
    "blanks": ("%205", "5%20", "5%0A", "5%00"),
    "no-number": ("", "five", "true", "null", "%FF"),
    "repeated": ("5&limit=5", "5&limit=6", "5&%6Cimit=5", "5&limit"),
}
CURSORS_REFUSED = {
    "text": ("", "%00", "a%00", "x", "0", "%25", "null", "..%2F..%2Fetc%2Fpasswd", "%27%20OR%201%3D1%20--"),
    "base64": ("A", "MQ==", "eyJfX3Byb3RvX18iOnt9fQ", "AQ", f"AQ{'A' * 54}", "JyBPUiAnMSc9JzE"),
    "unicode": ("%FF%FE", "%ED%A0%80", "%F0%9F%98%80", "%C3%A9" * 20),
    "id": ("00000000-0000-0000-0000-000000000000",),
    "long": ("A" * 300, "A" * 10_000),
}


def assert_refused_in_every_list(api: Api, name: str, values: tuple[str, ...]) -> None:
    for path, value in itertools.product(LISTS, values):
        assert (path, value, invalid_field(ask(api, path, f"{name}={value}"))) == (path, value, name)


@pytest.mark.parametrize("values", LIMITS_REFUSED.values(), ids=LIMITS_REFUSED)
def test_limit_is_a_plain_number_from_1_to_100(api: Api, values: tuple[str, ...]) -> None:
    assert_refused_in_every_list(api, "limit", values)


def test_a_limit_within_its_range_is_taken(api: Api) -> None:
    for path, value in itertools.product(LISTS, ("1", "25", "100", "025", "%31")):
        page = ask(api, path, f"limit={value}")
        assert (path, page.status_code, page.json()["data"], page.json()["has_more"]) == (path, 200, [], False)


def test_order_is_one_of_two_words(api: Api) -> None:
    assert_refused_in_every_list(api, "order", ("ASC", "Desc", "", "asc,desc", "1", "asc&order=asc", "%00"))


@pytest.mark.parametrize("values", CURSORS_REFUSED.values(), ids=CURSORS_REFUSED)
def test_forged_cursors_are_refused(api: Api, values: tuple[str, ...]) -> None:
    assert_refused_in_every_list(api, "starting_after", values)


BAD: dict[tuple[str, str], tuple[str, ...]] = {
    ("/experiences", "published"): ("1", "0", "TRUE", "yes", "", "true&published=true"),
    ("/bookings", "status"): ("Confirmed", "paid", "", "confirmed,cancelled", "confirmed&status=confirmed"),
    ("/bookings", "experience_id"): (
        *("abc", "", "1", "{id}0", "%7B{id}%7D", "urn:uuid:{id}", "{hex}"),
        *("{id}%00", "{id}%0A", "%20{id}"),
    ),
    ("/bookings", "departure_from"): (
        *("2026-02-30", "10000-01-01"),
        *("1700000000", "2026-01-01T00:00:00", "2026-1-1", "2026-W01-1"),
    ),
    ("/bookings", "departure_to"): (
        *("", "-0001-01-01", "0000-01-01"),
        *("20260101", "2026-01-01Z", "%202026-01-01", "2026-01-01%0A"),
    ),
    ("/customers", "email"): (
        *("", "a" * 3_000, "a@b.co&email=a@b.co"),
        *("a%00@b.co", "%FF@b.co", "a%0A@b.co", "%ED%A0%80"),
    ),
    ("/gift-cards", "status"): ("ACTIVE", "used", ""),
    ("/gift-cards/{id}", "include"): ("", "code&include=code", "co%00de", "%FF"),
    ("/events", "type"): (
        *("", "booking", "booking.paid", "BOOKING.CREATED", "booking.created,"),
        *("booking.*x", "*", ".*", "ping.*.*"),
    ),
    ("/events", "resource_type"): ("Booking", "", "bookings"),
    ("/events", "resource_id"): ("abc", "", "{hex}"),
    ("/availability", "from"): (
        *("", "2026-02-30", "10000-01-01"),
        *("1700000000", "2026-01-01T00:00:00", "2026-1-1", "today", "２０２６-01-01"),
    ),
    ("/availability", "to"): ("", "2026-13-01", "2026-12-32", "2026-12-1", "+30", "2026-12-01%00"),
    ("/availability", "experience_id"): ("abc", "", "{hex}"),
}
"""The malformed values of each parameter."""

INSTANTS = [
    ("/experiences", "updated_since"),
    ("/bookings", "updated_since"),
    ("/gift-cards", "updated_since"),
    ("/events", "created_since"),
    ("/events", "created_until"),
]


def required(path: str, name: str = "") -> str:
    """Return the parameters that the path requires beside this one."""
    return "from=2026-11-20&" if path == "/availability" and name != "from" else ""


@pytest.mark.parametrize(("where", "values"), BAD.items(), ids=["-".join(where) for where in BAD])
def test_a_parameter_of_another_form_is_named(api: Api, where: tuple[str, str], values: tuple[str, ...]) -> None:
    (path, name), some = where, uuid.uuid4()
    for value in values:
        query = f"{required(path, name)}{name}={value.format(id=some, hex=some.hex)}"
        assert (query, invalid_field(ask(api, path.format(id=some), query))) == (query, name)


def test_the_first_day_of_availability_is_required(api: Api) -> None:
    for query in ("", "to=2026-12-01", "From=2026-12-01", "from"):
        assert invalid_field(ask(api, "/availability", query)) == "from"


INSTANTS_REFUSED = {
    "no-time": ("", "yesterday", "1700000000", "２０２６-01-01"),
    "no-such-day": ("2026-02-30", "10000-01-01", "0000-01-01T00:00:00Z"),
    "no-such-time": ("2026-01-01T00:00:60Z", "2026-01-01T25:00", "2026-01-01T00:00:00.Z"),
    "no-such-offset": ("2026-01-01T00:00+24:00", "2026-01-01T00:00:00+1", "2026-01-01T00:00:00UTC"),
    "another-notation": ("2026-W01", "20260101", "2026-01-01T00:00:00Z%00", "2026-01-01T00:00:00Z&{name}=2026-01-01"),
}
INSTANTS_TAKEN = {
    "local": ("2026-11-20", "2026-11-20T00:00", "2026-11-20T00:00:00"),
    "utc": ("2026-11-20T00:00:00Z", "2026-11-20t00:00:00z", "2026-11-20T00:00:00.123456789Z"),
    "offset": (
        *("2026-11-20T00:00:00%2B01:00", "2026-11-20T00:00:00+01:00", "2026-11-20T00:00:00+0100"),
        "2026-11-20T00:00:00-23:59",
    ),
    "first-day": ("0001-01-01", "0001-01-01T00:00:00%2B23:59", "0001-01-01T00:00:00-23:59"),
    "last-day": ("9999-12-31", "9999-12-31T23:59:59.999999-23:59", "9999-12-31T23:59:59%2B23:59"),
}


@pytest.mark.parametrize("values", INSTANTS_REFUSED.values(), ids=INSTANTS_REFUSED)
def test_an_invalid_timestamp_is_refused_with_its_parameter(api: Api, values: tuple[str, ...]) -> None:
    for (path, name), value in itertools.product(INSTANTS, values):
        answer = ask(api, path, f"{name}={value.format(name=name)}")
        assert (path, value, invalid_field(answer)) == (path, value, name)


@pytest.mark.parametrize("values", INSTANTS_TAKEN.values(), ids=INSTANTS_TAKEN)
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12"], ids=["utc+14", "utc-12"])
def test_a_timestamp_at_any_end_of_the_calendar_is_taken(
    api: Api, new_world: Callable[..., World], values: tuple[str, ...], zone: str
) -> None:
    there = Api(api.client, new_world(timezone=zone))
    for (path, name), value in itertools.product(INSTANTS, values):
        page = ask(there, path, f"{name}={value}")
        assert (path, value, page.status_code, page.json()["data"]) == (path, value, 200, [])


@pytest.mark.parametrize(
    "query",
    ["unknown=1", "limit[]=5", "Limit=0", "page=2", "=x", "&&", "%FF=1", "%00=1", "a=%FF", "a=%00", "x" * 5_000],
    ids=lambda query: query[:12],
)
def test_an_unknown_parameter_is_ignored(api: Api, query: str) -> None:
    for path in [*LISTS, "/me", "/availability"]:
        plain, more = ask(api, path, required(path)), ask(api, path, required(path) + query)
        assert (more.status_code, more.json()) == (200, plain.json())


@pytest.mark.exhaustive(but="sqlite-events")
@pytest.mark.parametrize(
    ("path", "name"),
    [*BAD, *INSTANTS, ("/events", "starting_after")],
    ids=lambda text: text.strip("/"),
)
def test_a_long_parameter_is_refused_quickly(api: Api, path: str, name: str) -> None:
    for text in ("a", "a.", "0", "-", ",", "%61"):
        started = time.process_time()
        answer = ask(api, path.format(id=uuid.uuid4()), f"{required(path, name)}{name}={text * (60_000 // len(text))}")
        assert time.process_time() - started < CPU_S
        assert invalid_field(answer) == name
        assert len(answer.content) < 1_000


def test_a_query_of_many_parameters_is_read_quickly(api: Api) -> None:
    started = time.process_time()
    assert ask(api, "/customers", "&".join(f"p{number}=1" for number in range(8_000))).status_code == 200
    assert time.process_time() - started < CPU_S


def test_at_most_twenty_types_of_events_are_named(api: Api) -> None:
    assert ask(api, "/events", "type=" + ",".join(["booking.created"] * 20)).status_code == 200
    assert invalid_field(ask(api, "/events", "type=" + ",".join(["booking.created"] * 21))) == "type"


def test_a_plus_in_an_address_need_not_be_escaped(api: Api) -> None:
    api.post("/customers", {"name": "Ada", "email": "ada+tours@example.com"})
    for email in ("ada+tours@example.com", "ada%2Btours@example.com", "ADA%2BTOURS@EXAMPLE.COM"):
        (customer,) = ask(api, "/customers", f"email={email}").json()["data"]
        assert customer["email"] == "ada+tours@example.com"


@pytest.mark.parametrize(
    ("query", "is_shown"),
    [("", False), ("include=CODE", False), ("include=foo", False), ("include=code", True), ("include=code,foo", True),
     ("include=foo,code", True), ("Include=code", False), ("include[]=code", False)],
)  # fmt: skip
def test_only_the_word_code_asks_for_the_code(api: Api, query: str, is_shown: bool) -> None:
    response = ask(api, f"/gift-cards/{api.world.gift_card('GIFT-0001')}", query)
    assert response.status_code == 200
    assert response.json().get("code") == ("GIFT-0001" if is_shown else None)
    (listed,) = ask(api, "/gift-cards", query).json()["data"]
    assert "code" not in listed


WINDOWS: dict[str, dict[int, tuple[str, ...]]] = {
    "/availability?from=": {
        200: (
            *("2026-11-20&to=2026-11-20", "2026-01-01&to=2026-04-03", "2026-03-01&to=2026-06-01"),
            *("9999-12-31", "9999-12-31&to=9999-12-31", "9999-12-15", "0001-01-01", "0001-01-01&to=0001-01-01"),
        ),
        422: (
            *("2026-01-01&to=2026-04-04", "2026-03-01&to=2026-06-02", "2026-11-20&to=2026-11-19"),
            *("0001-01-01&to=9999-12-31", "9999-12-31&to=0001-01-01"),
        ),
    },
    "/bookings?departure_": {
        200: (
            "from=2026-01-01&departure_to=2026-04-03",
            *("to=0001-01-05", "to=9999-12-31", "from=9999-12-31", "from=0001-01-01"),
        ),
        422: ("from=2026-01-01&departure_to=2026-04-04", "from=2026-11-20&departure_to=2026-11-19"),
    },
}
"""The windows by the beginning of the request and the status of its answer."""


@pytest.mark.parametrize("zone", ["Europe/Oslo", "Pacific/Kiritimati", "Etc/GMT+12"], ids=["oslo", "utc+14", "utc-12"])
def test_a_window_has_at_most_92_days_at_any_date(api: Api, new_world: Callable[..., World], zone: str) -> None:
    there = Api(api.client, new_world(timezone=zone))
    for begin, ends in WINDOWS.items():
        for end in ends[200]:
            answer = there.call("GET", begin + end)
            assert (end, answer.status_code, answer.json()["data"]) == (end, 200, [])
        for end in ends[422]:
            answer = there.call("GET", begin + end)
            field = field_of(refused(answer, 422, "validation_failed"))
            assert (end, field) == (end, "to" if begin.startswith("/availability") else "departure_to")
            assert reason_of(answer) in ("window_reversed", "window_too_wide")


def test_availability_of_an_experience_is_asked_for_in_any_case(api: Api, world: World) -> None:
    hidden, published = world.experience(is_published=False), world.experience()
    departure_id = world.departure(hidden)
    world.departure(published)
    for experience_id in (hidden, hidden.upper()):
        page = ask(api, "/availability", f"from=2026-11-20&experience_id={experience_id}").json()
        assert [departure["id"] for departure in page["data"]] == [departure_id]


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/bookings", "experience_id={}"),
        ("/events", "resource_id={}"),
        ("/customers", "email={}@example.com"),
        ("/availability", "from=2026-11-20&experience_id={}"),
    ],
)
def test_a_filter_by_an_unknown_id_finds_nothing(api: Api, world: World, path: str, query: str) -> None:
    api.book(world.departure(world.experience()))
    page = ask(api, path, query.format(uuid.uuid4()))
    assert (page.status_code, page.json()["data"]) == (200, [])
