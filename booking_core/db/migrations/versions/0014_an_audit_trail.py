"""An audit trail

Each change by a command of the operator, or by an API key to what it manages, writes a row in its transaction.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0014"
down_revision = "0013"
is_additive = True
branch_labels = None
depends_on = None

_ID = sa.String(36).with_variant(postgresql.UUID(as_uuid=False), "postgresql")


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("organization_id", _ID, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor_kind", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("objects", sa.Text(), nullable=False),
        sa.CheckConstraint("actor_kind IN ('operator', 'api_key')", name=op.f("ck_audit_actor_kind")),
        sa.PrimaryKeyConstraint("organization_id", "id", name=op.f("pk_audit")),
    )
    op.create_index(op.f("ix_audit_organization_id_at_id"), "audit", ["organization_id", "at", "id"])
    op.create_index(op.f("ix_audit_at_id"), "audit", ["at", "id"])
