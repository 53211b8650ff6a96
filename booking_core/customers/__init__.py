"""Customers: read, created or reused. A customer is one e-mail address within one organization."""

from booking_core.customers.rules import email_key
from booking_core.customers.service import add, create, find, get

__all__ = ["add", "create", "email_key", "find", "get"]
