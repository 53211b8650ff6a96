"""The list of periodic jobs, which a worker runs beside the deliveries."""

from booking_core import webhooks
from booking_core.context import Installation
from booking_core.db.engine import Database
from booking_core.realign import all_kinds
from booking_core.settings import Settings
from booking_server.worker.clock_watch import ClockWatch
from booking_server.worker.jobs.account_looks import account_look_job
from booking_server.worker.jobs.announcements import AnnouncementJob
from booking_server.worker.jobs.erasure import ErasureJob
from booking_server.worker.jobs.expiry import ExpiryJob
from booking_server.worker.jobs.job import Job
from booking_server.worker.jobs.mail import mail_job
from booking_server.worker.jobs.payment_checks import payment_check_job
from booking_server.worker.jobs.refunds import refund_job
from booking_server.worker.jobs.retention import RetentionJob


def periodic_jobs(
    settings: Settings, database: Database, installation: Installation, watch: ClockWatch | None = None
) -> list[Job]:
    """Create the jobs of an installation, which share one clock watch."""
    watch = watch or ClockWatch()
    lease_s = webhooks.lease_s(settings.webhook_deadline_s)
    realign = all_kinds(installation, waits_s=settings.webhook_waits_s, lease_s=lease_s)
    return [
        ExpiryJob(database, installation, watch=watch, realign=realign),
        refund_job(settings, database, installation),
        payment_check_job(settings, database, installation),
        account_look_job(settings, database, installation),
        mail_job(settings, database, installation, watch),
        RetentionJob(settings, database),
        AnnouncementJob(database),
        ErasureJob(settings, database, installation),
    ]
