"""Sandboxes are found

An index of the sandboxes with the offsets of their clocks: statements about the rows of many organizations look up each
of these there, and it is empty in an installation without sandboxes.
"""

from booking_core.db.migrations import online

revision = "0034"
down_revision = "0033"
is_additive = True
branch_labels = None
depends_on = None


def upgrade() -> None:
    online.create_index(
        "ix_organizations_sandboxes", "organizations", ["id", "clock_offset"], where="clock_offset IS NOT NULL"
    )


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
