"""Processes and workers of cells: the cell of a request, an unavailable cell, and a move to another database."""

import asyncio
import contextlib
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from sqlalchemy.engine import make_url
from starlette.testclient import TestClient
from support.api.api import Api, error_of
from support.api.client import WholeResponses
from support.databases import databases
from support.databases.cells import OWN_DATABASE, settings_of_cells, world_in
from support.receivers.senders import FakeSender
from support.world.hooks import Hooks
from support.world.mails import Mails
from support.world.world import SECRET, FixedClock, World

from booking_core.base import tokens
from booking_core.base.clock import system_clock
from booking_core.base.settings import CellAddress, Settings
from booking_core.db.engine import Database
from booking_core.models.events import EventType
from booking_core.upkeep import cells, doctor
from booking_server.cells import create_app
from booking_server.cells.app import cell_named_by
from booking_server.worker.jobs import periodic_jobs
from booking_server.worker.process import Worker

AWAY = "aw"
"""A cell whose server does not exist."""
NAMES = ("first", "c2", OWN_DATABASE)


@pytest.fixture(scope="module")
def settings(new_database_url: Callable[[str], str]) -> Settings:
    settings = settings_of_cells(new_database_url, schemas=("c2",))
    away = CellAddress(AWAY, "postgresql://nobody@127.0.0.1:1/gone")
    return replace(settings, cells=(*settings.cells, away), metrics_token="a token of sixteen")


@pytest.fixture(scope="module")
def client(settings: Settings) -> Iterator[TestClient]:
    with WholeResponses(create_app(settings)) as running:
        yield running


@pytest.fixture(scope="module")
def worlds(settings: Settings) -> Iterator[dict[str, World]]:
    with contextlib.ExitStack() as stack:
        clock = FixedClock(system_clock())
        yield {name: stack.enter_context(world_in(cells.get(settings, name), clock)) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_booking_and_its_link_are_in_the_keys_cell(name: str, client: TestClient, worlds: dict[str, World]) -> None:
    world = worlds[name]
    api = Api(client, world)
    departure = world.departure(world.experience())
    booked = api.book(departure, key="the-same-key-0001")
    assert booked.status_code == 201
    assert api.book(departure, key="the-same-key-0001").content == booked.content
    page = client.get(urlsplit(booked.json()["manage_url"]).path)
    assert page.status_code == 200
    assert (tokens.cell_of_api_key(api.key) or "first") == name
    assert len(api.get("/events").json()["data"]) == 3


def test_a_cell_away_answers_503_for_its_organizations_only(client: TestClient, worlds: dict[str, World]) -> None:
    lost = Api(client, worlds["c2"], tokens.new_api_key(AWAY))
    refused = lost.get("/me")
    assert error_of(refused) == (503, "service_unavailable")
    assert int(refused.headers["retry-after"]) > 0
    assert refused.headers["x-request-id"] == refused.json()["request_id"]
    assert "not available" in client.get(f"/manage/{'A' * 64}-{AWAY}").text
    for world in worlds.values():
        assert Api(client, world).get("/me").status_code == 200


def test_a_process_with_an_unavailable_cell_is_ready_and_names_the_cell(client: TestClient) -> None:
    ready = client.get("/readyz")
    parts = ready.json()["parts"]
    assert ready.status_code == 200
    assert (parts[f"{AWAY}.cell"]["status"], parts["c2.database"]["status"]) == ("degraded", "ok")
    assert client.get("/healthz").status_code == 200


def test_metrics_have_a_label_with_the_cell(client: TestClient, worlds: dict[str, World]) -> None:
    Api(client, worlds["c2"]).get("/me")
    text = client.get("/metrics", headers={"authorization": "Bearer a token of sixteen"}).text
    assert f'booking_cell_open{{cell="{AWAY}",process="0"}} 0.0' in text
    assert 'booking_database_up{cell="c2"} 1.0' in text
    assert 'booking_http_requests_total{cell="c2",operation="get_me",process="0",status="200"}' in text
    assert text.count("# HELP process_resident_memory_bytes ") == 1
    assert client.get("/metrics").status_code == 401


def test_an_unknown_key_without_a_cell_is_refused_like_no_key(client: TestClient) -> None:
    assert client.get("/api/v1/me").status_code == 401
    unknown = client.get("/api/v1/me", headers={"authorization": f"Bearer {tokens.new_api_key()}"})
    assert (unknown.status_code, unknown.json()["code"]) == (401, "api_key_invalid")
    assert client.get("/api/v1/nothing").status_code == 404
    assert client.get("/docs").status_code == 200


def test_a_cell_that_comes_back_is_opened_without_a_restart(
    settings: Settings, worlds: dict[str, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[str] = []
    require_own = cells.require_own

    def away_at_first(cell: cells.Cell, database: object) -> None:
        attempts.append(cell.name)
        if attempts.count("c2") == 1 and cell.name == "c2":
            raise cells.CellError("away")
        require_own(cell, database)  # type: ignore[arg-type]

    monkeypatch.setattr(cells, "require_own", away_at_first)
    monkeypatch.setattr("booking_server.cells.slots.RETRY_S", 0.0)
    app = create_app(replace(settings, cells=settings.cells[:1]))
    for slot in app.slots.values():  # type: ignore[attr-defined]
        slot._retry_s = 0.01
    with TestClient(app, raise_server_exceptions=False) as client:
        api = Api(client, worlds["c2"])
        assert any(api.get("/me").status_code == 200 for _ in range(500))
    assert attempts.count("c2") == 2


def test_an_unavailable_database_stops_only_its_own_cell_until_it_returns(
    settings: Settings, worlds: dict[str, World], client: TestClient, postgres_server: str
) -> None:
    name = make_url(cells.get(settings, OWN_DATABASE).settings.database_url).database
    away, others = Api(client, worlds[OWN_DATABASE]), [Api(client, worlds[cell]) for cell in ("first", "c2")]
    assert away.get("/me").status_code == 200
    with psycopg.connect(postgres_server, autocommit=True) as server:
        server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")  # type: ignore[call-overload]
        try:
            server.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s", [name])
            departure = worlds["c2"].departure(worlds["c2"].experience())
            assert [away.get(path).status_code for path in ("/me", "/bookings")] == [503, 503]
            assert away.book(departure).status_code == 503
            assert [api.get(path).status_code for api in others for path in ("/me", "/bookings")] == [200] * 4
            assert others[1].book(departure).status_code == 201
            assert client.get("/readyz").status_code == 200
        finally:
            server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")  # type: ignore[call-overload]
    assert away.get("/me").status_code == 200


# Routing -------------------------------------------------------------------------------------------------------------


TOKEN = "A" * 64


@pytest.mark.parametrize(
    ("path", "headers", "name"),
    [
        ("/api/v1/me", [(b"authorization", b"Bearer x")], "first"),
        (f"/manage/{TOKEN}", [], "first"),
        (f"/manage/{TOKEN}-c2", [], "c2"),
        ("/docs", [], "c2"),
    ],
)
def test_a_key_or_link_without_a_cell_waits_for_the_first_cell(path: str, headers: list[Any], name: str) -> None:
    """Another cell would answer that the key is unknown."""
    url = "postgresql://nobody@127.0.0.1:1/gone"
    app: Any = create_app(Settings(database_url=url, secret_key=SECRET, cells=(CellAddress("c2"),)))
    app.slots["c2"].opened = object()
    assert app._slot_of({"type": "http", "path": path, "headers": headers}).name == name


@pytest.mark.parametrize("page", ["", "/cancel", "/move", "/receipt", "/calendar.ics"])
@pytest.mark.parametrize("prefix", ["/manage/", "/gift-card/"])
def test_every_page_behind_a_link_names_the_cell_of_the_link(prefix: str, page: str) -> None:
    assert cell_named_by(f"{prefix}{TOKEN}-c2{page}", []) == "c2"
    assert cell_named_by(f"{prefix}{TOKEN}{page}", []) == ""


@pytest.mark.parametrize("path", ["/manage/", "/manage/x", "/gift-card/", f"/manage/{TOKEN}x"])
def test_a_path_that_is_no_link_names_no_cell(path: str) -> None:
    assert cell_named_by(path, []) == ""


def test_the_address_of_webhooks_of_stripe_names_its_cell() -> None:
    organization = "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"
    path = f"/stripe/webhooks/{organization}"
    assert cell_named_by(path, []) == ""
    assert cell_named_by(f"{path}-c2", []) == "c2"
    for other in ("/stripe/webhooks/", f"{path}/more", f"{path}-cell"):
        assert cell_named_by(other, []) == ""


# Workers -------------------------------------------------------------------------------------------------------------


WORKED = ("first", "c2")


def test_the_worker_of_a_cell_sends_what_is_due_there(new_database_url: Callable[[str], str], tmp_path: Path) -> None:
    settings = replace(settings_of_cells(new_database_url, schemas=("c2",)), mail_dir=str(tmp_path / "mails"))
    receiver = FakeSender()
    with contextlib.ExitStack() as stack:
        worlds = {
            name: stack.enter_context(world_in(cells.get(settings, name), FixedClock(system_clock())))
            for name in WORKED
        }
        for number, world in enumerate(worlds.values()):
            Hooks(world).endpoint(EventType.BOOKING_CREATED)
            Mails(world).book(key=f"a-key-of-a-booking-{number}")
        for count, (name, world) in enumerate(worlds.items(), start=1):
            work(replace(cells.get(settings, name).settings, mail_dir=settings.mail_dir), world, receiver)
            assert len(receiver.requests) == len({request.body for request in receiver.requests}) == count
            assert len(list((tmp_path / "mails").glob("*.eml"))) == 2 * count  # to the guest and to staff


def work(settings: Settings, world: World, receiver: FakeSender) -> None:
    """Run the worker of a cell once, and once more."""
    with contextlib.closing(Database(settings.database_url)) as database:
        installation = settings.installation()
        for _ in range(2):
            jobs = periodic_jobs(settings, database, installation)
            asyncio.run(Worker(settings, database, installation, receiver, jobs).run_once())


# A move to another database ------------------------------------------------------------------------------------------


BINDIR = "SELECT setting FROM pg_config WHERE name = 'BINDIR'"


def run(server: str, program: str, *arguments: str) -> None:
    """Run a program of the server's version: the program beside the server, if that is on this machine."""
    with psycopg.connect(server) as connection:
        (folder,) = connection.execute(BINDIR).fetchone() or ("",)
    command = Path(folder) / program
    subprocess.run([str(command) if command.exists() else program, *arguments], check=True, capture_output=True)


def test_keys_links_cursors_and_answers_hold_in_the_other_database(
    new_database_url: Callable[[str], str], postgres_server: str, tmp_path: Path
) -> None:
    settings = settings_of_cells(new_database_url, schemas=("c2",))
    with world_in(cells.get(settings, "c2"), FixedClock(system_clock())) as world:
        departure = world.departure(world.experience())
        with TestClient(create_app(settings)) as client:
            api = Api(client, world)
            booked = api.book(departure, key="before-the-move-0001")
            cursor = api.get("/events", limit=1, order="asc").json()["next_cursor"]

    other = new_database_url("postgresql")
    archive = str(tmp_path / "c2.dump")
    run(
        postgres_server, "pg_dump", "--format=custom", "--schema=booking_c2", f"--file={archive}", settings.database_url
    )
    run(postgres_server, "pg_restore", "--single-transaction", "--no-owner", f"--dbname={other}", archive)
    databases.run(settings.database_url, "DROP SCHEMA booking_c2 CASCADE")

    address = CellAddress("c2", f"{other}&schema=booking_c2" if "?" in other else f"{other}?schema=booking_c2")
    moved = replace(settings, cells=(address,))
    with TestClient(create_app(moved)) as client:
        api = Api(client, world, api.key)
        replayed = api.book(departure, key="before-the-move-0001")
        assert (replayed.status_code, replayed.content) == (201, booked.content)
        following = api.get("/events", starting_after=cursor, limit=1, order="asc").json()["data"]
        assert following[0]["sequence"] == 2
        assert client.get(urlsplit(booked.json()["manage_url"]).path).status_code == 200
        assert api.book(departure).status_code == 201
    with world_in(cells.get(moved, "c2"), FixedClock(system_clock())) as arrived:
        findings = arrived.database.read(doctor.examine)
    assert [finding for finding in findings if finding.kind is doctor.FindingKind.BROKEN] == []
