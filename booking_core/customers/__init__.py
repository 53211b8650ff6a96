"""Customers. A customer is an e-mail address within an organization."""

from booking_core.customers.rules import ANONYMOUS, CustomerRow, anonymous_contact
from booking_core.customers.service import add, anonymize, create, find, get, get_or_add, update
