"""The installation's secret keys and all values that they sealed: counted, checked at start, and resealed.

After `reseal` a former secret key can be removed: its values are sealed by the key in use, and the derived key of its
guests' links is kept (decisions/0018). Cursors that it signed end with it.
"""

from booking_core.upkeep.secret_keys.service import (
    Count,
    SealProblem,
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
from booking_core.upkeep.secret_keys.store import KINDS, SealedKind
