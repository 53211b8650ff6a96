"""OCTO's bookings as they are shown: of a reservation with its hold, or of a booking of any channel."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, repeat
from typing import Any
from uuid import UUID, uuid5

from booking_core.base.clock import SECOND
from booking_core.base.context import Caller
from booking_core.bookings.reservations import Instants, Reservation
from booking_core.models.bookings import BookingStatus
from booking_core.models.holds import HoldStatus
from booking_core.models.json import JsonObject
from booking_server.octo.capabilities import PRICING
from booking_server.octo.catalogue import DELIVERY_METHODS, OPTION_ID, local_times, pricing, utc
from booking_server.octo.models import OctoContact

_CONTACT = [field.alias or name for name, field in OctoContact.model_fields.items()]
_OF_HOLDS = {HoldStatus.LIVE: "ON_HOLD", HoldStatus.RELEASED: "CANCELLED"}
_OF_BOOKINGS = {BookingStatus.PENDING: "PENDING", BookingStatus.CANCELLED: "CANCELLED"}


@dataclass(frozen=True, slots=True)
class Ticket:
    """The parts of a booking that its units show, too."""

    status: str
    number: int | None
    redeemed_at: str | None
    voucher: str | None
    """The guest's link."""

    def present(self, value: str | None) -> JsonObject:
        """Present a ticket or a voucher with that code, which only a valid booking has."""
        is_valid = self.status in ("CONFIRMED", "REDEEMED") and value is not None
        options = [{"deliveryFormat": "QRCODE", "deliveryValue": value}] if is_valid else []
        return {"redemptionMethod": "MANIFEST", "utcRedeemedAt": self.redeemed_at, "deliveryOptions": options}


def _utc(at: int | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def present_reservation(
    caller: Caller, reservation: Reservation, hold: JsonObject, departure: JsonObject, capabilities: frozenset[str]
) -> JsonObject:
    """Present a reservation that is not booked.

    Args:
        hold: as the API shows it.
        departure: of the hold, as the API shows it.
    """
    words, status = reservation.words, _OF_HOLDS.get(hold["status"], "EXPIRED")
    is_held = status != "CANCELLED"
    cancelled_at = reservation.cancelled_at or reservation.updated_at  # null: staff released the hold
    cancellation = {"refund": "FULL", "reason": words.get("reason"), "utcCancelledAt": _utc(cancelled_at)}
    return {
        "id": reservation.id,
        "uuid": reservation.id,
        "testMode": caller.organization.is_sandbox,
        "resellerReference": words.get("resellerReference"),
        "supplierReference": None,
        "status": status,
        "utcCreatedAt": _utc(reservation.created_at),
        "utcUpdatedAt": _utc(reservation.updated_at),
        "utcExpiresAt": utc(hold["expires_at"]) if is_held else None,
        "utcRedeemedAt": None,
        "utcConfirmedAt": None,
        "cancellable": status == "ON_HOLD",
        "cancellation": None if is_held else cancellation,
        **_of_departure(departure["experience_id"], departure),
        "contact": present_contact(words.get("contact")),
        "notes": words.get("notes"),
        **_units(reservation.id, hold["guests"], words, Ticket(status, None, None, None), capabilities),
        **_price(hold["totals"], capabilities),
    }


def present_booking(
    caller: Caller,
    booking: JsonObject,
    instants: Instants,
    reservation: Reservation | None,
    capabilities: frozenset[str],
) -> JsonObject:
    """Present a booking, of a reservation or of another channel.

    Args:
        booking: as the API shows it.
    """
    name, words = reservation.id if reservation else booking["id"], reservation.words if reservation else {}
    redeemed_at = booking["checked_in_at"] and utc(booking["checked_in_at"])
    status = _OF_BOOKINGS.get(booking["status"]) or ("REDEEMED" if redeemed_at else "CONFIRMED")
    ticket = Ticket(status, booking["booking_number"], redeemed_at, booking["manage_url"])
    return {
        "id": name,
        "uuid": name,
        "testMode": caller.organization.is_sandbox,
        "resellerReference": booking["external_reference"],
        "supplierReference": None if ticket.number is None else str(ticket.number),
        "status": status,
        "utcCreatedAt": _utc(reservation.created_at) if reservation else utc(booking["created_at"]),
        "utcUpdatedAt": utc(booking["updated_at"]),
        "utcExpiresAt": None,
        "utcRedeemedAt": redeemed_at,
        "utcConfirmedAt": _utc(instants.confirmed_at),
        "cancellable": booking["cancellation"]["allowed"],
        "cancellation": _cancellation(booking, instants),
        **_of_departure(booking["experience"]["id"], booking["departure"]),
        "contact": _booked_contact(booking, words.get("contact")),
        "notes": booking["note"],
        **_units(name, booking["guests"], words, ticket, capabilities),
        **_price(booking["totals"], capabilities),
    }


def _of_departure(product_id: str, departure: JsonObject) -> JsonObject:
    start = departure["starts_at"]
    times = {"id": start, **local_times(departure), "allDay": False, "openingHours": []}
    ids = {"productId": product_id, "optionId": OPTION_ID, "availabilityId": start, "availability": times}
    return {**ids, "freesale": False}


def _cancellation(booking: JsonObject, instants: Instants) -> JsonObject | None:
    """Return the cancellation, with the share of the price that the terms return at its instant."""
    if instants.cancelled_at is None:
        return None
    terms, cancelled_at = booking["cancellation"], instants.cancelled_at
    is_in_time = cancelled_at <= int(datetime.fromisoformat(terms["until"]).timestamp()) * SECOND
    refund = "FULL" if is_in_time else "PARTIAL" if terms["late_percent"] else "NONE"
    return {"refund": refund, "reason": instants.cancel_note, "utcCancelledAt": _utc(cancelled_at)}


# Contacts ------------------------------------------------------------------------------------------------------------


def present_contact(contact: Mapping[str, Any] | None) -> JsonObject:
    """Present a contact with all its fields; its full name may be made from the others."""
    presented = dict.fromkeys(_CONTACT) | dict(contact or {})
    return presented | {"fullName": full_name(presented), "locales": presented["locales"] or []}


def full_name(contact: Mapping[str, Any]) -> str | None:
    """Return the full name of a contact, or its first and its last name."""
    both = " ".join(filter(None, (contact.get("firstName"), contact.get("lastName"))))
    return contact.get("fullName") or both or None


def _booked_contact(booking: JsonObject, contact: Mapping[str, Any] | None) -> JsonObject:
    """Return the contact that the reseller sent, with the guest that the booking has now."""
    presented, guest = present_contact(contact), booking["customer"]
    if presented["fullName"] != guest["name"]:
        presented |= {"firstName": None, "lastName": None}
    return presented | {"fullName": guest["name"], "emailAddress": guest["email"], "phoneNumber": guest["phone"]}


# Units ---------------------------------------------------------------------------------------------------------------


def _units(
    name: str, lines: Sequence[JsonObject], words: JsonObject, ticket: Ticket, capabilities: frozenset[str]
) -> JsonObject:
    """Present the units of a party with the words of the reseller, and the voucher of all of them."""
    units = [
        _unit(item, line, ticket, None if ticket.number is None else f"{ticket.number}-{position}", capabilities)
        for position, (item, line) in enumerate(named_items(name, lines, words), 1)
    ]
    return {
        "deliveryMethods": DELIVERY_METHODS,
        "voucher": ticket.present(ticket.voucher),
        "unitItems": units,
    }


def _unit(
    item: JsonObject, line: JsonObject, ticket: Ticket, code: str | None, capabilities: frozenset[str]
) -> JsonObject:
    presented = {
        "uuid": item["uuid"],
        "resellerReference": item.get("resellerReference"),
        "supplierReference": code,
        "unitId": line["tier_id"],
        "status": ticket.status,
        "utcRedeemedAt": ticket.redeemed_at,
        "contact": present_contact(item.get("contact")),
        "ticket": ticket.present(code),
    }
    return presented | ({"pricing": pricing(**line["unit_price"])} if PRICING in capabilities else {})


def named_items(name: str, lines: Sequence[JsonObject], words: JsonObject) -> list[tuple[JsonObject, JsonObject]]:
    """Return an item for each unit of a party, with its line: one that the reseller sent, or else a new one."""
    sent = list(words.get("unitItems") or ())
    items: list[tuple[JsonObject, JsonObject]] = []
    for line in chain.from_iterable(repeat(line, line["count"]) for line in lines):
        item: JsonObject = next((item for item in sent if item.get("unitId") == line["tier_id"]), {})
        if item:
            sent.remove(item)
        uuid = item.get("uuid") or str(uuid5(UUID(name), str(len(items))))
        items.append((item | {"uuid": uuid}, line))
    return items


def _price(totals: JsonObject, capabilities: frozenset[str]) -> JsonObject:
    return {"pricing": pricing(**totals["total"])} if PRICING in capabilities else {}
