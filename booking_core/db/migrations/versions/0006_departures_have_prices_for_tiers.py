"""Departures have prices for the tiers of their experience

A single price that a departure has where its experience has tiers was shown and never charged. It stays in its row and
is ignored from now on (decisions/0016): what availability shows is what the tiers cost.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("departures", sa.Column("prices", sa.Text()))


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
