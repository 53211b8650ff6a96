"""OCTO's bookings: reservations that become bookings, and the bookings of other channels under their own ids.

A reservation holds the seats of a party; its confirmation books it. Each verb runs in one transaction, and answers with
the booking as it is then.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

import orjson

from booking_core import bookings
from booking_core.base import tokens
from booking_core.base.context import Caller
from booking_core.base.errors import Conflict, IdempotencyKeyReused, Malformed, NotFound, Unprocessable
from booking_core.bookings import Party, reservations, storefront
from booking_core.bookings.reservations import Reservation
from booking_core.bookings.storefront import CheckoutRequest
from booking_core.catalogue import departures
from booking_core.db.engine import Tx
from booking_core.db.paging import every_row
from booking_core.models.base import LANGUAGE_TAG_PATTERN, is_id
from booking_core.models.bookings import (
    BookingGuestChange,
    BookingSource,
    BookingStatus,
    CancelReason,
    GuestInput,
    GuestLineInput,
    PaymentMode,
)
from booking_core.models.holds import HoldCreate, HoldStatus
from booking_core.models.json import JsonObject
from booking_core.models.limits import HOLD_S_DEFAULT, HOLD_S_MAX, LANGUAGE_TAG_LENGTH_MAX
from booking_core.models.pages import Order
from booking_server.fastapi_ext.requests import validate
from booking_server.octo import catalogue, views
from booking_server.octo.errors import InvalidId
from booking_server.octo.models import (
    BookingsQuery,
    CancellationBody,
    ConfirmationBody,
    ExtendBody,
    OctoRequest,
    OrderBody,
    ReservationBody,
    UnitItem,
    UpdateBody,
)

_TAG = re.compile(LANGUAGE_TAG_PATTERN)

# Reading -------------------------------------------------------------------------------------------------------------


def get(tx: Tx, caller: Caller, uuid: str, capabilities: frozenset[str]) -> JsonObject:
    """Return a reservation or a booking.

    Raises:
        InvalidId: nothing has this id.
    """
    return _show(tx, caller, uuid, reservations.find(tx, caller, uuid), capabilities)


def _show(
    tx: Tx, caller: Caller, uuid: str, reservation: Reservation | None, capabilities: frozenset[str]
) -> JsonObject:
    with _refusing_missing(uuid):
        if reservation is not None and reservation.booking_id is None:
            hold = storefront.get_hold(tx, caller, reservation.hold_id)
            departure = departures.get(tx, caller, hold["departure_id"])
            return views.present_reservation(caller, reservation, hold, departure, capabilities)
        booking = bookings.get(tx, caller, _booking_id(uuid, reservation))
        return _show_bookings(tx, caller, [booking], capabilities)[0]


@contextmanager
def _refusing_missing(uuid: str) -> Iterator[None]:
    """Refuse an id if nothing has it, or only a reservation whose hold has expired, as the standard does."""
    try:
        yield
    except InvalidId:
        raise
    except (NotFound, Conflict) as error:
        if isinstance(error, Conflict) and error.reason != "hold_expired":
            raise
        raise InvalidId("uuid", uuid) from None


def _booking_id(uuid: str, reservation: Reservation | None) -> str:
    """Return the id of a booking, which is its uuid if it was not reserved."""
    return (reservation and reservation.booking_id) or uuid


def _show_bookings(
    tx: Tx, caller: Caller, rows: Sequence[JsonObject], capabilities: frozenset[str]
) -> list[JsonObject]:
    """Present bookings, under the ids of their reservations where they have them."""
    plain = _plain(rows)
    reserved = reservations.of_bookings(tx, caller, [booking["id"] for booking in plain])
    return [views.present_booking(caller, booking, *reserved[booking["id"]], capabilities) for booking in plain]


def _plain(rows: Sequence[JsonObject]) -> list[JsonObject]:
    """Return bookings without JSON text: the API shows some of their parts as they are stored."""
    plain: list[JsonObject] = orjson.loads(orjson.dumps(rows))
    return plain


def find(tx: Tx, caller: Caller, query: BookingsQuery, capabilities: frozenset[str]) -> list[JsonObject]:
    """Return bookings by a reference or by their local day, the newest first.

    Raises:
        Malformed: no filter is given, or both a day and a window.
        InvalidId: the product or the option is of no form that one has.
        Unprocessable: the window is reversed, or wider than 92 days.
    """
    first, last = query.localDate or query.localDateStart, query.localDate or query.localDateEnd
    if not (query.resellerReference or query.supplierReference or first or last):
        raise Malformed("The list needs resellerReference, supplierReference, or a local date.")
    if query.localDate and (query.localDateStart or query.localDateEnd):
        raise Malformed("The list takes localDate, or localDateStart and localDateEnd.")
    if query.productId is not None and not is_id(query.productId):
        raise InvalidId("productId", query.productId)
    if query.optionId not in (None, catalogue.OPTION_ID):
        raise InvalidId("optionId", query.optionId)
    number = None if query.supplierReference is None else bookings.parse_number(query.supplierReference)
    if query.supplierReference is not None and number is None:
        return []
    filters = bookings.BookingConditions(
        experience_id=query.productId and query.productId.lower(),
        departure_from=first,
        departure_to=last,
        number=number,
        external_reference=query.resellerReference,
    )
    rows = every_row(lambda page: bookings.find(tx, caller, page, filters), Order.DESC)
    return _show_bookings(tx, caller, list(islice(rows, _LIST_MAX)), capabilities)


_LIST_MAX = 1_000
"""The bookings of a list: the standard's list has no pages."""


# Reserving -----------------------------------------------------------------------------------------------------------


def reserve(tx: Tx, caller: Caller, uuid: str, body: ReservationBody, capabilities: frozenset[str]) -> JsonObject:
    """Hold the seats of an order. The same request with the same uuid is answered with the same booking.

    Raises:
        InvalidId: there is no such product, option, availability or unit; or another order has the uuid.
        BookingError: as `storefront.create_hold`.
    """
    fingerprint = tokens.sha256_hex(body.model_dump_json().encode())
    try:
        reservation = reservations.claim(tx, caller, uuid, fingerprint)
    except IdempotencyKeyReused:
        raise InvalidId("uuid", uuid) from None
    if reservation is not None:
        return _show(tx, caller, uuid, reservation, capabilities)
    departure = catalogue.get_departure(tx, caller, body.product_id, body.option_id, body.availability_id)
    guests = catalogue.guests_of(departure, body.unit_items)
    seconds = _seconds(body.expiration_minutes) or HOLD_S_DEFAULT
    request = HoldCreate(departure_id=departure["id"], guests=guests, expires_in_seconds=seconds)
    reservation, hold = reservations.reserve(tx, caller, uuid, fingerprint, request, _words(body, {}))
    return views.present_reservation(caller, reservation, hold, departure, capabilities)


def _seconds(minutes: int | None) -> int | None:
    """Return a duration in seconds, which a hold can have at most."""
    return None if minutes is None else min(60 * minutes, HOLD_S_MAX)


def _words(body: OrderBody | ConfirmationBody, before: JsonObject) -> JsonObject:
    """Return the details of a reservation after a request: the fields that it sends, and the others as before."""
    sent = _dumped(body)
    words = before | {name: sent[name] for name in ("resellerReference", "contact", "notes") if name in sent}
    if body.unit_items is not None:
        words["unitItems"] = _items(body.unit_items, before.get("unitItems") or ())
    return words


def _dumped(body: OctoRequest) -> JsonObject:
    """Return the fields of a body that were sent, by their names in the standard."""
    return body.model_dump(by_alias=True, exclude_none=True)


def _items(items: Sequence[UnitItem], before: Sequence[JsonObject]) -> list[JsonObject]:
    """Return unit items with their uuids. An item that repeats the uuid of one before keeps its other fields.

    An item without a uuid gets one of its unit from before, so that a repeated request has the same result.
    """
    by_uuid = {item["uuid"]: item for item in before}
    repeated = {item.uuid for item in items}
    unused = defaultdict(list)
    for item in before:
        if item["uuid"] not in repeated:
            unused[item["unitId"]].append(item["uuid"])

    def merge(item: UnitItem) -> JsonObject:
        if item.uuid:
            return by_uuid.get(item.uuid, {}) | _dumped(item)
        uuids = unused[item.unit_id]
        return _dumped(item) | {"uuid": uuids.pop(0) if uuids else tokens.new_id()}

    return [merge(item) for item in items]


# Confirming ----------------------------------------------------------------------------------------------------------


def confirm(tx: Tx, caller: Caller, uuid: str, body: ConfirmationBody, capabilities: frozenset[str]) -> JsonObject:
    """Book a reservation. A booking is answered unchanged, so a retry is safe.

    Raises:
        InvalidId: nothing has this id, or its hold has expired.
        Malformed: the contact has no name, or an invalid e-mail address.
        BookingError: as `storefront.check_out`.
    """
    reservation = reservations.lock(tx, caller, uuid)
    if reservation is None or reservation.booking_id is not None:
        booked = _show(tx, caller, uuid, reservation, capabilities)
        if booked["status"] == "CANCELLED":
            raise _cancelled()
        return booked
    words = _words(body, reservation.words)
    with _refusing_missing(uuid):
        hold = _change_hold(tx, caller, reservation, body)
        reservation = reservations.book(tx, caller, reservation, _checkout(reservation, hold, words, body), words)
    return _show(tx, caller, uuid, reservation, capabilities)


def _cancelled() -> Conflict:
    return Conflict("booking_cancelled", "The booking is cancelled.")


def _checkout(reservation: Reservation, hold: JsonObject, words: JsonObject, body: ConfirmationBody) -> CheckoutRequest:
    """Return the order of a reservation: the reseller was paid, and sends the guest's mails unless it asks for them."""
    contact = words.get("contact") or {}
    return CheckoutRequest(
        departure_id=hold["departure_id"],
        guests=[GuestLineInput(tier_id=line["tier_id"], count=line["count"]) for line in hold["guests"]],
        customer=_guest(reservation, contact),
        has_address=contact.get("emailAddress") is not None,
        source=BookingSource.AGENCY,
        payment=PaymentMode.EXTERNAL_PAID,
        note=words.get("notes"),
        hold_id=reservation.hold_id,
        send_confirmation_email=body.email_receipt is True,
        locale=_language(contact.get("locales") or ()),
        external_reference=words.get("resellerReference"),
    )


def _guest(reservation: Reservation, contact: JsonObject) -> GuestInput:
    """Return the guest of a contact. Many resellers send no address: the record of the customer is named without."""
    return _validated(GuestInput, {"email": f"{reservation.id}@reseller.invalid"} | _guest_fields(contact))


def _guest_fields(contact: JsonObject) -> dict[str, str]:
    """Return the fields of a guest that a contact has."""
    fields = {
        "name": views.full_name(contact),
        "email": contact.get("emailAddress"),
        "phone": contact.get("phoneNumber"),
    }
    return {name: text for name, text in fields.items() if text}


_NAMES = {"name": "contact.fullName", "email": "contact.emailAddress", "phone": "contact.phoneNumber", "note": "notes"}
"""The names in the standard of the fields of a guest."""
_GuestT = TypeVar("_GuestT", GuestInput, BookingGuestChange)


def _validated(model: type[_GuestT], fields: dict[str, str]) -> _GuestT:
    """Return a guest as its model. A refusal names the field of the standard."""
    try:
        guest: _GuestT = validate(model, orjson.dumps(fields))
    except Malformed as error:
        first = error.details[0]
        raise Malformed(f"{_NAMES[first.field or 'name']}: {first.message}") from None
    return guest


def _language(locales: Sequence[str]) -> str | None:
    """Return the first of the guest's languages that can be stored."""
    return next((tag for tag in locales if len(tag) <= LANGUAGE_TAG_LENGTH_MAX and _TAG.fullmatch(tag)), None)


# Changing ------------------------------------------------------------------------------------------------------------


def update(tx: Tx, caller: Caller, uuid: str, body: UpdateBody, capabilities: frozenset[str]) -> JsonObject:
    """Change a reservation: product, date, party, contact, references. Of a booking, all but its reference.

    Raises:
        InvalidId: nothing has this id; or there is no such product, option, availability or unit.
        Unprocessable: the reference of a booking would change.
        BookingError: as the changes of a hold, or of a booking.
    """
    reservation = reservations.lock(tx, caller, uuid)
    if reservation is None or reservation.booking_id is not None:
        _update_booking(tx, caller, uuid, reservation, body)
    else:
        with _refusing_missing(uuid):
            _change_hold(tx, caller, reservation, body)
            if (seconds := _seconds(body.expiration_minutes)) is not None:
                storefront.extend_hold(tx, caller, reservation.hold_id, for_s=seconds)
    if reservation is not None and reservation.details is not None:  # null: its guest's data was erased
        words = _words(body, reservation.words)
        reservation = reservations.change_words(tx, caller, reservation, words)
    return _show(tx, caller, uuid, reservation, capabilities)


def _change_hold(tx: Tx, caller: Caller, reservation: Reservation, body: OrderBody | ConfirmationBody) -> JsonObject:
    """Hold another party or another departure, if a request has one, and return the hold, which must be live."""
    hold = storefront.get_hold(tx, caller, reservation.hold_id)
    if hold["status"] != HoldStatus.LIVE:
        storefront.require_live_hold(tx, caller, reservation.hold_id)
    departure = _departure_after(tx, caller, body, hold["departure_id"])
    before = [GuestLineInput(tier_id=line["tier_id"], count=line["count"]) for line in hold["guests"]]
    guests = before if body.unit_items is None else catalogue.guests_of(departure, body.unit_items)
    if (departure["id"], guests) == (hold["departure_id"], before):
        return hold
    return storefront.change_hold(tx, caller, reservation.hold_id, departure["id"], guests)


def _departure_after(tx: Tx, caller: Caller, body: OrderBody | ConfirmationBody, before_id: str) -> JsonObject:
    """Return the departure of an order after a request: the one that it names, or the one before."""
    before = departures.get(tx, caller, before_id)
    if not isinstance(body, OrderBody) or not body.names_departure:
        return before
    product_id, option_id = body.product_id or before["experience_id"], body.option_id or catalogue.OPTION_ID
    return catalogue.get_departure(tx, caller, product_id, option_id, body.availability_id or before["starts_at"])


def _update_booking(tx: Tx, caller: Caller, uuid: str, reservation: Reservation | None, body: UpdateBody) -> None:
    """Move a booking, change its party, and change its guest, as far as the request differs from it."""
    booking_id = _booking_id(uuid, reservation)
    with _refusing_missing(uuid):
        (booking,) = _plain([bookings.get(tx, caller, booking_id)])
    if booking["status"] == BookingStatus.CANCELLED:
        raise _cancelled()
    if body.reseller_reference not in (None, booking["external_reference"]):
        raise Unprocessable("The resellerReference of a booking cannot change.")
    before_id = booking["departure"]["id"]
    departure = _departure_after(tx, caller, body, before_id)
    bookings.lock_for_changes(tx, caller, booking_id, {before_id, departure["id"]})
    if departure["id"] != before_id:
        bookings.apply_reschedule(tx, caller, booking_id, departure["id"])
    if body.unit_items is not None:
        party = Party(guests=catalogue.guests_of(departure, body.unit_items))
        bookings.change_party(tx, caller, booking_id, party)
    if (change := _guest_change(body)) is not None:
        bookings.change_guest(tx, caller, booking_id, change)


def _guest_change(body: OrderBody) -> BookingGuestChange | None:
    fields = _guest_fields(_dumped(body.contact)) if body.contact else {}
    if body.notes is not None:
        fields["note"] = body.notes
    return _validated(BookingGuestChange, fields) if fields else None


def extend(tx: Tx, caller: Caller, uuid: str, body: ExtendBody, capabilities: frozenset[str]) -> JsonObject:
    """Hold the seats of a reservation longer.

    Raises:
        InvalidId: no reservation has this id, or its hold has expired.
        Conflict: it is booked or cancelled.
    """
    reservation = reservations.lock(tx, caller, uuid)
    if reservation is None:
        raise InvalidId("uuid", uuid)
    with _refusing_missing(uuid):
        storefront.extend_hold(tx, caller, reservation.hold_id, for_s=_seconds(body.expiration_minutes))
    return _show(tx, caller, uuid, reservation, capabilities)


def cancel(tx: Tx, caller: Caller, uuid: str, body: CancellationBody, capabilities: frozenset[str]) -> JsonObject:
    """Release a reservation, or cancel a booking. A second cancellation is answered unchanged.

    Raises:
        InvalidId: nothing has this id.
    """
    reservation = reservations.lock(tx, caller, uuid)
    if reservation is not None and reservation.booking_id is None:
        words = reservation.words | ({"reason": body.reason} if body.reason else {})
        reservation = reservations.release(tx, caller, reservation, words)
    else:
        booking_id = _booking_id(uuid, reservation)
        with _refusing_missing(uuid):
            bookings.cancel(tx, caller, booking_id, reason=CancelReason.API, note=body.reason)
    return _show(tx, caller, uuid, reservation, capabilities)
