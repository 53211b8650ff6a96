"""Alembic's entry: runs the steps on the connection that `booking_core.db.migrate` hands over."""

from alembic import context

from booking_core.db.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
    render_as_batch=context.config.attributes["connection"].dialect.name == "sqlite",
)
with context.begin_transaction():
    context.run_migrations()
