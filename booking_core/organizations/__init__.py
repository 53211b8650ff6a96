"""Organizations: the operators of bookable experiences, and their settings.

`COLUMNS` and `from_row` are for packages that join organizations to their own rows.
"""

from booking_core.organizations.rules import HOURS_MAX, URL_LENGTH_MAX, currency, require_sandbox, timezone
from booking_core.organizations.service import (
    COLUMNS,
    actor_of,
    by_id,
    create,
    find,
    follow,
    from_row,
    get,
    now,
    owner,
    owners,
    present,
    present_settings,
    set_settings,
)
