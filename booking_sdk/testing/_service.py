"""The request handling of the fake: the service's order of checks, and its operations."""

import hashlib
import json
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from booking_core.models.base import is_id
from booking_core.models.bookings import (
    BookingAttendance,
    BookingCancel,
    BookingCreate,
    BookingPartyChange,
    BookingQuoteRequest,
    BookingReschedule,
    BookingStatus,
    RefundMode,
)
from booking_core.models.checkouts import CheckoutCreate
from booking_core.models.customers import CustomerCreate
from booking_core.models.gift_cards import GiftCardStatus
from booking_core.models.holds import HoldCreate
from booking_core.models.limits import IDEMPOTENCY_KEY_LENGTH_MAX as KEY_MAX
from booking_core.models.limits import IDEMPOTENCY_KEY_LENGTH_MIN as KEY_MIN
from booking_core.models.limits import REQUEST_BODY_BYTES_MAX, TEST_API_KEY_DISPLAY_LENGTH, WINDOW_DAYS_MAX
from booking_core.models.organizations import ApiKey, Me
from booking_core.models.sandbox import SandboxCheckoutPay, SandboxClockAdvance
from booking_core.models.scopes import Scope
from booking_core.models.webhooks import (
    DeliveryRecover,
    DeliveryRedeliver,
    SecretRotate,
    WebhookEndpointChange,
    WebhookEndpointCreate,
)
from booking_sdk.response import Response
from booking_sdk.testing import _changes, _events, _party, _quotes, _sandbox
from booking_sdk.testing._announcements import TYPE, Announcements
from booking_sdk.testing._checkouts import Checkouts
from booking_sdk.testing._http import (
    FakeRequest,
    Query,
    Refusal,
    json_response,
    malformed,
    not_found,
    refused,
    validated,
)
from booking_sdk.testing._store import Row, Store, shown
from booking_sdk.testing._webhooks import Webhooks
from booking_sdk.testing.factories import resource_fields


@dataclass(slots=True)
class Key:
    """An API key."""

    id: str
    scopes: frozenset[str]
    created_at: datetime
    revoked: bool = False


@dataclass(frozen=True, slots=True)
class _Call:
    """A request that passed the checks common to all operations."""

    request: FakeRequest
    request_id: str
    ids: tuple[str, ...]
    query: Query
    key: Key


class FakeService:
    """The API of one organization."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.webhooks = Webhooks(store)
        self.checkouts = Checkouts(store)
        self.sandbox = _sandbox.Sandbox(store)
        self.announcements = Announcements(store)
        self.keys: dict[str, Key] = {}
        self._answers: dict[str, tuple[str, Response]] = {}

    def work(self) -> None:
        """Do what the worker of the service would have done by now."""
        self.checkouts.abandon_expired()
        self.checkouts.refund()
        endpoints = self.webhooks.endpoints.values()
        self.announcements.announce(is_wanted=any(TYPE in endpoint["event_types"] for endpoint in endpoints))

    def respond(self, request: FakeRequest) -> Response:
        """Return the response to a request."""
        request_id = request.headers.get("x-request-id") or f"req_{secrets.token_hex(12)}"
        try:
            response = self._execute(request, request_id)
        except Refusal as refusal:
            response = refused(refusal, request_id)
        self.work()
        if request.method == "GET" and response.is_success and _TAGGED.fullmatch(request.path):
            response = _tagged(request, response)
        pairs = [*response.raw_headers, (b"x-request-id", request_id.encode())]
        return Response(response.status_code, pairs, response.body)

    def _execute(self, request: FakeRequest, request_id: str) -> Response:
        operation, ids = _route(request)
        self.work()
        key = self._authenticate(request)
        if operation.scope and operation.scope not in key.scopes:
            message = f"The API key lacks the scope {operation.scope}."
            raise Refusal(403, "insufficient_scope", message, required_scope=operation.scope)
        idempotency_key = _idempotency_key(request, operation.key) if operation.key else None
        if any(not is_id(one) for one in ids):
            raise not_found()
        _check_body(request)
        call = _Call(request, request_id, ids, Query(request.query, self.store.zone), key)
        if idempotency_key is None:
            return operation.act(self, call)
        if operation.body:
            validated(operation.body, request.body)
        return self._once(idempotency_key, call, operation.act)

    def _authenticate(self, request: FakeRequest) -> Key:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Refusal(401, "api_key_missing", "Send the API key as 'Authorization: Bearer <API_KEY>'.")
        key = self.keys.get(token)
        if key is None:
            raise Refusal(401, "api_key_invalid", "This is not a known API key.")
        if key.revoked:
            raise Refusal(401, "api_key_revoked", "This API key was revoked.")
        return key

    def _once(self, key: str, call: _Call, act: "_Act") -> Response:
        """Execute a request once for its Idempotency-Key; replay the stored response after that."""
        value = json.dumps(call.request.json or {}, sort_keys=True)
        fingerprint = hashlib.sha256(f"{call.request.method} {call.request.path}\n{value}".encode()).hexdigest()
        if key in self._answers:
            before, stored = self._answers[key]
            if before != fingerprint:
                message = "This Idempotency-Key was used with a different request."
                raise Refusal(422, "idempotency_key_reused", message)
            return Response(stored.status_code, [*stored.raw_headers, (b"idempotent-replayed", b"true")], stored.body)
        try:
            response = act(self, call)
        except Refusal as refusal:
            if not refusal.is_stored:
                raise
            response = refused(refusal, call.request_id)
        self._answers[key] = fingerprint, response
        return response

    # The operations ------------------------------------------------------------------------------------------------

    def _me(self, call: _Call) -> Response:
        key = resource_fields(
            ApiKey,
            id=call.key.id,
            name="test",
            prefix=next(text for text, key in self.keys.items() if key is call.key)[:TEST_API_KEY_DISPLAY_LENGTH],
            scopes=sorted(call.key.scopes),
            created_at=self.store.at(call.key.created_at),
            expires_at=None,
            last_used_at=None,
        )
        return _ok(resource_fields(Me, organization=self.store.organization, key=key))

    def _list_experiences(self, call: _Call) -> Response:
        published, since = call.query.flag("published"), call.query.instant("updated_since")
        rows = [row for row in self.store.experiences.values() if published in (None, row["is_published"])]
        rows = [self.store.experience_shown(row) for row in rows]
        return self._listed("experiences", rows, call, published=published, updated_since=since)

    def _get_experience(self, call: _Call) -> Response:
        return _ok(self.store.experience_shown(self.store.get(self.store.experiences, call.ids[0])))

    def _availability(self, call: _Call) -> Response:
        return _ok_page(self.store.available(call.query))

    def _list_departures(self, call: _Call) -> Response:
        return _ok_page(self.store.available_on(call.query))

    def _get_departure(self, call: _Call) -> Response:
        return _ok(self.store.seats_shown(self.store.get(self.store.departures, call.ids[0])))

    def _list_bookings(self, call: _Call) -> Response:
        query = call.query
        status, experience_id = query.choice("status", BookingStatus), query.uuid("experience_id")
        first, last, since = query.day("departure_from"), query.day("departure_to"), query.instant("updated_since")
        departure_id, customer_id = query.uuid("departure_id"), query.uuid("customer_id")
        number, email = query.number("booking_number"), query.text("email")
        reference = query.text("external_reference")
        owner = None if email is None else self.store.customer_of(email.replace(" ", "+"))
        rows = [
            self._read(row, call)
            for row in self.store.bookings.values()
            if status in (None, row["status"])
            and experience_id in (None, row["experience"]["id"])
            and departure_id in (None, row["departure"]["id"])
            and customer_id in (None, row["_customer_id"])
            and number in (None, row["booking_number"])
            and reference in (None, row["external_reference"])
            and (email is None or owner == row["_customer_id"])
        ]
        if first or last:
            start, end = self.store.window(*_complete_window(first, last), "departure_to")
            rows = [row for row in rows if start <= datetime.fromisoformat(row["departure"]["starts_at"]) < end]
        filters: dict[str, Any] = {"status": status, "experience_id": experience_id, "first": first, "last": last}
        filters |= {"departure_id": departure_id, "customer_id": customer_id, "number": number, "email": owner}
        filters |= {"external_reference": reference}
        return self._listed("bookings", rows, call, **filters, updated_since=since)

    def _get_booking(self, call: _Call) -> Response:
        row = self.store.get(self.store.bookings, call.ids[0])
        return _ok(self._read(row, call))

    def _visible(self, row: Row, call: _Call) -> Row:
        """Return a booking with its `manage_url` only for keys with `bookings:write`, until the departure has ended."""
        is_over = datetime.fromisoformat(row["departure"]["ends_at"]) <= self.store.clock.now
        return row if Scope.BOOKINGS_WRITE in call.key.scopes and not is_over else {**row, "manage_url": None}

    def _read(self, row: Row, call: _Call) -> Row:
        """Return a booking as it is read, with the terms of a cancellation."""
        return {**self._visible(row, call), "cancellation": self.store.cancellation_terms(row)}

    def _create_booking(self, call: _Call) -> Response:
        return _ok(self.store.create_booking(validated(BookingCreate, call.request.body)), 201)

    def _quote_booking(self, call: _Call) -> Response:
        return _ok(_quotes.quote(self.store, validated(BookingQuoteRequest, call.request.body)))

    def _create_hold(self, call: _Call) -> Response:
        hold = _quotes.create_hold(self.store, validated(HoldCreate, call.request.body))
        self.announcements.touch(hold["departure_id"])
        return _ok(hold, 201)

    def _get_hold(self, call: _Call) -> Response:
        return _ok(_quotes.get_hold(self.store, call.ids[0]))

    def _delete_hold(self, call: _Call) -> Response:
        hold = self.store.get(self.store.holds.rows, call.ids[0])
        self.store.holds.release(hold)
        self.announcements.touch(hold["departure_id"])
        return json_response(204, None)

    def _cancel_booking(self, call: _Call) -> Response:
        is_refunded = validated(BookingCancel, call.request.body).refund != RefundMode.NONE
        return _ok(self._visible(self.store.cancel(call.ids[0], is_refunded=is_refunded), call))

    def _reschedule(self, call: _Call) -> Response:
        body = validated(BookingReschedule, call.request.body)
        return self._changed(_changes.reschedule(self.store, call.ids[0], body.departure_id), call)

    def _preview_reschedule(self, call: _Call) -> Response:
        body = validated(BookingReschedule, call.request.body)
        return self._changed(_changes.preview_reschedule(self.store, call.ids[0], body.departure_id), call)

    def _change_party(self, call: _Call) -> Response:
        body = validated(BookingPartyChange, call.request.body)
        return self._changed(_party.change_party(self.store, call.ids[0], body), call)

    def _preview_party(self, call: _Call) -> Response:
        body = validated(BookingPartyChange, call.request.body)
        return self._changed(_party.preview_party(self.store, call.ids[0], body), call)

    def _changed(self, change: Row, call: _Call) -> Response:
        return _ok({**change, "booking": shown(self._visible(change["booking"], call))})

    def _check_in(self, call: _Call) -> Response:
        body = validated(BookingAttendance, call.request.body)
        return _ok(self._visible(self.store.attend(call.ids[0], "checked_in_at", "no_show_at", bool(body.undo)), call))

    def _no_show(self, call: _Call) -> Response:
        body = validated(BookingAttendance, call.request.body)
        return _ok(self._visible(self.store.attend(call.ids[0], "no_show_at", "checked_in_at", bool(body.undo)), call))

    def _get_manifest(self, call: _Call) -> Response:
        return _ok(self.store.manifest(self.store.get(self.store.departures, call.ids[0])))

    def _create_checkout(self, call: _Call) -> Response:
        return _ok(self.checkouts.create(validated(CheckoutCreate, call.request.body)), 201)

    def _get_checkout(self, call: _Call) -> Response:
        checkout = self.checkouts.get(call.ids[0])
        return _ok({**checkout, "booking": shown(self._read(self.store.bookings[call.ids[0]], call))})

    def _list_customers(self, call: _Call) -> Response:
        email = call.query.text("email")
        wanted = None if email is None else email.replace(" ", "+").casefold()
        rows = [row for row in self.store.customers.values() if wanted in (None, row["_identity"])]
        return self._listed("customers", rows, call, email=wanted)

    def _get_customer(self, call: _Call) -> Response:
        return _ok(self.store.get(self.store.customers, call.ids[0]))

    def _create_customer(self, call: _Call) -> Response:
        row, is_new = self.store.create_customer(validated(CustomerCreate, call.request.body))
        return _ok(row, 201 if is_new else 200)

    def _list_gift_cards(self, call: _Call) -> Response:
        status, since = call.query.choice("status", GiftCardStatus), call.query.instant("updated_since")
        rows = [row for row in self.store.gift_cards.values() if status in (None, row["status"])]
        return self._listed("gift_cards", rows, call, status=status, updated_since=since)

    def _get_gift_card(self, call: _Call) -> Response:
        row = self.store.get(self.store.gift_cards, call.ids[0])
        wanted = (call.query.text("include") or "").split(",")
        return _ok({**row, "code": row["_code"]} if "code" in wanted else row)

    def _list_gift_card_transactions(self, call: _Call) -> Response:
        card = self.store.get(self.store.gift_cards, call.ids[0])
        return self._listed("gift_card_transactions", card["_transactions"], call, gift_card_id=card["id"])

    def _listed(self, endpoint: str, rows: list[Row], call: _Call, **filters: Any) -> Response:
        since = filters.get("updated_since")
        found = [row for row in rows if since is None or row["_changed_at"] >= since]
        return _ok_page(self.store.page(endpoint, found, call.query, filters))

    def _list_events(self, call: _Call) -> Response:
        return _ok_page(_events.find(self.store, call.query, call.key.scopes))

    def _get_event(self, call: _Call) -> Response:
        return _ok(_events.get(self.store, call.ids[0], call.key.scopes))

    def _list_webhooks(self, _: _Call) -> Response:
        rows = list(self.webhooks.endpoints.values())[::-1]
        return _ok_page({"data": rows, "has_more": False, "next_cursor": None})

    def _create_webhook(self, call: _Call) -> Response:
        return _ok(self.webhooks.create(validated(WebhookEndpointCreate, call.request.body), call.key.scopes), 201)

    def _get_webhook(self, call: _Call) -> Response:
        return _ok(self.webhooks.get(call.ids[0]))

    def _change_webhook(self, call: _Call) -> Response:
        return _ok(
            self.webhooks.change(call.ids[0], validated(WebhookEndpointChange, call.request.body), call.key.scopes)
        )

    def _delete_webhook(self, call: _Call) -> Response:
        self.webhooks.delete(call.ids[0])
        return json_response(204, None)

    def _rotate_secret(self, call: _Call) -> Response:
        return _ok(self.webhooks.rotate(call.ids[0], validated(SecretRotate, call.request.body)))

    def _test_webhook(self, call: _Call) -> Response:
        return _ok(self.webhooks.test(call.ids[0]), 202)

    def _redeliver(self, call: _Call) -> Response:
        request = validated(DeliveryRedeliver, call.request.body)
        return _ok(self.webhooks.redeliver(call.ids[0], request, call.key.scopes), 202)

    def _recover(self, call: _Call) -> Response:
        return _ok(self.webhooks.recover(call.ids[0], validated(DeliveryRecover, call.request.body)), 202)

    def _list_deliveries(self, call: _Call) -> Response:
        return _ok_page(self.webhooks.find(call.ids[0], call.query))

    def _get_delivery(self, call: _Call) -> Response:
        return _ok(self.webhooks.delivery(*call.ids))

    def _retry_delivery(self, call: _Call) -> Response:
        return _ok(self.webhooks.retry(*call.ids), 202)

    def _get_clock(self, _: _Call) -> Response:
        return _ok(self.sandbox.clock())

    def _advance_clock(self, call: _Call) -> Response:
        return _ok(self.sandbox.advance(validated(SandboxClockAdvance, call.request.body)))

    def _pay_checkout(self, call: _Call) -> Response:
        request = validated(SandboxCheckoutPay, call.request.body or b"{}")
        paid = self.checkouts.pay_by_card(call.ids[0], request)
        checkout = paid["checkout"]
        booking = shown(self._read(self.store.bookings[call.ids[0]], call))
        return _ok({**paid, "checkout": {**checkout, "booking": booking}})

    def _list_mails(self, call: _Call) -> Response:
        return self._listed("sandbox_mails", list(self.sandbox.mails.values()), call)


_Act = Callable[[FakeService, _Call], Response]


@dataclass(frozen=True, slots=True)
class _Operation:
    method: str
    path: re.Pattern[str]
    act: _Act
    scope: str | None
    key: str | None
    body: Any


def _op(
    method: str, path: str, act: _Act, scope: str | None = None, key: str | None = None, body: Any = None
) -> _Operation:
    pattern = re.compile("/api/v1" + path.replace("{id}", "([^/]+)"))
    return _Operation(method, pattern, act, scope, key, body)


_S = FakeService
_MANAGE = Scope.WEBHOOKS_MANAGE
_HOOK, _DELIVERY = "/webhooks/{id}", "/webhooks/{id}/deliveries/{id}"
_OPERATIONS = (
    _op("GET", "/me", _S._me),
    _op("GET", "/experiences", _S._list_experiences, Scope.EXPERIENCES_READ),
    _op("GET", "/experiences/{id}", _S._get_experience, Scope.EXPERIENCES_READ),
    _op("GET", "/availability", _S._availability, Scope.AVAILABILITY_READ),
    _op("GET", "/departures", _S._list_departures, Scope.AVAILABILITY_READ),
    _op("GET", "/departures/{id}", _S._get_departure, Scope.AVAILABILITY_READ),
    _op("GET", "/bookings", _S._list_bookings, Scope.BOOKINGS_READ),
    _op("GET", "/bookings/{id}", _S._get_booking, Scope.BOOKINGS_READ),
    _op("POST", "/bookings", _S._create_booking, Scope.BOOKINGS_WRITE, "required", BookingCreate),
    _op("POST", "/bookings/quote", _S._quote_booking, Scope.BOOKINGS_WRITE),
    _op("POST", "/holds", _S._create_hold, Scope.BOOKINGS_WRITE, "required", HoldCreate),
    _op("GET", "/holds/{id}", _S._get_hold, Scope.BOOKINGS_READ),
    _op("DELETE", "/holds/{id}", _S._delete_hold, Scope.BOOKINGS_WRITE),
    _op("POST", "/bookings/{id}/cancel", _S._cancel_booking, Scope.BOOKINGS_WRITE, "required", BookingCancel),
    _op("POST", "/bookings/{id}/reschedule", _S._reschedule, Scope.BOOKINGS_WRITE, "required", BookingReschedule),
    _op("POST", "/bookings/{id}/reschedule/preview", _S._preview_reschedule, Scope.BOOKINGS_WRITE),
    _op("POST", "/bookings/{id}/party", _S._change_party, Scope.BOOKINGS_WRITE, "required", BookingPartyChange),
    _op("POST", "/bookings/{id}/party/preview", _S._preview_party, Scope.BOOKINGS_WRITE),
    _op("POST", "/bookings/{id}/check-in", _S._check_in, Scope.BOOKINGS_WRITE, "optional", BookingAttendance),
    _op("POST", "/bookings/{id}/no-show", _S._no_show, Scope.BOOKINGS_WRITE, "optional", BookingAttendance),
    _op("GET", "/departures/{id}/manifest", _S._get_manifest, Scope.BOOKINGS_READ),
    _op("POST", "/checkouts", _S._create_checkout, Scope.CHECKOUTS_WRITE, "required", CheckoutCreate),
    _op("GET", "/checkouts/{id}", _S._get_checkout, Scope.CHECKOUTS_WRITE),
    _op("GET", "/customers", _S._list_customers, Scope.CUSTOMERS_READ),
    _op("GET", "/customers/{id}", _S._get_customer, Scope.CUSTOMERS_READ),
    _op("POST", "/customers", _S._create_customer, Scope.CUSTOMERS_WRITE, "optional", CustomerCreate),
    _op("GET", "/gift-cards", _S._list_gift_cards, Scope.GIFT_CARDS_READ),
    _op("GET", "/gift-cards/{id}", _S._get_gift_card, Scope.GIFT_CARDS_READ),
    _op("GET", "/gift-cards/{id}/transactions", _S._list_gift_card_transactions, Scope.GIFT_CARDS_READ),
    _op("GET", "/events", _S._list_events),
    _op("GET", "/events/{id}", _S._get_event),
    _op("GET", "/webhooks", _S._list_webhooks, _MANAGE),
    _op("POST", "/webhooks", _S._create_webhook, _MANAGE),
    _op("GET", _HOOK, _S._get_webhook, _MANAGE),
    _op("PATCH", _HOOK, _S._change_webhook, _MANAGE),
    _op("DELETE", _HOOK, _S._delete_webhook, _MANAGE),
    _op("POST", f"{_HOOK}/rotate-secret", _S._rotate_secret, _MANAGE),
    _op("POST", f"{_HOOK}/test", _S._test_webhook, _MANAGE),
    _op("POST", f"{_HOOK}/recover", _S._recover, _MANAGE),
    _op("POST", f"{_HOOK}/redeliver", _S._redeliver, _MANAGE),
    _op("GET", f"{_HOOK}/deliveries", _S._list_deliveries, _MANAGE),
    _op("GET", _DELIVERY, _S._get_delivery, _MANAGE),
    _op("POST", f"{_DELIVERY}/retry", _S._retry_delivery, _MANAGE),
    _op("GET", "/sandbox/clock", _S._get_clock),
    _op("POST", "/sandbox/clock/advance", _S._advance_clock, Scope.BOOKINGS_WRITE, "optional", SandboxClockAdvance),
    _op("POST", "/sandbox/checkouts/{id}/pay", _S._pay_checkout, Scope.CHECKOUTS_WRITE, "optional", SandboxCheckoutPay),
    _op("GET", "/sandbox/mails", _S._list_mails, Scope.BOOKINGS_WRITE),
)


def _complete_window(first: date | None, last: date | None) -> tuple[date, date]:
    """Complete a window with one open end: the other end is as far away as the service permits."""
    days = timedelta(days=WINDOW_DAYS_MAX)
    if first is None:
        assert last is not None, "one of the two is given"
        return last - days, last
    return first, last or first + days


def _route(request: FakeRequest) -> tuple[_Operation, tuple[str, ...]]:
    """Return the operation of a request and the ids in its path.

    Raises:
        Refusal: No operation has this path (404) or this method (405).
    """
    at_path = [
        (operation, found.groups()) for operation in _OPERATIONS if (found := operation.path.fullmatch(request.path))
    ]
    for operation, ids in at_path:
        if operation.method == request.method:
            return operation, ids
    if not at_path:
        raise Refusal(404, "not_found", "There is no such path.")
    headers = {"allow": ", ".join(sorted(operation.method for operation, _ in at_path))}
    raise Refusal(405, "method_not_allowed", "This path does not take that method.", headers=headers)


def _idempotency_key(request: FakeRequest, need: str) -> str | None:
    key = request.idempotency_key
    if not key:
        if need == "required":
            raise Refusal(400, "idempotency_key_required", "This endpoint needs an Idempotency-Key header.")
        return None
    if not KEY_MIN <= len(key) <= KEY_MAX:
        raise malformed("Idempotency-Key", f"must be {KEY_MIN} to {KEY_MAX} characters long", "length")
    return key


def _check_body(request: FakeRequest) -> None:
    if len(request.body) > REQUEST_BODY_BYTES_MAX:
        raise Refusal(413, "payload_too_large", "The request body is larger than 256 KiB.")
    try:
        value = request.json
    except ValueError:
        value = ""
    if not isinstance(value, (dict, type(None))):
        raise Refusal(400, "validation_failed", "The body must be a JSON object.")


_TAGGED = re.compile(
    "/api/v1/(experiences|availability|departures"
    "|(experiences|departures|bookings|checkouts|holds|customers|gift-cards|events)/[^/]+)"
)
"""The paths whose responses have an ETag."""


def _tagged(request: FakeRequest, response: Response) -> Response:
    """Return the response with its ETag; 304 if the request has it."""
    etag = f'"{hashlib.sha256(response.body).hexdigest()[:32]}"'
    sent = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    if etag in sent or "*" in sent:
        return Response(304, [(b"etag", etag.encode())])
    return Response(response.status_code, [*response.raw_headers, (b"etag", etag.encode())], response.body)


def _ok(row: Row, status: int = 200) -> Response:
    return json_response(status, shown(row))


def _ok_page(page: Row) -> Response:
    return _ok({**page, "data": [shown(row) for row in page["data"]]})
