"""Rows that every change writes: events, outbox, timeline, audit and stored answers."""
