"""Sandboxes: organizations that never mail or charge for real, with a clock that their own keys move (decision 0016).

Everything else of a sandbox is that of any organization. Its rows hold instants of its own clock; the present one is
`Organization.instant` of the real time.
"""

from booking_core.upkeep.sandboxes.mails import find_mails
from booking_core.upkeep.sandboxes.service import advance, clock, count, read_clocks

__all__ = ["advance", "clock", "count", "find_mails", "read_clocks"]
