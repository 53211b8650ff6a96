"""What the fake remembers, and what the service would do with it. Rows are resources as the API shows them; a name
that begins with an underscore is the store's own and shown to nobody."""

import base64
import hashlib
import hmac
import itertools
import json
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from booking_core.models.bookings import BookingCreate
from booking_core.models.customers import CustomerCreate
from booking_core.models.experiences import STANDARD_TIER_ID
from booking_core.models.limits import API_VERSION, AVAILABILITY_DAYS_DEFAULT, WINDOW_DAYS_MAX
from booking_core.models.pages import Order
from booking_sdk.testing._http import Query, Refusal, conflict, malformed, not_found, unprocessable
from booking_sdk.testing.clock import ManualClock
from booking_sdk.testing.factories import money, new_id

Row = dict[str, Any]

_PAYMENTS = {
    "pay_on_site": {"method": "pay_on_site", "source": "on_site", "status": "unpaid"},
    "invoice": {"method": "invoice", "source": "external", "status": "unpaid"},
    "external_paid": {"method": "external_paid", "source": "external", "status": "paid"},
}
_FREE = {"method": "free", "source": "external", "status": "paid"}


def shown(row: Row) -> Row:
    """A row without what is the store's own."""
    return {name: value for name, value in row.items() if not name.startswith("_")}


def zone_of(timezone: str) -> tzinfo:
    # UTC needs no time zone database, which not every machine has.
    return UTC if timezone == "UTC" else ZoneInfo(timezone)


def standard_tiers(price: Row | None) -> list[Row]:
    """Return the tiers of an experience without configured ones: `standard`, when there is a price."""
    standard = {"id": STANDARD_TIER_ID, "name": STANDARD_TIER_ID, "price": price, "seats_per_unit": 1}
    return [] if price is None else [standard]


def lowest_price(tiers: Iterable[Row]) -> Row | None:
    """Return the price of the cheapest tier."""
    return min((tier["price"] for tier in tiers), key=lambda price: int(price["amount_minor"]), default=None)


class Store:
    """One organization."""

    def __init__(self, clock: ManualClock, name: str, timezone: str, currency: str) -> None:
        self.clock = clock
        self.zone = zone_of(timezone)
        self.organization: Row = {
            "id": new_id(),
            "slug": "fake",
            "name": name,
            "timezone": timezone,
            "default_currency": currency,
        }
        self.add_ons_app = True
        self.experiences: dict[str, Row] = {}
        self.departures: dict[str, Row] = {}
        self.bookings: dict[str, Row] = {}
        self.customers: dict[str, Row] = {}
        self.gift_cards: dict[str, Row] = {}
        self.events: dict[str, Row] = {}
        self.on_event: Callable[[Row], None] = lambda event: None
        self._positions = itertools.count(1)
        self._secret = new_id().encode()

    # Time and rows -------------------------------------------------------------------------------------------------

    def at(self, moment: datetime) -> str:
        """An instant as the service writes it: with the organization's offset, to the second."""
        return moment.astimezone(self.zone).isoformat(timespec="seconds")

    @property
    def now(self) -> str:
        return self.at(self.clock.now)

    def keep(self, rows: dict[str, Row], row: Row) -> Row:
        """Adds a row at the end of its list."""
        rows[row["id"]] = {**row, "_position": next(self._positions), "_changed_at": self.clock.now}
        return rows[row["id"]]

    def change(self, row: Row, **values: Any) -> None:
        row.update(values, _changed_at=self.clock.now)
        if "updated_at" in row:
            row["updated_at"] = self.now

    @staticmethod
    def get(rows: Mapping[str, Row], row_id: str) -> Row:
        """One row, or the refusal that there is none."""
        try:
            return rows[row_id.lower()]
        except KeyError:
            raise not_found() from None

    # Lists ---------------------------------------------------------------------------------------------------------

    def page(self, endpoint: str, rows: Iterable[Row], query: Query, filters: Mapping[str, Any]) -> Row:
        """A page of the rows that pass the filters which a cursor is bound to."""
        limit, order = query.limit(), query.choice("order", Order) or Order.DESC
        binding = f"{endpoint} {order} {sorted((name, str(value)) for name, value in filters.items() if value)}"
        cursor = query.text("starting_after")
        after = None if cursor is None else self._position(binding, cursor)
        ordered = sorted(rows, key=lambda row: row["_position"], reverse=order is Order.DESC)
        left = [row for row in ordered if after is None or (row["_position"] > after) == (order is Order.ASC)]
        left = [row for row in left if row["_position"] != after]
        data, has_more = left[:limit], len(left) > limit
        last = self._cursor(binding, data[-1]["_position"]) if data else cursor
        return {"data": data, "has_more": has_more, "next_cursor": last if has_more else None, "_resume": last}

    def _cursor(self, binding: str, position: int) -> str:
        payload = str(position).encode()
        mac = hmac.digest(self._secret, binding.encode() + b"\x00" + payload, hashlib.sha256)[:12]
        return base64.urlsafe_b64encode(mac + payload).decode().rstrip("=")

    def _position(self, binding: str, cursor: str) -> int:
        try:
            position = int(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))[12:])
        except ValueError:
            position = -1
        if self._cursor(binding, position) != cursor:
            raise malformed("starting_after", "is not a cursor of this list", "invalid_cursor")
        return position

    # Departures ----------------------------------------------------------------------------------------------------

    def window(self, first: date, last: date, field: str) -> tuple[datetime, datetime]:
        """The instants between which the days lie, in the organization's timezone."""
        if last < first:
            raise unprocessable(field, "lies before the first day", "window_reversed")
        if (last - first).days > WINDOW_DAYS_MAX:
            raise unprocessable(field, f"is more than {WINDOW_DAYS_MAX} days after the first day", "window_too_wide")
        start = datetime.combine(first, time(), self.zone)
        return start, datetime.combine(last + timedelta(days=1), time(), self.zone)

    def available(self, query: Query) -> Row:
        experience_id, first, last = query.uuid("experience_id"), query.day("from"), query.day("to")
        if first is None:
            raise malformed("from", "is required", "required")
        start, end = self.window(first, last or first + timedelta(days=AVAILABILITY_DAYS_DEFAULT), "to")
        found = [
            row
            for row in self.departures.values()
            if start <= row["_starts_at"] < end and experience_id in (None, row["experience_id"])
        ]
        found.sort(key=lambda row: (row["_starts_at"], row["id"]))
        return {"data": [self.seats_shown(row) for row in found], "has_more": False, "next_cursor": None}

    def seats_left(self, departure: Row) -> int:
        taken: int = sum(
            booking["_seats"]
            for booking in self.bookings.values()
            if booking["departure"]["id"] == departure["id"] and booking["status"] != "cancelled"
        )
        total: int = departure["seats_total"]
        return max(0, total - taken)

    def seats_shown(self, departure: Row) -> Row:
        """A departure with its seats and its status of the moment."""
        left = self.seats_left(departure)
        status = departure["_status"]
        if status == "open" and departure["_closes_at"] <= self.clock.now:
            status = "closed"
        if status == "open" and left == 0:
            status = "sold_out"
        return {**departure, "seats_available": left, "status": status}

    # Bookings ------------------------------------------------------------------------------------------------------

    def book(self, asked: BookingCreate) -> Row:
        """A new booking, with its events; the refusals in the order of the service."""
        departure = self.get(self.departures, asked.experience_date_id)
        self._check_bookable(departure)
        experience = self.experiences[departure["experience_id"]]
        guests, seats = self._guest_lines(departure, asked)
        add_ons = self._add_on_lines(experience, asked)
        left = self.seats_left(departure)
        if seats > left:
            message = f"Not enough seats: {left} available."
            raise Refusal(409, "insufficient_capacity", message, seats_available=left)
        customer = {**asked.customer.model_dump(), "phone": asked.customer.phone or None}
        self.know(customer["name"], customer["email"], customer["phone"])
        row = self.keep(self.bookings, self._booking(asked, experience, departure, guests, add_ons, customer))
        row["_seats"] = seats
        self.tell("booking.created", row)
        self.tell("booking.confirmed", row)
        return row

    def _check_bookable(self, departure: Row) -> None:
        if departure["_status"] == "cancelled":
            raise conflict("departure_cancelled", "The departure is cancelled.")
        if departure["_status"] == "closed":
            raise conflict("departure_closed", "The departure is closed for booking.")
        if departure["_starts_at"] <= self.clock.now:
            raise conflict("departure_started", "The departure has started.")
        if departure["_closes_at"] <= self.clock.now:
            raise conflict("departure_closed", "Booking of this departure has closed.")

    def _guest_lines(self, departure: Row, asked: BookingCreate) -> tuple[list[Row], int]:
        tiers = {tier["id"]: tier for tier in departure["_tiers"]}
        lines, seats = [], 0
        for number, line in enumerate(asked.guests):
            tier = tiers.get(line.tier_id)
            if tier is None:
                raise unprocessable(
                    f"guests.{number}.tier_id",
                    f"The experience has no such price tier; it has {', '.join(sorted(tiers))}.",
                    "unknown_tier",
                )
            fields = {"tier_id": line.tier_id, "tier_label": tier["name"]}
            lines.append({**fields, "count": line.count, "unit_price": tier["price"]})
            seats += line.count * int(tier["seats_per_unit"])
        return lines, seats

    def _add_on_lines(self, experience: Row, asked: BookingCreate) -> list[Row]:
        if asked.add_ons and not self.add_ons_app:
            raise unprocessable("add_ons", "The Add-ons app is off.", "add_ons_app_disabled")
        known = {add_on["id"]: add_on for add_on in experience["_add_ons"]}
        lines = []
        for number, line in enumerate(asked.add_ons or ()):
            add_on = known.get(line.id)
            if add_on is None:
                raise unprocessable(f"add_ons.{number}.id", "is not an add-on of the experience", "unknown_add_on")
            fields = {"id": line.id, "label": add_on["label"]}
            lines.append({**fields, "count": line.count, "unit_price": add_on["price"]})
        return lines

    def _booking(
        self,
        asked: BookingCreate,
        experience: Row,
        departure: Row,
        guests: list[Row],
        add_ons: list[Row],
        customer: Row,
    ) -> Row:
        currency = guests[0]["unit_price"]["currency"]
        total = sum(line["count"] * line["unit_price"]["amount_minor"] for line in (*guests, *add_ons))
        none = money(0, currency)
        booking_id = new_id()
        return {
            "id": booking_id,
            "booking_number": len(self.bookings) + 1,
            "status": "confirmed",
            "source": "api",
            "created_at": self.now,
            "updated_at": self.now,
            "experience": {name: experience[name] for name in ("id", "title", "slug")},
            "departure": {name: departure[name] for name in ("id", "starts_at", "ends_at")},
            "customer": customer,
            "guests": guests,
            "add_ons": add_ons,
            "totals": {
                "subtotal": money(total, currency),
                "discount": none,
                "gift_card": none,
                "total": money(total, currency),
            },
            "payment": _PAYMENTS[asked.payment] if total else _FREE,
            "note": asked.note or None,
            "manage_url": f"https://fake.example.com/manage/{booking_id}",
        }

    def cancel(self, booking_id: str, reason: str = "api") -> Row:
        """The booking, cancelled; one that is already stays as it is."""
        row = self.get(self.bookings, booking_id)
        if row["status"] != "cancelled":
            self.change(row, status="cancelled")
            self.tell("booking.cancelled", row, reason=reason)
        return row

    # Customers -----------------------------------------------------------------------------------------------------

    def know(self, name: str, email: str, phone: str | None, subscribed: bool = False) -> tuple[Row, bool]:
        """The customer with this address, and whether it is new."""
        identity = unicodedata.normalize("NFC", email).casefold()
        for row in self.customers.values():
            if row["_identity"] == identity:
                return row, False
        fields: Row = {"id": new_id(), "name": name, "email": email, "phone": phone, "tags": []}
        row = self.keep(self.customers, {**fields, "email_subscription": subscribed, "created_at": self.now})
        row["_identity"] = identity
        self.tell("customer.created", row)
        return row, True

    def create_customer(self, asked: CustomerCreate) -> tuple[Row, bool]:
        return self.know(asked.name, asked.email, asked.phone or None, bool(asked.email_subscription))

    # Events --------------------------------------------------------------------------------------------------------

    def tell(self, event_type: str, about: Row, *, resource_type: str | None = None, **data: Any) -> Row:
        """Writes an event at the end of the feed, as things are now."""
        resource = resource_type or event_type.partition(".")[0]
        body = shown(about)
        if "manage_url" in body:
            body["manage_url"] = None
        event = {
            "id": new_id(),
            "type": event_type,
            "created_at": self.now,
            "api_version": API_VERSION,
            "sequence": len(self.events) + 1,
            "data": {"object": body, **data},
            "resource_type": resource,
            "resource_id": None if event_type == "ping" else body.get("id"),
        }
        # A copy, by way of JSON: what happened stays as it was when it happened.
        row = self.keep(self.events, json.loads(json.dumps(event)))
        self.on_event(row)
        return row
