"""Workers of both cells beside a move: each mail and each delivery is sent once, and none before its time."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.cells import settings_of_cells, world_in
from support.hooks import Hooks
from support.mails import Mails
from support.world import FixedClock, World

from booking_core import cells, doctor
from booking_core.cells import Mover
from booking_core.clock import system_clock
from booking_core.db.engine import Database, Tx
from booking_core.models.events import EventType
from booking_core.settings import Settings
from booking_server.adapters.webhook_client import Sent
from booking_server.worker.jobs.periodic import periodic_jobs
from booking_server.worker.worker import Worker


class Receiver:
    """A sender that keeps the events that were sent, and succeeds."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def send(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Sent:
        self.events.append(json.loads(body)["id"])
        return Sent(status=200, excerpt=None, error=None, duration_ms=1)

    async def close(self) -> None:
        """Do nothing: there is no connection."""


@pytest.fixture
def settings(new_database_url: Callable[[str], str], tmp_path: Path) -> Settings:
    return replace(settings_of_cells(new_database_url, schemas=("c2",)), mail_dir=str(tmp_path / "mails"))


@pytest.fixture
def world(settings: Settings) -> Iterator[World]:
    with world_in(cells.get(settings, "first"), FixedClock(system_clock())) as world:
        yield world


def test_mails_and_deliveries_are_sent_once_whenever_workers_of_both_cells_run(
    settings: Settings, world: World, tmp_path: Path
) -> None:
    receiver, mails = Receiver(), Mails(world)
    Hooks(world).endpoint(EventType.BOOKING_CREATED)
    places = {name: (cells.get(settings, name), opened(settings, name)) for name in ("first", "c2")}

    def work(*names: str) -> None:
        for name in names:
            cell, database = places[name]
            of_cell = replace(cell.settings, mail_dir=settings.mail_dir)
            installation = of_cell.installation()
            jobs = periodic_jobs(of_cell, database, installation)
            asyncio.run(Worker(of_cell, database, installation, receiver, jobs).run_once())

    class Slow(Mover):
        """A move beside which workers run, also between the commit that decides and the deletion of the rows."""

        def _clean_up(self, organization_id: str) -> None:
            before = list(receiver.events), files(tmp_path)
            work("first")
            assert (receiver.events, files(tmp_path)) == before
            super()._clean_up(organization_id)

    def report(table: str, count: int) -> None:
        work("c2")
        assert (receiver.events, files(tmp_path)) == ([], [])  # what is due is due where the organization lives

    booked = [mails.book(key=f"a-key-of-a-booking-{number}") for number in range(3)]
    examine = lambda tx, owner: [each.message for each in broken(tx, owner)]  # noqa: E731
    Slow(world.organization.slug, *places.values(), examine=examine, report=report, pause=lambda _: None).run()
    work("first", "c2", "first", "c2")
    moved = World(places["c2"][1], world.clock, world.organization, world.installation)
    mails.world = moved
    booked.append(mails.book(key="a-key-after-the-move", departure_id=departure_of(moved)))
    work("first", "c2")
    assert len(receiver.events) == len(set(receiver.events)) == len(booked)
    mails_sent = [path.read_bytes() for path in files(tmp_path)]
    assert len(mails_sent) == len(set(mails_sent)) == 2 * len(booked)  # to the guest and to staff
    assert [each for each in moved.examine() if each.kind is doctor.FindingKind.BROKEN] == []
    for _, database in places.values():
        database.close()


def opened(settings: Settings, name: str) -> Database:
    return Database(cells.get(settings, name).settings.database_url)


def broken(tx: Tx, organization_id: str) -> list[doctor.Finding]:
    return [each for each in doctor.examine(tx, organization_id) if each.kind is doctor.FindingKind.BROKEN]


def departure_of(world: World) -> str:
    return str(world.departure(world.experience()))


def files(folder: Path) -> list[Path]:
    with contextlib.suppress(FileNotFoundError):
        return sorted((folder / "mails").glob("*.eml"))
    return []
