"""Erasures: a guest's personal data is replaced in every table, and bookings keep their numbers, seats and money.

The row of the customer is replaced in the transaction of the request. A row of `erasures` then leads through what
repeats the data (bookings with their payments, refunds and timeline, events, gift cards, mails, stored answers), step
by step and page by page, each in a short transaction (decisions/0019).
"""

from booking_core.customers.erasures.processing import process
from booking_core.customers.erasures.requests import candidates, expire, find, preview, request
from booking_core.customers.erasures.store import DUE, SETTLED_AFTER
