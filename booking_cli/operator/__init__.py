"""Work on the database through booking_core, and run the service."""
