"""Workers of several cells: each works on its own rows."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from support.databases.cells import settings_of_cells, world_in
from support.receivers.senders import FakeSender
from support.world.hooks import Hooks
from support.world.mails import Mails
from support.world.world import FixedClock, World

from booking_core.base.clock import system_clock
from booking_core.base.settings import Settings
from booking_core.db.engine import Database
from booking_core.models.events import EventType
from booking_core.upkeep import cells
from booking_server.worker.jobs import periodic_jobs
from booking_server.worker.process import Worker

NAMES = ("first", "c2")


def test_the_worker_of_a_cell_sends_what_is_due_there(new_database_url: Callable[[str], str], tmp_path: Path) -> None:
    settings = replace(settings_of_cells(new_database_url, schemas=("c2",)), mail_dir=str(tmp_path / "mails"))
    receiver = FakeSender()
    with contextlib.ExitStack() as stack:
        worlds = {
            name: stack.enter_context(world_in(cells.get(settings, name), FixedClock(system_clock()))) for name in NAMES
        }
        for number, world in enumerate(worlds.values()):
            Hooks(world).endpoint(EventType.BOOKING_CREATED)
            Mails(world).book(key=f"a-key-of-a-booking-{number}")
        for done, (name, world) in enumerate(worlds.items(), start=1):
            work(replace(cells.get(settings, name).settings, mail_dir=settings.mail_dir), world, receiver)
            assert len(receiver.requests) == len({request.body for request in receiver.requests}) == done
            assert len(list((tmp_path / "mails").glob("*.eml"))) == 2 * done  # to the guest and to staff


def work(settings: Settings, world: World, receiver: FakeSender) -> None:
    """Run the worker of a cell once, and once more."""
    with contextlib.closing(Database(settings.database_url)) as database:
        installation = settings.installation()
        for _ in range(2):
            jobs = periodic_jobs(settings, database, installation)
            asyncio.run(Worker(settings, database, installation, receiver, jobs).run_once())
