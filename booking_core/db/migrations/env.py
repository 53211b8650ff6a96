"""Alembic's entry: runs the steps on the connection that `booking_core.db.migrate` hands over."""

from alembic import context

from booking_core.db.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
    transaction_per_migration=context.config.attributes["connection"].dialect.name == "postgresql",
    on_version_apply=context.config.attributes.get("on_version_apply"),
    render_as_batch=context.config.attributes["connection"].dialect.name == "sqlite",
)
with context.begin_transaction():
    context.run_migrations()
