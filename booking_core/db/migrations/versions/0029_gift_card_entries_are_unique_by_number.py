"""Gift card entries are unique by their number

A booking has one entry of each kind and number.
"""

from booking_core.db.migrations.online import create_index

revision = "0029"
down_revision = "0028"
is_additive = True
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_index(
        "ix_gift_card_entries_organization_id_booking_id_kind_number",
        "gift_card_entries",
        ["organization_id", "booking_id", "kind", "number"],
        is_unique=True,
    )


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
