"""Integrity checks of a live database.

A healthy database has no findings. A check is declared in the header of its query (`checks.load`). The checks only
read, and can run beside a serving process: each query sees one snapshot, and a row scan validates each row alone: a
booking that commits meanwhile is seen as a whole or not at all.

The comment of each query states its cost. No check joins more than a row with its few dependent rows; the most
expensive checks read a table once and sort it, or look up an index once for each of its rows. A million bookings with
their two million events took eight minutes on PostgreSQL, on two busy cores, half of it for the bodies of events. With
a hundred thousand bookings, two hundred thousand events and as many rows in the other tables, all checks took four
times as long as with a quarter of these rows on SQLite (21 s), and less on PostgreSQL (12 s).
"""

from booking_core.upkeep.doctor.checks import Check, CheckOptions, Finding, FindingKind, Opener, RowScan
from booking_core.upkeep.doctor.examination import CHECKS, FILES, examine
from booking_core.upkeep.doctor.sealed_values import SealedValueScan, openers
