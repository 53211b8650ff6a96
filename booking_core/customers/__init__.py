"""Customers. A customer is an e-mail address within an organization."""

from booking_core.customers.anonymizing import anonymize
from booking_core.customers.rules import anonymous_contact
from booking_core.customers.service import add, create, find, get, get_or_add, update

__all__ = ["add", "anonymize", "anonymous_contact", "create", "find", "get", "get_or_add", "update"]
