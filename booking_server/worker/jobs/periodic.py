"""The list of periodic jobs, which a worker runs beside the deliveries."""

from booking_core.base.clock import elapsed_s
from booking_core.base.context import Installation
from booking_core.base.settings import Settings
from booking_core.db.engine import Database
from booking_server.worker.jobs.announcements import AnnouncementJob
from booking_server.worker.jobs.erasure import ErasureJob
from booking_server.worker.jobs.expiry import ExpiryJob
from booking_server.worker.jobs.job import Job
from booking_server.worker.jobs.mail import mail_job
from booking_server.worker.jobs.payment_checks import payment_check_job
from booking_server.worker.jobs.refunds import refund_job
from booking_server.worker.jobs.retention import RetentionJob


def periodic_jobs(settings: Settings, database: Database, installation: Installation) -> list[Job]:
    """Create the jobs of an installation."""
    return [
        ExpiryJob(database, installation, elapsed_s=elapsed_s),
        refund_job(settings, database, installation),
        payment_check_job(settings, database, installation),
        mail_job(settings, database, installation),
        RetentionJob(settings, database),
        AnnouncementJob(database),
        ErasureJob(settings, database, installation),
    ]
