"""Bookings are found by their reference

Bookings without one are not in the index, so that it costs them nothing.
"""

from booking_core.db.migrations import online

revision = "0023"
down_revision = "0022"
is_additive = True
branch_labels = None
depends_on = None


def upgrade() -> None:
    online.create_index(
        "ix_bookings_external_reference",
        "bookings",
        ["organization_id", "external_reference", "created_at", "id"],
        where="external_reference IS NOT NULL",
    )


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
