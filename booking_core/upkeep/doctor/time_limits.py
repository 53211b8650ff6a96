"""Checks of timestamps that are too far in the future: rows that wait for one of them would wait for ever."""

from booking_core.db import sql_files
from booking_core.upkeep.doctor.checks import Check

SQL = sql_files.load(__name__)

CHECKS = (
    Check(
        "no timestamp is further in the future than its limit",
        SQL.text("timestamps_ahead"),
        remedy="a clock may have been ahead: set the timestamp to now, and a worker continues with the row",
    ),
)
