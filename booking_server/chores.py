"""What the worker does besides deliveries: mail, refunds, sweeps, retention. Each chore keeps its own pace, so that a
slow mail server holds up no refund."""

from typing import Protocol

from booking_core.caller import Installation
from booking_core.db.engine import Database
from booking_core.settings import Settings
from booking_server.mailing import mailing
from booking_server.purging import Purging
from booking_server.refunding import refunding
from booking_server.sweeping import Sweeping


class Chore(Protocol):
    """Something that falls due by itself."""

    name: str

    async def run_once(self) -> int:
        """Does all that is due now, and gives how much that was."""

    async def close(self) -> None:
        """Lets go of what it holds open."""


def chores_of(settings: Settings, database: Database, installation: Installation) -> list[Chore]:
    """Every chore of an installation."""
    return [
        Sweeping(database, installation),
        refunding(settings, database),
        mailing(settings, database, installation),
        Purging(settings, database),
    ]
