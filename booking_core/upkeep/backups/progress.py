"""The progress of a backup or a restoration."""

from collections.abc import Callable

Advance = Callable[[int, int], None]
"""Takes the number of copied pages and their total. `pg_dump` does not report any."""
