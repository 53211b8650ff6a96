"""Organizations: the operators of bookable experiences, and their settings.

`COLUMNS` and `from_row` are for packages that join organizations to their own rows.
"""

from booking_core.organizations.clocks import follow, now
from booking_core.organizations.rules import require_sandbox
from booking_core.organizations.service import (
    by_id,
    create,
    find,
    get,
    is_taken,
    present,
    present_settings,
    set_settings,
)
from booking_core.organizations.store import COLUMNS, from_row

__all__ = [
    "COLUMNS",
    "by_id",
    "create",
    "find",
    "follow",
    "from_row",
    "get",
    "is_taken",
    "now",
    "present",
    "present_settings",
    "require_sandbox",
    "set_settings",
]
