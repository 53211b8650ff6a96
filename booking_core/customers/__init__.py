"""Customers: read, created or reused, changed. A customer is one e-mail address within one organization."""

from booking_core.customers.service import add, create, find, get, update

__all__ = ["add", "create", "find", "get", "update"]
