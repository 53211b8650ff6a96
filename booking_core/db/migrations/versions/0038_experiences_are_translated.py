"""Experiences are translated

The texts of an experience in other languages, from the catalogue file.
"""

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"
is_additive = True
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("experiences", sa.Column("translations", sa.Text()))


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
