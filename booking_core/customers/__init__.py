"""Customers. A customer is an e-mail address within an organization."""

from booking_core.customers.service import add, create, find, get, update

__all__ = ["add", "create", "find", "get", "update"]
