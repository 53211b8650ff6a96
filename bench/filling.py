"""The rows of a filled organization, table by table, as tuples in the order of `COLUMNS`.

They are the rows of bookings by staff who suppressed the mails, as far as a list or the feed shows them: experiences,
departures with their seats, customers, bookings with dense numbers, and two events for each booking with dense
sequences. Rows that no list shows are omitted (the timeline, deliveries), so the organization is for reading only.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

EXPERIENCES = 25
DEPARTURES = 5_000
FIRST_DAY = date(2031, 6, 1)
DAYS = 92
"""The departures are in this number of days from the first on, for any number of departures."""
BOOKINGS_PER_CUSTOMER = 10
SEATS_LEFT = 12
API_VERSION = "2026-09-09"

_SECOND = 1_000_000
_ZONE = ZoneInfo("Europe/Oslo")
_PRICE = {"amount_minor": 89000, "currency": "NOK"}
_TIERS = json.dumps([{"id": "adult", "name": "Adult", "price": _PRICE, "seats_per_unit": 1}])
_GUESTS = json.dumps([{"tier_id": "adult", "tier_label": "Adult", "count": 2, "unit_price": _PRICE}])
_NOTE = "Arrives by the early ferry, needs a large life vest."

COLUMNS = {
    "experiences": (
        "organization_id id slug title is_published excerpt duration_minutes languages tags currency price_from_minor"
        " price_tiers add_ons created_at updated_at"
    ).split(),
    "departures": (
        "organization_id id experience_id starts_at status seats_total seats_ceiling seats_taken created_at updated_at"
    ).split(),
    "customers": (
        "organization_id id email email_key name phone tags email_subscription created_at updated_at"
    ).split(),
    "bookings": (
        "organization_id id booking_number status source departure_id experience_id customer_id guest_name guest_email"
        " guest_phone guests add_ons seats currency subtotal_minor total_minor payment_method payment_source"
        " payment_status note send_confirmation_email notify_staff confirmed_at created_at updated_at"
    ).split(),
    "timeline": ("organization_id customer_id created_at id booking_id kind data").split(),
    "events": ("organization_id sequence id type resource_type resource_id occurrence body created_at").split(),
}
"""In the order of writing."""


@dataclass(frozen=True)
class Amounts:
    """The number of rows of each kind; each booking has two events or none."""

    bookings: int
    departures: int = DEPARTURES
    has_events: bool = True

    @property
    def events(self) -> int:
        return 2 * self.bookings if self.has_events else 0

    @property
    def customers(self) -> int:
        return max(1, self.bookings // BOOKINGS_PER_CUSTOMER)


@dataclass(frozen=True)
class Rows:
    """The rows of one organization. Ids are derived from `seed`, so tables can refer to each other without memory."""

    organization_id: str
    amounts: Amounts
    seed: bytes = field(default_factory=lambda: os.urandom(5))
    until_s: int = field(default_factory=lambda: int(time.time()))
    """The creation of the last booking; each earlier booking was created a second before the next one."""

    def of(self, table: str) -> Iterator[tuple[Any, ...]]:
        made: dict[str, Iterator[tuple[Any, ...]]] = {
            "experiences": self._experiences(),
            "departures": self._departures(),
            "customers": self._customers(),
            "bookings": self._bookings(),
            "timeline": self._timeline(),
            "events": self._events(),
        }
        return made[table]

    def _id(self, kind: int, number: int, at_ms: int = 0) -> str:
        """Return a UUID of version 7 that begins with the time; kind, seed and number make it unique."""
        stamp = f"{at_ms:012x}"
        return f"{stamp[:8]}-{stamp[8:]}-7{kind:03x}-8{self.seed.hex()[:3]}-{self.seed.hex()[3:7]}{number:08x}"

    def _made_s(self, booking: int) -> int:
        return self.until_s - self.amounts.bookings + booking

    def _experience(self, number: int) -> str:
        return self._id(1, number)

    def _departure(self, number: int) -> str:
        return self._id(2, number)

    def _customer(self, number: int) -> str:
        return self._id(3, number)

    def _booking(self, number: int) -> str:
        return self._id(4, number, self._made_s(number) * 1000)

    def _experiences(self) -> Iterator[tuple[Any, ...]]:
        for n in range(1, EXPERIENCES + 1):
            yield (
                *(self.organization_id, self._experience(n), f"filled-{n}", f"Filled tour number {n}", True),
                *("A tour like many others.", 150, '["en","nb"]', '["water"]', "NOK", 89000, _TIERS, "[]", n, n),
            )

    @cached_property
    def _first_s(self) -> int:
        return int(datetime(FIRST_DAY.year, FIRST_DAY.month, FIRST_DAY.day, tzinfo=_ZONE).timestamp())

    def _starts_s(self, departure: int) -> int:
        return self._first_s + departure * DAYS * 86_400 // (self.amounts.departures + 1)

    def _departures(self) -> Iterator[tuple[Any, ...]]:
        each, more = divmod(self.amounts.bookings, self.amounts.departures)
        for n in range(1, self.amounts.departures + 1):
            taken = 2 * (each + (n <= more))
            yield (
                *(self.organization_id, self._departure(n), self._experience(1 + n % EXPERIENCES)),
                *(self._starts_s(n) * _SECOND, "open", taken + SEATS_LEFT, taken + SEATS_LEFT, taken, n, n),
            )

    def _customers(self) -> Iterator[tuple[Any, ...]]:
        for n in range(1, self.amounts.customers + 1):
            email = f"filled{n}@example.com"
            yield (
                *(self.organization_id, self._customer(n), email, email, f"Guest {n}", None, "[]", False),
                *(n, n),
            )

    def _of_booking(self, n: int) -> tuple[int, int]:
        """Return the numbers of a booking's departure and customer."""
        return 1 + (n - 1) % self.amounts.departures, 1 + n % self.amounts.customers

    def _bookings(self) -> Iterator[tuple[Any, ...]]:
        for n in range(1, self.amounts.bookings + 1):
            departure, customer = self._of_booking(n)
            at = self._made_s(n) * _SECOND
            yield (
                *(self.organization_id, self._booking(n), n, "confirmed", "admin", self._departure(departure)),
                *(self._experience(1 + departure % EXPERIENCES), self._customer(customer), f"Guest {customer}"),
                *(f"filled{customer}@example.com", "+4790000000", _GUESTS, "[]", 2, "NOK", 178000, 178000),
                *("pay_on_site", "on_site", "unpaid", _NOTE, False, False, at, at, at),
            )

    def _timeline(self) -> Iterator[tuple[Any, ...]]:
        for n in range(1, self.amounts.bookings + 1):
            _, customer = self._of_booking(n)
            made_s, entry = self._made_s(n), self._id(6, n, self._made_s(n) * 1000)
            yield (
                *(self.organization_id, self._customer(customer), made_s * _SECOND, entry, self._booking(n)),
                *("booking_created", f'{{"booking_number": {n}, "source": "admin"}}'),
            )

    def _events(self) -> Iterator[tuple[Any, ...]]:
        for sequence in range(1, self.amounts.events + 1):
            n = (sequence + 1) // 2
            kind = "booking.created" if sequence % 2 else "booking.confirmed"
            made_s, event, booking = self._made_s(n), self._id(5, sequence, self._made_s(n) * 1000), self._booking(n)
            head = {
                "id": event,
                "type": kind,
                "created_at": _iso(made_s),
                "api_version": API_VERSION,
                "sequence": sequence,
            }
            yield (
                *(self.organization_id, sequence, event, kind, "booking", booking, 0),
                f'{json.dumps(head)[:-1]}, "data": {{"object": {self.shown(n)}}}}}',
                made_s * _SECOND,
            )

    def shown(self, n: int) -> str:
        """Return the booking as JSON. It is built by hand, since there are millions."""
        departure, customer = self._of_booking(n)
        at, experience = _iso(self._made_s(n)), 1 + departure % EXPERIENCES
        starts_s = self._starts_s(departure)
        return (
            f'{{"id": "{self._booking(n)}", "booking_number": {n}, "status": "confirmed", "source": "admin", '
            f'"created_at": "{at}", "updated_at": "{at}", "experience": {{"id": "{self._experience(experience)}", '
            f'"title": "Filled tour number {experience}", "slug": "filled-{experience}"}}, '
            f'"departure": {{"id": "{self._departure(departure)}", "starts_at": "{_iso(starts_s)}", '
            f'"ends_at": "{_iso(starts_s + 9000)}"}}, "customer": {{"name": "Guest {customer}", '
            f'"email": "filled{customer}@example.com", "phone": "+4790000000"}}, "guests": {_GUESTS}, "add_ons": [], '
            '"totals": {"subtotal": {"amount_minor": 178000, "currency": "NOK"}, '
            '"discount": {"amount_minor": 0, "currency": "NOK"}, "gift_card": {"amount_minor": 0, "currency": "NOK"}, '
            '"total": {"amount_minor": 178000, "currency": "NOK"}}, '
            '"payment": {"method": "pay_on_site", "source": "on_site", "status": "unpaid"}, '
            f'"note": "{_NOTE}", "checked_in_at": null, "no_show_at": null, '
            '"external_reference": null, "metadata": {}, "locale": null, "cancellation": {"allowed": true, '
            '"refundable_amount": {"amount_minor": 0, "currency": "NOK"}, '
            '"gift_card_amount": {"amount_minor": 0, "currency": "NOK"}, '
            f'"until": "{_iso(starts_s - 86_400)}", "late_percent": 0}}, "manage_url": null}}'
        )


def _iso(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).astimezone(_ZONE).isoformat()
