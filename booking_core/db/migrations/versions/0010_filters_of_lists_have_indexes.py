"""Filters of lists have indexes

A rare value of a filter is found by an index: unpublished experiences, and gift cards by their status. A booking
touches none of these, except one that redeems from a card.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_OF_CARDS = (
    ("ix_gift_cards_inactive", ["organization_id", "created_at", "id"], "deactivated_at IS NOT NULL"),
    ("ix_gift_cards_expires_at", ["organization_id", "expires_at"], "deactivated_at IS NULL AND balance_minor > 0"),
    ("ix_gift_cards_valid_from", ["organization_id", "valid_from"], "valid_from IS NOT NULL"),
    ("ix_gift_cards_used_up", ["organization_id", "id"], "deactivated_at IS NULL AND balance_minor = 0"),
)


def upgrade() -> None:
    op.create_index(
        "ix_experiences_organization_id_is_published_created_at_id",
        "experiences",
        ["organization_id", "is_published", "created_at", "id"],
    )
    for name, columns, where in _OF_CARDS:
        op.create_index(name, "gift_cards", columns, postgresql_where=sa.text(where), sqlite_where=sa.text(where))


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
