"""Every table of the command line at 80 and at 120 columns, with the long and the foreign names that real data has."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import pytest
from rich.cells import cell_len
from support.serving.commands import Booking, Environment, OnTerminal, RecordedTerminal
from support.world.world import DAY, World

from booking_cli.client import api_departures
from booking_cli.commands import bookings, customers, events, experiences, gift_cards, keys, mails, orgs
from booking_cli.commands.webhooks import deliveries, endpoints
from booking_cli.framework.global_options import Options
from booking_cli.framework.output import Renderer
from booking_cli.framework.tables import Columns, Layout
from booking_core.models.scopes import READ_SCOPES, Scope

ID = "01a201e1-b1a7-7618-bae9-07196820dd89"
EMAIL = "maximiliane.von-hohenstaufen-wittelsbach@verwaltung.example-hospitality-group.com"
NAMES = ("Maximiliane von Hohenstaufen-Wittelsbach", "山田太郎と友人たち", "محمد عبد الرحمن", "Ada")
TITLES = (
    "Fjord kayak at sunrise with a guide, breakfast and a sauna",
    "富士山の日の出ハイキングと温泉体験ツアー",
    "Sauna",
    "جولة",
)
AT = "2026-12-24T10:00:00+01:00"
NOK = {"amount_minor": 1_289_000, "currency": "NOK"}
NAME, TITLE = itemgetter(0), itemgetter(1)


def every(**fields: Any) -> list[dict[str, Any]]:
    """Return an item for each name and title."""
    return [
        {key: value(texts) if callable(value) else value for key, value in fields.items()}
        for texts in zip(NAMES, TITLES, strict=True)
    ]


EXPERIENCE = {"experience": lambda texts: {"title": TITLE(texts)}}
BOOKINGS = every(
    id=ID,
    booking_number=12_345,
    status="confirmed",
    departure={"starts_at": AT},
    totals={"total": NOK},
    customer=lambda texts: {"name": NAME(texts)},
    **EXPERIENCE,
    payment={"status": "partially_refunded"},
)
ENDPOINTS = every(
    id=ID,
    status="auto_disabled",
    consecutive_failures=84,
    url="https://hooks.example.com/booking-service/production?tenant=fjord-tours",
    last_failure_at=AT,
    last_success_at=None,
    event_types=["booking.cancelled", "booking.created", "customer.created"],
    description="The calendar of the office",
)
DELIVERIES = every(
    id=ID,
    status="succeeded",
    last_response_status=500,
    last_error="connect_failed",
    event_type="gift_card.redeemed",
    attempt_count=6,
    created_at=AT,
    next_attempt_at=AT,
)
ATTEMPTS = every(
    number=1,
    started_at=AT,
    response_status=500,
    error="http_status",
    duration_ms=10_000,
    response_excerpt='{"error": "database connection refused: could not connect to server on port 5432"}',
    id=ID,
)
DEPARTURES = every(id=ID, starts_at=AT, status="cancelled", **EXPERIENCE, price=NOK, booking_closes_at=AT)
CUSTOMERS = every(id=ID, name=NAME, email=EMAIL, phone="+47 22 00 00 00", tags=["vip", "press"])
EXPERIENCES = every(id=ID, title=TITLE, is_published=True, price_from=NOK, duration="2 h 30 min")
CARDS = every(id=ID, code_last4="7KQ2", status="inactive", balance=NOK, expires_at=AT, recipient={"email": EMAIL})
EVENTS = every(id=ID, type="webhook.secret_rotated", created_at=AT, resource_id=ID, sequence=1_042)
ORGS = every(slug="fjord-tours", name=NAME, timezone="America/Santiago", default_currency="NOK", id=ID)
KEYS = every(
    id=ID,
    name=NAME,
    status="revoked",
    expires_at=AT,
    last_used_at=AT,
    prefix="svc_dxjWZc9f",
    scopes=[*READ_SCOPES, "bookings:write", "customers:write", "webhooks:manage"],
)
MAILS = every(id=ID, status="unwritten", recipient=EMAIL, kind="booking_confirmation_mail", last_error="550 no user")
TABLES = {
    "availability": (DEPARTURES, replace(api_departures.COLUMNS, below=None)),
    "bookings list": (BOOKINGS, bookings.COLUMNS),
    "webhooks list": (ENDPOINTS, endpoints.COLUMNS),
    "deliveries list": (DELIVERIES, deliveries.COLUMNS),
    "deliveries show": (ATTEMPTS, deliveries.ATTEMPT_COLUMNS),
    "customers list": (CUSTOMERS, customers.COLUMNS),
    "experiences list": (EXPERIENCES, experiences.COLUMNS),
    "gift-cards list": (CARDS, gift_cards.COLUMNS),
    "events list": (EVENTS, events.COLUMNS),
    "orgs list": (ORGS, orgs.COLUMNS),
    "keys list": (KEYS, keys.COLUMNS),
    "mails list": (MAILS, mails.COLUMNS),
}
"""By command: the items of its table, and its columns."""
HEADERS = {
    "availability": "starts_at seats price experience | booking_closes_at",
    "bookings list": "number status departs total customer experience | payment",
    "webhooks list": "id status failures url | last_failure",
    "deliveries list": "id status http error | event_type attempts created_at",
    "deliveries show": "number started_at http error ms response |",
    "customers list": "id name email | phone tags",
    "experiences list": "id title published | price_from duration slug",
    "gift-cards list": "id last4 status balance | expires_at recipient",
    "events list": "id type created_at | resource_id",
    "orgs list": "slug name timezone currency | id",
    "keys list": "prefix name status expires_at scopes | last_used_at",
    "mails list": "id status recipient | kind error",
}
"""The titles at 80 columns, and after the bar the additional titles at 120 columns."""


def drawn(
    recorded_terminal: RecordedTerminal, width: int, items: Sequence[Mapping[str, Any]], columns: Columns
) -> list[str]:
    screen = recorded_terminal(width)
    Renderer(Options(color="never")).many(items, columns)
    return screen.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("table", TABLES)
def test_a_table_shows_what_people_look_for(recorded_terminal: RecordedTerminal, table: str, width: int) -> None:
    items, columns = TABLES[table]
    narrow, _, more = HEADERS[table].partition("|")
    header, *lines = drawn(recorded_terminal, width, items, columns)
    assert header.split() == narrow.split() + (more.split() if width == 120 else [])
    assert len(lines) == len(items), "each item is one line"
    assert max(map(cell_len, (header, *lines))) <= width
    if "id" in header.split():
        assert all(ID in line for line in lines), "an id that is shown can be copied"


@pytest.mark.parametrize("table", TABLES)
def test_no_table_is_wider_than_its_terminal(recorded_terminal: RecordedTerminal, table: str) -> None:
    items, columns = TABLES[table]
    paths = columns.terminal or columns.paths
    layout = Layout({path: ["x" * 90] for path in paths}, dict.fromkeys(paths, "h"), (), columns.truncated)
    for width in range(20, 200, 7):
        widths = [90 if column_width is None else column_width for column_width in layout.fit(width).values()]
        assert len(widths) == 1 or sum(widths) + 2 * (len(widths) - 1) <= width
        assert len(drawn(recorded_terminal, width, items, columns)) >= len(items)


def test_an_ellipsis_cuts_a_long_name_except_in_a_pipe(
    recorded_terminal: RecordedTerminal, capsys: pytest.CaptureFixture[str]
) -> None:
    Renderer(Options()).many(BOOKINGS, bookings.COLUMNS)
    written = capsys.readouterr().out
    assert all(text in written for text in (*NAMES, *TITLES))
    lines = drawn(recorded_terminal, 80, BOOKINGS, bookings.COLUMNS)
    assert "Maximiliane …" in lines[1]
    assert "Ada" in lines[4]
    assert "…" not in lines[0]


def test_a_long_column_gets_the_width_that_a_short_one_leaves() -> None:
    cells = {"name": ["Ada"], "title": ["x" * 60]}
    layout = Layout(cells, {"name": "name", "title": "title"}, (), {"name": 20, "title": 20})
    assert layout.fit(50) == {"name": 4, "title": 44}


def test_an_empty_object_is_written_as_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Renderer(Options(output="table")).one({})
    assert capsys.readouterr().out == ""


# Availability ----------------------------------------------------------------------------------------------------


def test_availability_names_the_experience(booking: Booking, shop: World, terminal: OnTerminal) -> None:
    ids = [shop.departure(shop.experience(title=f"Tour {number}")) for number in range(5)]
    code, screen = terminal("availability", "--color", "never")
    assert code == 0
    header, *lines = screen.splitlines()
    assert header.split()[:4] == ["starts_at", "seats", "price", "experience"]
    rows, below = lines[::2], lines[1::2]
    assert [re.findall("Tour .", row) for row in rows] == [[f"Tour {number}"] for number in range(5)]
    assert [line.split()[0] for line in below] == ids
    rows = [line.split("\t") for line in booking("availability").out.splitlines()]
    assert {row[-1] for row in rows} == {f"Tour {number}" for number in range(5)}
    few = booking("availability", "--fields", "id,experience.title").out.splitlines()
    assert f"{ids[0]}\tTour 0" in few


@pytest.mark.parametrize("width", [80, 100])
def test_availability_shows_prices_and_the_ids_that_a_booking_names(
    booking: Booking, shop: World, recorded_terminal: RecordedTerminal, width: int
) -> None:
    departure = shop.departure(shop.experience(title=TITLES[0]))
    screen = recorded_terminal(width)
    assert booking("availability").code == 0
    header, row, below = screen.getvalue().splitlines()
    assert "price" in header
    assert " 890.00 NOK " in row
    assert below.startswith(f"  {departure}  adult, family")
    assert max(map(cell_len, (header, row, below))) <= width


def test_no_id_below_a_row_is_broken_or_cut(recorded_terminal: RecordedTerminal) -> None:
    screen = recorded_terminal(80)
    tiers = ", ".join(f"tier-{number}" for number in range(20))
    columns = replace(api_departures.COLUMNS, below=lambda item: f"{item['id']}  {tiers}")
    Renderer(Options()).many([*DEPARTURES, DEPARTURES[0]], columns)
    lines = screen.getvalue().splitlines()
    details = [line.strip() for line in lines if line.startswith("  ")]
    assert details[0].startswith(f"{ID}  tier-0, ")
    assert " ".join(details).count(tiers) == len(DEPARTURES) + 1
    assert max(map(cell_len, lines)) <= 80


def test_a_row_without_a_detail_has_one_line(recorded_terminal: RecordedTerminal) -> None:
    screen = recorded_terminal(80)
    Renderer(Options()).many([{"name": "Ada"}, {"name": "Grace"}], Columns(("name",), below=lambda item: ""))
    assert screen.getvalue().split() == ["name", "Ada", "Grace"]
    assert len(screen.getvalue().splitlines()) == 3


def test_availability_ends_after_its_limit(booking: Booking, shop: World) -> None:
    experience = shop.experience()
    ids = [shop.departure(experience, starts_at=shop.clock() + (1 + days) * DAY) for days in range(27)]
    first = booking("availability", "--limit", "2", "--fields", "id")
    assert first.out.split() == ids[:2]
    assert "There are more: use --limit N." in first.err
    page = booking("availability", "-o", "json").json
    assert ([entry["id"] for entry in page["data"]], page["has_more"]) == (ids[:25], True)
    everything = booking("availability", "--limit", "27", "-o", "json").json
    assert (len(everything["data"]), everything["has_more"]) == (27, False)


def test_availability_in_json_is_the_api_unchanged(booking: Booking, shop: World) -> None:
    shop.departure(shop.experience())
    (departure,) = booking("availability", "-o", "json").json["data"]
    assert "experience" not in departure
    (line,) = booking("availability", "-o", "jsonl", "--fields", "experience.title").out.splitlines()
    assert "title" in line


def test_without_the_scope_for_titles_the_departures_are_shown(
    booking: Booking, shop: World, environment: Environment
) -> None:
    experience = shop.experience()
    departure = shop.departure(experience)
    environment("BOOKING_API_KEY", shop.key(Scope.AVAILABILITY_READ))
    result = booking("availability")
    assert result.code == 0
    assert result.out.startswith(departure)
    assert result.out.rstrip("\n").endswith(experience)


def test_a_departure_that_cannot_be_booked_shows_why_instead_of_its_seats() -> None:
    of = {"seats_available": 3, "seats_total": 12}
    assert api_departures._seats({**of, "status": "open"}) == "3/12"
    assert api_departures._seats({**of, "status": "closed"}) == "closed"
