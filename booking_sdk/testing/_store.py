"""The data of the fake, and the business rules of the service.

Rows are resources as JSON fields. A name that begins with an underscore is internal and never part of a response.
"""

import base64
import hashlib
import hmac
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from booking_core.models.base import Resource, email_key
from booking_core.models.bookings import (
    AddOnLine,
    BookedDeparture,
    BookedExperience,
    BookingCreate,
    BookingOrder,
    BookingPartyChange,
    BookingStatus,
    CancellationTerms,
    Guest,
    GuestLine,
    Payment,
)
from booking_core.models.customers import Customer, CustomerCreate
from booking_core.models.departures import Departure
from booking_core.models.experiences import STANDARD_TIER_ID, AddOn, Experience, PriceTier
from booking_core.models.limits import API_VERSION, AVAILABILITY_DAYS_DEFAULT, WINDOW_DAYS_MAX
from booking_core.models.manifests import ManifestTotals
from booking_core.models.money import Money
from booking_core.models.organizations import Organization
from booking_core.models.pages import Order
from booking_sdk.models import Booking, Event, GiftCard
from booking_sdk.testing._holds import Holds
from booking_sdk.testing._http import Query, Refusal, conflict, malformed, named, not_found, unprocessable
from booking_sdk.testing.clock import ManualClock
from booking_sdk.testing.factories import new_id, resource_fields, totals_fields

Row = dict[str, Any]

_PAYMENTS = {
    "pay_on_site": resource_fields(Payment, method="pay_on_site", source="on_site", status="unpaid"),
    "invoice": resource_fields(Payment, method="invoice", source="external", status="unpaid"),
    "external_paid": resource_fields(Payment, method="external_paid", source="external", status="paid"),
}
_FREE = resource_fields(Payment, method="free", source="external", status="paid")


def payment_after(payment: Row, total: int) -> Row:
    """Return the payment of a booking whose total has changed."""
    if not total:
        return _FREE
    return _PAYMENTS["pay_on_site"] if payment["method"] == "free" else payment


def shown(row: Row) -> Row:
    """Return a row without its internal fields."""
    return {name: value for name, value in row.items() if not name.startswith("_")}


def zone_of(timezone: str) -> tzinfo:
    # UTC works without a time zone database, which not every machine has.
    return UTC if timezone == "UTC" else ZoneInfo(timezone)


def standard_tiers(price: Row | None) -> list[Row]:
    """Return the price tiers of an experience that configures none: `standard`, when there is a price."""
    standard = resource_fields(PriceTier, id=STANDARD_TIER_ID, name=STANDARD_TIER_ID, price=price, seats_per_unit=1)
    return [] if price is None else [standard]


def shown_add_ons(add_ons: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return the add-ons of an experience as the API shows them."""
    return [resource_fields(AddOn, id=each["id"], name=each["label"], price=each["price"]) for each in add_ons]


def lowest_price(tiers: Iterable[Row]) -> Row | None:
    """Return the price of the cheapest tier."""
    return min((tier["price"] for tier in tiers), key=lambda price: int(price["amount_minor"]), default=None)


def select_fields(model: type[Resource], row: Row) -> Row:
    """Return the fields of a row that a model has."""
    return {name: row[name] for name in model.model_fields}


def _unpaid(row: Row) -> Row:
    total: Row = row["totals"]["total"]
    return total if row["payment"]["status"] == "unpaid" else {**total, "amount_minor": 0}


def _cancellable_until(row: Row) -> datetime:
    return datetime.fromisoformat(row["departure"]["starts_at"]) - timedelta(hours=24)


def _manifest_totals(data: list[Row]) -> Row:
    guests: Counter[str] = Counter()
    add_ons: Counter[str] = Counter()
    unpaid: Counter[str] = Counter()
    for row in data:
        guests.update({line["tier_label"]: line["count"] for line in row["guests"]})
        add_ons.update({line["label"]: line["count"] for line in row["add_ons"]})
        unpaid[row["unpaid"]["currency"]] += row["unpaid"]["amount_minor"]
    return resource_fields(
        ManifestTotals,
        bookings=len(data),
        checked_in=sum(row["checked_in_at"] is not None for row in data),
        no_shows=sum(row["no_show_at"] is not None for row in data),
        guests=dict(guests),
        add_ons=dict(add_ons),
        unpaid=[{"amount_minor": amount, "currency": currency} for currency, amount in unpaid.items() if amount],
    )


class Store:
    """The data of one organization."""

    def __init__(self, clock: ManualClock, name: str, timezone: str, currency: str) -> None:
        self.clock = clock
        self.holds = Holds(clock)
        self.zone = zone_of(timezone)
        self.organization = resource_fields(
            Organization, id=new_id(), slug="fake", name=name, timezone=timezone, default_currency=currency
        )
        self.add_ons_app = True
        self._tables: dict[type[Resource], dict[str, Row]] = {}
        self.experiences = self.table(Experience)
        self.departures = self.table(Departure)
        self.bookings = self.table(Booking)
        self.customers = self.table(Customer)
        self.gift_cards = self.table(GiftCard)
        self.events: dict[str, Row] = {}
        self.on_event: Callable[[Row], None] = lambda event: None
        self.on_publish: list[Callable[[Row], None]] = []
        self.on_cancel: Callable[[Row, bool], None] = lambda booking, is_refunded: None
        self._positions = itertools.count(1)
        self._secret = new_id().encode()

    # Time and rows -------------------------------------------------------------------------------------------------

    def at(self, moment: datetime) -> str:
        """Return a time in the format of the service: with the organization's UTC offset, to the second."""
        return moment.astimezone(self.zone).isoformat(timespec="seconds")

    def times(self, start: datetime, end: datetime, closes_at: datetime) -> dict[str, str]:
        """Return the fields of a departure that say when it takes place and until when it is booked."""
        starts_at = self.at(start)
        return {
            "starts_at": starts_at,
            "starts_at_local": starts_at[:19],
            "timezone": self.organization["timezone"],
            "ends_at": self.at(end),
            "booking_closes_at": self.at(closes_at),
        }

    @property
    def now(self) -> str:
        return self.at(self.clock.now)

    def table(self, model: type[Resource]) -> dict[str, Row]:
        """Return the rows of a model by id."""
        return self._tables.setdefault(model, {})

    def keep(self, rows: dict[str, Row], row: Row) -> Row:
        """Add a row at the end of its table."""
        rows[row["id"]] = {**row, "_position": next(self._positions), "_changed_at": self.clock.now}
        return rows[row["id"]]

    def change(self, row: Row, **values: Any) -> None:
        row.update(values, _changed_at=self.clock.now)
        if "updated_at" in row:
            row["updated_at"] = self.now

    @staticmethod
    def get(rows: Mapping[str, Row], row_id: str) -> Row:
        """Return one row.

        Raises:
            Refusal: No row has this id (404).
        """
        try:
            return rows[row_id.lower()]
        except KeyError:
            raise not_found() from None

    # Lists ---------------------------------------------------------------------------------------------------------

    def page(self, endpoint: str, rows: Iterable[Row], query: Query, filters: Mapping[str, Any]) -> Row:
        """Return one page of rows. A cursor is bound to its endpoint, order and filters."""
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
        """Return the start of the first day and the end of the last day, in the organization's timezone."""
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
        return self._departures_within(first, last or first + timedelta(days=AVAILABILITY_DAYS_DEFAULT), experience_id)

    def _departures_within(self, first: date, last: date, experience_id: str | None) -> Row:
        start, end = self.window(first, last, "to")
        found = [
            row
            for row in self.departures.values()
            if start <= row["_starts_at"] < end and experience_id in (None, row["experience_id"])
        ]
        found.sort(key=lambda row: (row["_starts_at"], row["id"]))
        return {"data": [self.seats_shown(row) for row in found], "has_more": False, "next_cursor": None}

    def experience_shown(self, experience: Row) -> Row:
        """Return an experience with the add-ons that can be booked now."""
        add_ons = shown_add_ons(experience["_add_ons"]) if self.add_ons_app else []
        return {**experience, "add_ons": experience["add_ons"] or add_ons}

    def available_on(self, query: Query) -> Row:
        """Return the departures of a day."""
        day, experience_id = query.day("date"), query.uuid("experience_id")
        if day is None:
            raise malformed("date", "is required", "required")
        return self._departures_within(day, day, experience_id)

    def seats_left(self, departure: Row, hold_id: str | None = None) -> int:
        """Return the seats that are left for a booking that takes a hold over, or none."""
        taken: int = sum(
            booking["_seats"]
            for booking in self.bookings.values()
            if booking["departure"]["id"] == departure["id"] and booking["status"] != "cancelled"
        )
        total: int = departure["seats_total"]
        return max(0, total - taken - self.holds.seats_held(departure["id"], but=hold_id))

    def seats_shown(self, departure: Row) -> Row:
        """Return a departure with its current seats and status."""
        left = self.seats_left(departure)
        status = departure["_status"]
        if status == "open" and departure["_closes_at"] <= self.clock.now:
            status = "closed"
        if status == "open" and left == 0:
            status = "sold_out"
        return {**departure, "seats_available": left, "status": status}

    # Bookings ------------------------------------------------------------------------------------------------------

    def create_booking(self, request: BookingCreate) -> Row:
        """Create a booking and its events."""
        row = self.insert_booking(request)
        self.publish("booking.created", row)
        self.publish("booking.confirmed", row)
        return row

    def insert_booking(self, request: BookingCreate) -> Row:
        """Create a booking without its events. The checks run in the order of the service."""
        departure = self.get(self.departures, request.experience_date_id)
        self.check_reference(request)
        self.check_bookable(departure)
        self.holds.require_usable(request)
        experience = self.experiences[departure["experience_id"]]
        problems: list[Refusal] = []
        guests, seats = self.guest_lines(departure, request, problems)
        add_ons = self.add_on_lines(experience, request, problems)
        for problem in problems:
            raise problem
        self.check_seats(departure, seats, request.hold_id)
        guest = {**request.customer.model_dump(), "phone": request.customer.phone or None}
        customer = resource_fields(Guest, **guest)
        owner, _ = self.find_or_create_customer(customer["name"], customer["email"], customer["phone"])
        row = self.keep(self.bookings, self._booking(request, experience, departure, guests, add_ons, customer))
        row |= {"_seats": seats, "_customer_id": owner["id"]}
        self.holds.take_over(request.hold_id, row["id"])
        return row

    def check_seats(self, departure: Row, seats: int, hold_id: str | None = None) -> None:
        """Refuse more seats than are left for a booking that takes a hold over."""
        left = self.seats_left(departure, hold_id)
        if seats > left:
            message = f"Not enough seats: {left} available."
            raise Refusal(409, "insufficient_capacity", message, seats_available=left)

    def check_reference(self, request: BookingOrder) -> None:
        """Refuse a reference that is to be unique and that a booking has."""
        wanted = request.external_reference if request.external_reference_unique else None
        if wanted is not None and any(row["external_reference"] == wanted for row in self.bookings.values()):
            raise named(
                409,
                "conflict",
                "external_reference",
                "A booking has this external reference.",
                "external_reference_taken",
            )

    def check_bookable(self, departure: Row) -> None:
        """Refuse a departure that cannot be booked."""
        if departure["_status"] == "cancelled":
            raise conflict("departure_cancelled", "The departure is cancelled.")
        if departure["_status"] == "closed":
            raise conflict("departure_closed", "The departure is closed for booking.")
        if departure["_starts_at"] <= self.clock.now:
            raise conflict("departure_started", "The departure has started.")
        if departure["_closes_at"] <= self.clock.now:
            raise conflict("departure_closed", "Booking of this departure has closed.")

    def guest_lines(
        self, departure: Row, request: BookingOrder | BookingPartyChange, problems: list[Refusal]
    ) -> tuple[list[Row], int]:
        """Return the lines of tiers that are offered, and their seats; add a refusal for each other line."""
        tiers = {tier["id"]: tier for tier in departure["_tiers"]}
        lines, seats = [], 0
        for number, line in enumerate(request.guests):
            tier = tiers.get(line.tier_id)
            if tier is None:
                message = f"The experience has no such price tier; it has {', '.join(sorted(tiers))}."
                problems.append(unprocessable(f"guests.{number}.tier_id", message, "unknown_tier"))
                continue
            lines.append(
                resource_fields(
                    GuestLine,
                    tier_id=line.tier_id,
                    tier_label=tier["name"],
                    count=line.count,
                    unit_price=tier["price"],
                )
            )
            seats += line.count * int(tier["seats_per_unit"])
        return lines, seats

    def add_on_lines(
        self, experience: Row, request: BookingOrder | BookingPartyChange, problems: list[Refusal]
    ) -> list[Row]:
        """Return the lines of add-ons that are offered; add a refusal for each other line."""
        if request.add_ons and not self.add_ons_app:
            problems.append(unprocessable("add_ons", "The Add-ons app is off.", "add_ons_app_disabled"))
            return []
        known = {add_on["id"]: add_on for add_on in experience["_add_ons"]}
        lines = []
        for number, line in enumerate(request.add_ons or ()):
            add_on = known.get(line.id)
            if add_on is None:
                message = "is not an add-on of the experience"
                problems.append(unprocessable(f"add_ons.{number}.id", message, "unknown_add_on"))
                continue
            lines.append(
                resource_fields(
                    AddOnLine, id=line.id, label=add_on["label"], count=line.count, unit_price=add_on["price"]
                )
            )
        return lines

    def _booking(
        self,
        request: BookingCreate,
        experience: Row,
        departure: Row,
        guests: list[Row],
        add_ons: list[Row],
        customer: Row,
    ) -> Row:
        currency = guests[0]["unit_price"]["currency"]
        total = sum(line["count"] * line["unit_price"]["amount_minor"] for line in (*guests, *add_ons))
        booking_id = new_id()
        return resource_fields(
            Booking,
            id=booking_id,
            booking_number=len(self.bookings) + 1,
            status="confirmed",
            source="api",
            created_at=self.now,
            updated_at=self.now,
            experience=select_fields(BookedExperience, experience),
            departure=select_fields(BookedDeparture, departure),
            customer=customer,
            guests=guests,
            add_ons=add_ons,
            totals=totals_fields(total, currency),
            payment=_PAYMENTS[request.payment] if total else _FREE,
            note=request.note or None,
            checked_in_at=None,
            no_show_at=None,
            external_reference=request.external_reference,
            metadata=request.metadata or {},
            locale=request.locale,
            manage_url=f"https://fake.example.com/manage/{booking_id}",
        )

    def attend(self, booking_id: str, field: str, other: str, undo: bool) -> Row:
        """Set the time of a check-in or a no-show and clear that of the other; or clear it."""
        row = self.get(self.bookings, booking_id)
        if not undo and row["status"] != "confirmed":
            raise conflict(f"booking_{row['status']}", f"The booking is {row['status']}.")
        before = {name: row[name] for name in (field, other)}
        after = {**before, field: None} if undo else {field: row[field] or self.now, other: None}
        if after != before:
            self.update("booking.updated", row, after)
        return row

    def manifest(self, departure: Row) -> Row:
        """Return the manifest of a departure. What is paid later in the fake is unpaid."""
        of = [row for row in self.bookings.values() if row["departure"]["id"] == departure["id"]]
        found = sorted(
            (row for row in of if row["status"] != "cancelled"),
            key=lambda row: (row["customer"]["name"].casefold(), row["booking_number"]),
        )
        data = [shown(row) | {"manage_url": None, "unpaid": _unpaid(row)} for row in found]
        counts = {status: sum(row["status"] == status for row in of) for status in BookingStatus}
        experience = select_fields(BookedExperience, self.experiences[departure["experience_id"]])
        sold = sum(row["_seats"] for row in found)
        more = {"experience": experience, "seats_sold": sold, "bookings": counts, "is_being_cancelled": False}
        return {
            "departure": shown(self.seats_shown(departure)) | more,
            "totals": _manifest_totals(data),
            "data": data,
        }

    def cancellation_terms(self, row: Row) -> Row:
        """Return the terms of a cancellation: up to a day before the start, what a card has paid is refunded."""
        totals, is_live = row["totals"], row["status"] != "cancelled"
        nothing = resource_fields(Money, amount_minor=0, currency=totals["total"]["currency"])
        return resource_fields(
            CancellationTerms,
            allowed=is_live,
            refundable_amount=totals["total"] if self.refundable(row) else nothing,
            gift_card_amount=totals["gift_card"] if is_live else nothing,
            until=self.at(_cancellable_until(row)),
            late_percent=0,
        )

    def cancel(self, booking_id: str, reason: str = "api", *, is_refunded: bool = True) -> Row:
        """Cancel a booking and write its events. A cancelled booking stays unchanged.

        Args:
            is_refunded: a card payment is refunded by the policy.
        """
        row = self.get(self.bookings, booking_id)
        if row["status"] != "cancelled":
            refundable = self.refundable(row)
            self.change(row, status="cancelled")
            self.publish("booking.cancelled", row, reason=reason)
            self.on_cancel(row, is_refunded and refundable)
        return row

    def refundable(self, row: Row) -> bool:
        """Return whether a cancellation now refunds the payment by card."""
        is_paid = row["payment"]["method"] == "card" and row["payment"]["status"] == "paid"
        return is_paid and row["status"] != "cancelled" and self.clock.now <= _cancellable_until(row)

    # Customers -----------------------------------------------------------------------------------------------------

    def find_or_create_customer(
        self, name: str, email: str, phone: str | None, subscribed: bool = False
    ) -> tuple[Row, bool]:
        """Return the customer with this e-mail address, and True when it was created."""
        identity = email_key(email)
        for row in self.customers.values():
            if row["_identity"] == identity:
                return row, False
        fields = resource_fields(
            Customer,
            id=new_id(),
            name=name,
            email=email,
            phone=phone,
            email_subscription=subscribed,
            created_at=self.now,
        )
        row = self.keep(self.customers, fields)
        row["_identity"] = identity
        self.publish("customer.created", row)
        return row, True

    def customer_of(self, email: str) -> str | None:
        """Return the id of the customer with this e-mail address."""
        identity = email_key(email.strip())
        return next((row["id"] for row in self.customers.values() if row["_identity"] == identity), None)

    def create_customer(self, request: CustomerCreate) -> tuple[Row, bool]:
        return self.find_or_create_customer(
            request.name, request.email, request.phone or None, bool(request.email_subscription)
        )

    # Events --------------------------------------------------------------------------------------------------------

    def update(self, event_type: str, row: Row, values: Mapping[str, Any], **data: Any) -> Row:
        """Change fields of a resource, and append an event with their former values."""
        changes = {name: row[name] for name, value in values.items() if row[name] != value}
        self.change(row, **values)
        return self.publish(event_type, row, **data, changes=changes)

    def publish(self, event_type: str, about: Row, *, resource_type: str | None = None, **data: Any) -> Row:
        """Append an event with the current state of a resource to the feed."""
        resource = resource_type or event_type.partition(".")[0]
        body = shown(about)
        if "manage_url" in body:
            body["manage_url"] = None
        event = resource_fields(
            Event,
            id=new_id(),
            type=event_type,
            created_at=self.now,
            api_version=API_VERSION,
            sequence=len(self.events) + 1,
            data={"object": body, **data},
            resource_type=resource,
            resource_id=None if event_type == "ping" else body.get("id"),
        )
        # A deep copy through JSON: later changes of the resource must not change the event.
        row = self.keep(self.events, json.loads(json.dumps(event)))
        for act in (self.on_event, *self.on_publish):
            act(row)
        return row
