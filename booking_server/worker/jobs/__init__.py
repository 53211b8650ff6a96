"""The periodic jobs that a worker runs beside the deliveries. `periodic` says how to add one."""

from booking_server.worker.jobs.all_jobs import announcement_job, erasure_job, periodic_jobs

__all__ = ["announcement_job", "erasure_job", "periodic_jobs"]
