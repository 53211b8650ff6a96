"""Money that people take and return by hand

Staff records what was paid on site or for an invoice, and settles or reopens refunds that wait for a person. Amounts of
refunds that were never sent become amounts that the card processor takes: in currencies of three decimals a multiple of
ten, in ariary a multiple of a hundred.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_ID = sa.String(length=36).with_variant(sa.UUID(as_uuid=False), "postgresql")
_STATUS = "status IN ('requested', 'sending', 'succeeded', 'settled', 'failed', 'needs_review')"
_UNITS = {10: "'BHD', 'JOD', 'KWD', 'OMR', 'TND'", 100: "'MGA'"}


def upgrade() -> None:
    op.add_column("bookings", sa.Column("recorded_minor", sa.BigInteger(), server_default=sa.text("0"), nullable=False))
    op.create_table(
        "payment_records",
        sa.Column("organization_id", _ID, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("booking_id", _ID, nullable=False),
        sa.Column("payment_id", _ID, nullable=False),
        sa.Column("amount_minor", sa.BigInteger(), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("method", sa.Text()),
        sa.Column("note", sa.Text()),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.Column("voided_at", sa.BigInteger()),
        sa.Column("voided_note", sa.Text()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("amount_minor > 0", name=op.f("ck_payment_records_amount")),
        sa.ForeignKeyConstraint(
            ["organization_id", "booking_id"],
            ["bookings.organization_id", "bookings.id"],
            name=op.f("fk_payment_records_organization_id_booking_id"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "payment_id"],
            ["payments.organization_id", "payments.id"],
            name=op.f("fk_payment_records_organization_id_payment_id"),
        ),
        sa.PrimaryKeyConstraint("organization_id", "id", name=op.f("pk_payment_records")),
    )
    op.create_index(
        op.f("ix_payment_records_organization_id_booking_id"), "payment_records", ["organization_id", "booking_id"]
    )
    with op.batch_alter_table("refunds") as refunds:
        refunds.add_column(sa.Column("reopened_count", sa.Integer(), server_default=sa.text("0"), nullable=False))
        refunds.add_column(sa.Column("settled_minor", sa.BigInteger()))
        refunds.add_column(sa.Column("settled_note", sa.Text()))
        refunds.add_column(sa.Column("settled_at", sa.BigInteger()))
        refunds.drop_constraint(op.f("ck_refunds_status"), type_="check")
        refunds.create_check_constraint(op.f("ck_refunds_status"), _STATUS)
        refunds.create_check_constraint(
            op.f("ck_refunds_settled"), "(status = 'settled') = (settled_minor IS NOT NULL)"
        )
    for unit, currencies in _UNITS.items():
        op.execute(
            f"UPDATE refunds SET amount_minor = amount_minor - amount_minor % {unit}"  # noqa: S608 - constants
            f" WHERE currency IN ({currencies}) AND amount_minor > {unit} AND first_sent_at IS NULL"
        )


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
