"""The steps from one schema to the next, run by Alembic through `booking_core.db.migrate`."""
