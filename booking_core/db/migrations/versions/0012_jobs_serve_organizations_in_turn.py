"""Jobs serve organizations in turn

The indexes of due rows begin with the organization, so that a job finds the organizations with due rows without reading
the rows. Rows that a job could not process are parked in a table of their own.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_ID = sa.String(36).with_variant(postgresql.UUID(as_uuid=False), "postgresql")
_INDEXES: dict[str, tuple[str, list[str], str | None]] = {
    "ix_departures_cancelling": ("departures", ["organization_id", "starts_at", "id"], "cancelling IS NOT NULL"),
    "ix_bookings_pending_expires_at": ("bookings", ["organization_id", "expires_at", "id"], "status = 'pending'"),
    "ix_refunds_due": (
        "refunds",
        ["organization_id", "next_attempt_at", "id"],
        "status IN ('requested', 'sending')",
    ),
    "ix_effects_due": ("effects", ["organization_id", "due_at", "key"], "status = 'queued'"),
    "ix_mails_due": ("mails", ["organization_id", "next_attempt_at", "id"], "status = 'queued'"),
    "ix_mails_ended": ("mails", ["status", "organization_id", "completed_at"], "completed_at IS NOT NULL"),
    "ix_effects_unmailed": (
        "effects",
        ["status", "organization_id", "completed_at"],
        "completed_at IS NOT NULL AND last_error IS NOT NULL",
    ),
}
"""The table, the columns and the condition of each index that is made anew."""


def _create(name: str, table: str, columns: list[str], condition: str | None) -> None:
    where = None if condition is None else sa.text(condition)
    op.create_index(name, table, columns, postgresql_where=where, sqlite_where=where)


def upgrade() -> None:
    for name, (table, columns, condition) in _INDEXES.items():
        op.drop_index(name, table)
        _create(name, table, columns, condition)
    for table in ("holds", "idempotency"):
        op.drop_index(f"ix_{table}_created_at", table)
        _create(f"ix_{table}_organization_id_created_at", table, ["organization_id", "created_at"], None)
    _create("ix_holds_open", "holds", ["created_at"], "ended_at IS NULL")
    unwarned = "expires_at IS NOT NULL AND revoked_at IS NULL AND warned_at IS NULL"
    _create("ix_api_keys_unwarned", "api_keys", ["organization_id", "expires_at", "id"], unwarned)
    op.create_table(
        "parked_work",
        sa.Column("organization_id", _ID, nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("subject_id", sa.Text(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("failed_at", sa.BigInteger(), nullable=False),
        sa.Column("retry_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("failures > 0", name=op.f("ck_parked_work_failures")),
        sa.PrimaryKeyConstraint("organization_id", "job", "subject_id", name=op.f("pk_parked_work")),
    )


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
