"""Checks of webhook endpoints, deliveries and their attempts.

The checks compare rows with each other. The content that a receiver got, and its signature, are not stored.
"""

from booking_core.db import sql_files
from booking_core.models.limits import WEBHOOK_ENDPOINTS_PER_ORGANIZATION
from booking_core.upkeep.doctor.checks import Check

SQL = sql_files.load(__name__)

CHECKS = (
    Check("an event has at most one delivery for each endpoint", SQL.text("repeated_deliveries")),
    Check("an event has a delivery for each endpoint that subscribes to its type", SQL.text("missing_deliveries")),
    Check(
        "a delivery has a row, or is still an event of the log, and never both", SQL.text("deliveries_to_be_repeated")
    ),
    Check(
        "an endpoint has its place in the log, and misses what occurs while it is disabled",
        SQL.text("places_in_the_log"),
    ),
    Check("an organization with events to be delivered is marked", SQL.text("unmarked_organizations")),
    Check(
        "an endpoint receives only events that it subscribes to, and none about itself", SQL.text("unwanted_deliveries")
    ),
    Check("a ping goes to one endpoint, and only pings are sent as tests", SQL.text("pings")),
    Check("a delivery agrees with its event", SQL.text("events_of_deliveries")),
    Check("a delivery's status agrees with its other columns", SQL.text("delivery_statuses")),
    Check("a delivery's attempt count is the number of its attempts, and within the limit", SQL.text("attempt_counts")),
    Check("a delivery that succeeded has an attempt that was answered with 2xx", SQL.text("successes_without_attempt")),
    Check("first attempts for one resource are made in the order of its events", SQL.text("order_of_attempts")),
    Check("no delivery is queued for a disabled endpoint", SQL.text("queued_for_disabled_endpoint")),
    Check("an endpoint's status agrees with its other columns", SQL.text("endpoint_statuses")),
    Check(
        "an endpoint is disabled automatically only after enough failures over enough time",
        SQL.text("automatic_disabling"),
    ),
    Check(f"an organization has at most {WEBHOOK_ENDPOINTS_PER_ORGANIZATION} endpoints", SQL.text("endpoint_counts")),
    Check("an endpoint has one current secret, and a deleted endpoint has none", SQL.text("current_secrets")),
    Check(
        "a delivery is sent when it is due, and an expired lease is rescued",
        SQL.text("overdue_deliveries"),
        remedy="check that a worker is running",
        needs_worker=True,
    ),
    Check(
        "the result of every delivery can be recorded",
        SQL.text("unrecorded_deliveries"),
        remedy="look in the log of the worker for the id of the delivery, and correct the row that it names",
    ),
)
