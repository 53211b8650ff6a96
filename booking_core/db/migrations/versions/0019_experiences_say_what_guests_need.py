"""Experiences say what guests need

The meeting point in words, what to bring, and terms, from the catalogue file.
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
is_additive = True
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("experiences", sa.Column("meeting_point", sa.Text()))
    op.add_column("experiences", sa.Column("what_to_bring", sa.Text()))
    op.add_column("experiences", sa.Column("terms", sa.Text()))


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
