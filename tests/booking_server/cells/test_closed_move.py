"""A cell moves to another database while it is closed, by the commands of docs/guides/operators/cells.md."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from starlette.testclient import TestClient
from support.api.api import Api
from support.databases import databases
from support.databases.cells import settings_of_cells, world_in
from support.world.world import FixedClock

from booking_core.base.clock import system_clock
from booking_core.base.settings import CellAddress
from booking_core.upkeep import cells, doctor
from booking_server.cells import create_app

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
        found = arrived.database.read(doctor.examine)
    assert [each for each in found if each.kind is doctor.FindingKind.BROKEN] == []
