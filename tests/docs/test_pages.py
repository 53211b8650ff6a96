"""The pages agree with the code: their Python runs against the fake, their diagrams have the states of the models."""

import ast
import inspect
import json
import re
from collections.abc import Iterator
from enum import StrEnum
from inspect import signature
from typing import Any

import httpx
import pytest
from support import pages
from support.api.endpoints import taking_a_key
from support.world.world import DAY, NOON, World

import booking_sdk
from booking_core.db import paging, statements, unit_of_work
from booking_core.db.engine import Database
from booking_core.models.bookings import BookingStatus
from booking_core.models.gift_cards import GiftCardStatus
from booking_core.models.webhooks import DeliveryStatus, EndpointStatus
from booking_core.payments.refund_states import RefundStatus
from booking_sdk.testing import FakeBookingAPI, make_event
from scripts import capacity
from webhook_verify import generate_secret
from webhook_verify.testing import signed_request

SHELL_PAGES = {
    "start.md",
    *(f"guides/merchants/{name}.md" for name in ("guests", "index")),
    *(f"guides/operators/{name}.md" for name in ("index", "health", "watching")),
    "guides/receivers/index.md",
    *(f"operations/{name}.md" for name in ("install", "sizing", "upgrade", "backup", "keys", "failover", "alerts")),
}
"""Pages whose shell blocks the tests of the command line run (test_guides.py)."""
SQL_PAGE = "design/sql.md"
"""The page whose Python is run on the databases."""


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBookingAPI]:
    """Connect the clients of a page to a fake with three bookings and a departure that has free seats."""
    api = FakeBookingAPI()
    departure = api.add_departure(seats=20)
    with api.client() as client:
        for number in range(3):
            client.bookings.create(
                departure_id=departure.id,
                guests=[{"tier_id": "adult", "count": 1}],
                customer={"name": "Grace Hopper", "email": f"grace{number}@example.com"},
                payment="invoice",
            )
    opened: list[httpx.Client] = []

    def sync_client(**options: Any) -> booking_sdk.BookingClient:
        opened.append(httpx.Client(transport=api.transport))
        return client_of(api.key(), base_url=api.base_url, http_client=opened[-1], **options)

    def async_client(**options: Any) -> booking_sdk.AsyncBookingClient:
        http_client = httpx.AsyncClient(transport=api.transport)
        return async_client_of(api.key(), base_url=api.base_url, http_client=http_client, **options)

    client_of, async_client_of = booking_sdk.BookingClient, booking_sdk.AsyncBookingClient
    monkeypatch.setattr(booking_sdk, "BookingClient", sync_client)
    monkeypatch.setattr(booking_sdk, "AsyncBookingClient", async_client)
    yield api
    for connection in opened:
        connection.close()


def run(page: str) -> dict[str, Any]:
    """Run the Python blocks of a page in order, and return the names that they have defined."""
    names: dict[str, Any] = {"__name__": "page"}
    for number, block in enumerate(pages.runnable(page, "python"), 1):
        exec(compile(block, f"{page}, block {number}", "exec"), names)
    return names


@pytest.mark.parametrize(
    "page", [page for page in pages.pages() if page != SQL_PAGE and pages.runnable(page, "python")]
)
def test_the_python_of_a_page_runs(fake: FakeBookingAPI, page: str) -> None:
    names = run(page)
    assert names.keys() - {"__name__", "__builtins__"}


def test_the_first_booking_of_the_start_page_is_made(fake: FakeBookingAPI, capsys: pytest.CaptureFixture[str]) -> None:
    run("start.md")
    assert len(fake.bookings) == 4
    assert capsys.readouterr().out.startswith("4 confirmed ")


def test_the_integrators_examples_book_and_list(fake: FakeBookingAPI, capsys: pytest.CaptureFixture[str]) -> None:
    run("guides/integrators/index.md")
    assert capsys.readouterr().out.splitlines() == ["4 confirmed", "4"]


def test_an_order_whose_answer_is_lost_is_booked_once(fake: FakeBookingAPI) -> None:
    book = run("guides/integrators/errors.md")["book"]
    departure_id = fake.bookings[0].departure.id
    booking = book(departure_id, 1017)
    assert book(departure_id, 1017) == booking
    assert len(fake.bookings) == 4


def test_the_page_of_idempotency_names_each_operation_that_takes_a_key() -> None:
    text = " ".join((pages.DOCS / "concepts/idempotency.md").read_text(encoding="utf-8").split())
    for is_required, opening in ((True, "These require a key: "), (False, "These accept one: ")):
        sentence = text.partition(opening)[2].partition(".")[0]
        assert set(re.findall("`(.+?)`", sentence)) == {
            f"{operation.method} {operation.path.removeprefix('/api/v1')}"
            for operation, required in taking_a_key().items()
            if required == is_required
        }


def test_the_receivers_example_takes_what_is_authentic(fake: FakeBookingAPI) -> None:
    receive, secret = run("guides/receivers/index.md")["receive"], generate_secret()
    headers, body = signed_request(make_event("booking.created").to_json(), secret)
    assert receive(body, headers, secret) == 200
    assert receive(body, headers, generate_secret()) == 400


def test_the_snippets_of_the_readme_run(
    fake: FakeBookingAPI, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = generate_secret()
    monkeypatch.setenv("BOOKING_WEBHOOK_SECRET", secret)
    headers, body = signed_request(make_event("booking.created").to_json(), secret)
    names: dict[str, Any] = {"headers": headers, "body": body}
    for block in pages.runnable("../README.md", "python"):
        exec(compile(block, "README.md", "exec"), names)
    assert len(fake.bookings) == 4
    booking = names["booking"]
    assert capsys.readouterr().out == f"{booking.booking_number} confirmed {booking.totals.total}\n"
    assert names["delivery"].event_type == "booking.created"


def test_the_calls_of_the_readme_are_those_of_the_start_page() -> None:
    run, readme = pages.commands("../README.md")
    _, availability, book, _ = pages.commands("start.md")
    assert run == ["make run"]
    assert readme == [*availability, *book]


@pytest.mark.parametrize("page", pages.pages())
def test_every_block_is_run_or_says_why_not(page: str) -> None:
    for block in pages.blocks(page):
        if block.language == "python":
            ast.parse(block.text)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "console":
            assert block.reason or page in SHELL_PAGES, f"{page}: {block.text}"
        else:
            assert block.reason, f"{page}: a block of {block.language} is not run, and does not say why"


@pytest.mark.parametrize(
    ("name", "statuses"),
    [
        ("booking", BookingStatus),
        ("delivery", DeliveryStatus),
        ("endpoint", EndpointStatus),
        ("refund", RefundStatus),
        ("gift-card", GiftCardStatus),
    ],
)
def test_a_diagram_has_the_states_of_the_code(name: str, statuses: type[StrEnum]) -> None:
    drawn = (pages.DOCS / f"diagrams/{name}.svg").read_text(encoding="utf-8")
    assert set(re.findall(r'class="d-name"[^>]*>(\w+)<', drawn)) == {status.value for status in statuses}


def test_every_diagram_is_shown_by_a_page() -> None:
    text = "".join((pages.DOCS / page).read_text(encoding="utf-8") for page in pages.pages())
    for drawing in (pages.DOCS / "diagrams").iterdir():
        assert f"<!-- diagram: {drawing.stem} -->" in text


# Capacity ------------------------------------------------------------------------------------------------------------


COSTS = {
    "postgresql": {
        name: {"server_us": 1000, "database_us": 100, "wal_bytes": 10_000, "row_bytes": 5_000}
        for name in (capacity.BOOKING, capacity.DELIVERY, capacity.POLL, *capacity.MIX)
    }
}


def test_the_tables_of_the_page_are_those_of_the_costs() -> None:
    page = capacity.PAGE.read_text(encoding="utf-8")
    assert capacity.written(page) == page


def test_the_needs_of_a_year_are_rates_times_costs() -> None:
    bookings = 100_000 * 1_000 / 365 * 3 * 0.08 / 3600
    rates = capacity.rates(100_000)
    assert rates[capacity.BOOKING] == pytest.approx(bookings)
    assert sum(rates[name] for name in capacity.MIX) == pytest.approx(30 * bookings)
    assert (rates[capacity.DELIVERY], rates[capacity.POLL]) == pytest.approx((2 * bookings, 1_000))
    busy = (33 * bookings + 1_000) / 1_000
    assert capacity.cores(COSTS, 100_000, "server_us") == pytest.approx(busy)
    assert capacity.cores(COSTS, 100_000, "database_us") == pytest.approx(busy / 10)
    assert capacity.processes(COSTS, 100_000) == 4
    assert capacity.processes(COSTS, 10) == 2


def test_the_disk_of_a_year_has_a_month_of_deliveries() -> None:
    assert capacity.disk(COSTS, 1) == pytest.approx(1_000 * 5_000 * (1 + 2 * 30 / 365) + 2_000)
    assert capacity.wal(COSTS, 1) == pytest.approx(1_000 / 365 * 3 * 30_000)


@pytest.mark.parametrize(
    ("count", "text"), [(10, ""), (2_000, "2.0 kB"), (840_000, "840 kB"), (1_234_000_000, "1.2 GB")]
)
def test_a_size_has_its_largest_unit(count: int, text: str) -> None:
    assert capacity.size(count) == text


# SQL -----------------------------------------------------------------------------------------------------------------


PAGE = "design/sql.md"
README = "../booking_core/db/README.md"


def test_the_examples_of_the_sql_page_run_on_both_databases(world: World) -> None:
    experience = world.experience()
    names: dict[str, Any] = {
        "organization_id": world.org,
        "departure_ids": [world.departure(experience, starts_at=NOON + day * DAY) for day in (1, 2, 3)],
        "caller": world.caller(),
        "now": world.clock(),
    }
    with world.database.writing() as names["tx"]:
        run_examples(PAGE, names)
    assert {row[0] for row in names["to_come"]} == set(names["departure_ids"])


def run_examples(page: str, names: dict[str, Any]) -> None:
    for number, block in enumerate(pages.runnable(page, "python"), 1):
        exec(compile(block, f"{page}, block {number}", "exec"), names)


def test_the_examples_of_the_readme_run_on_both_databases(world: World) -> None:
    departure_id = world.departure(world.experience(), seats=12)
    names = {"database": world.database, "organization_id": world.org, "departure_id": departure_id}
    run_examples(README, names)
    assert world.database.read(names["seats_taken"]) == 8


def test_the_readme_names_every_way_to_open_a_transaction() -> None:
    methods = inspect.getmembers(Database, inspect.isfunction)
    verbs = {name for name, method in methods if name[0] != "_" and {"fn", "fns"} & {*signature(method).parameters}}
    assert "write_once" in verbs
    text = (pages.DOCS / README).read_text(encoding="utf-8")
    assert {verb for verb in verbs if f"`database.{verb}(" not in text} == set()


def test_the_page_shows_every_dialect_helper() -> None:
    text = (pages.DOCS / PAGE).read_text(encoding="utf-8")
    helpers = {
        name
        for name, value in vars(statements).items()
        if not name.startswith("_")
        and getattr(value, "__module__", "") == statements.__name__
        and hasattr(value, "__name__")
    }
    helpers.remove("Compiled")
    helpers |= {helper.__name__ for helper in (unit_of_work.Update, unit_of_work.InsertFromSelect, paging.KeysetList)}
    assert {name for name in helpers if f"`{name}`" not in text} == set()
