"""Create the periodic jobs of an installation."""

from collections.abc import Sequence
from functools import partial

from booking_core.base.clock import DAY, SECOND, elapsed_s
from booking_core.base.context import Installation
from booking_core.base.settings import Settings
from booking_core.catalogue import departures
from booking_core.customers import erasures
from booking_core.db.engine import Database
from booking_core.due_work.sweep import Sweep
from booking_server.worker.jobs.expiry import ExpiryJob
from booking_server.worker.jobs.mail import mail_job
from booking_server.worker.jobs.payments import payment_check_job, refund_job
from booking_server.worker.jobs.periodic import Job, SweepJob, Task
from booking_server.worker.jobs.retention import RetentionJob


def periodic_jobs(settings: Settings, database: Database, installation: Installation) -> list[Job]:
    """Create the jobs of an installation."""
    return [
        ExpiryJob(database, installation, elapsed_s=elapsed_s),
        refund_job(settings, database, installation),
        payment_check_job(settings, database, installation),
        mail_job(settings, database, installation),
        RetentionJob(settings, database),
        announcement_job(database),
        erasure_job(settings, database, installation),
    ]


def announcement_job(database: Database) -> SweepJob:
    """Create the job that announces departures whose seats, status or time changed."""

    def count(are_published: Sequence[bool]) -> None:
        job.results.update("published" if is_published else "unchanged" for is_published in are_published)

    touched, announce = departures.TOUCHED, departures.announce
    sweep = Sweep("announce_departures", database, touched, announce, observe=count)
    # Not at every turn: each commit wakes the worker, and this work must not slow down the rush of bookings that causes
    # it.
    job = SweepJob("announcements", database, Task(sweep=sweep, every=SECOND))
    return job


def erasure_job(settings: Settings, database: Database, installation: Installation) -> SweepJob:
    """Create the job that works off erasures, and anonymizes customers past their retention, if there is one."""
    erase = Sweep("erase_guests", database, erasures.DUE, lambda tx, *due: erasures.process(tx, installation, *due))
    tasks = [Task(sweep=erase, every=5 * SECOND, pause=SECOND // 4, batches=20)]
    if (days := settings.guest_retention_days) is not None:
        expire = partial(erasures.expire, retention_days=days)
        sweep = Sweep("expire_guests", database, erasures.candidates(days), expire)
        # A pass reads all customers that are old enough, since no index leads to those whose bookings ended.
        tasks.append(Task(sweep=sweep, every=DAY, pause=SECOND // 4, batches=20))
    return SweepJob("erasure", database, *tasks)
