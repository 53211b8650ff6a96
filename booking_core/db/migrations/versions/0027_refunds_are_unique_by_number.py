"""Refunds are unique by their number

A booking has one refund of each number.
"""

from booking_core.db.migrations.online import create_index

revision = "0027"
down_revision = "0026"
is_additive = True
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_index(
        "ix_refunds_organization_id_booking_id_number",
        "refunds",
        ["organization_id", "booking_id", "number"],
        is_unique=True,
    )


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
