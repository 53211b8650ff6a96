"""The installation's secret keys over everything that they sealed: counted, checked at start, and sealed anew.

After `reseal` a former secret key can be dropped: what it sealed is sealed by the key in use, and what its guests'
links are made with is kept (decisions/0018). Cursors that it signed end with it.
"""

from booking_core.upkeep.secret_keys.service import (
    Count,
    Problem,
    State,
    count_to_reseal,
    find_problem,
    find_problem_of_key_ids,
    holds_anything,
    make_new_links,
    reseal,
    status,
    unopened,
    with_link_keys,
)
from booking_core.upkeep.secret_keys.store import KINDS, Kind
