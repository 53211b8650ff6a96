"""What the worker does besides deliveries: mail, refunds, sweeps, retention. Each chore keeps its own pace, so that a
slow mail server holds up no refund."""

from typing import Protocol

from booking_core import webhooks
from booking_core.context import Installation
from booking_core.db.engine import Database
from booking_core.realign import all_kinds
from booking_core.settings import Settings
from booking_server.worker.clock_watch import ClockWatch
from booking_server.worker.jobs.expiry import Sweeping
from booking_server.worker.jobs.mail import mailing
from booking_server.worker.jobs.refunds import refunding
from booking_server.worker.jobs.retention import Purging


class Chore(Protocol):
    """Something that falls due by itself."""

    name: str

    async def run_once(self) -> int:
        """Does all that is due now, and gives how much that was."""

    async def close(self) -> None:
        """Lets go of what it holds open."""


def chores_of(
    settings: Settings, database: Database, installation: Installation, watch: ClockWatch | None = None
) -> list[Chore]:
    """Every chore of an installation; all of them believe the same watch."""
    watch = watch or ClockWatch()
    lease_s = webhooks.lease_s(settings.webhook_deadline_s)
    realign = all_kinds(installation, waits_s=settings.webhook_waits_s, lease_s=lease_s)
    return [
        Sweeping(database, installation, watch=watch, realign=realign),
        refunding(settings, database),
        mailing(settings, database, installation, watch),
        Purging(settings, database),
    ]
