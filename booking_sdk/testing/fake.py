"""The service in the test's own process: methods to fill it, to make it fail, and to inspect it."""

import json
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, Unpack

import httpx

from booking_core import bookings, organizations
from booking_core.base.tokens import new_id
from booking_core.catalogue import departures
from booking_core.models.base import Resource
from booking_core.models.bookings import Booking, CancelReason
from booking_core.models.customers import Customer
from booking_core.models.departures import Departure
from booking_core.models.experiences import Experience
from booking_core.models.gift_cards import GiftCard, GiftCardTransaction
from booking_core.models.scopes import Scope
from booking_core.organizations import keys
from booking_sdk._retries import AttemptResult, Failure
from booking_sdk._sync.client import BookingClient
from booking_sdk.client import AsyncBookingClient
from booking_sdk.errors import ConflictError
from booking_sdk.models import AnyEvent
from booking_sdk.options import ClientOptions
from booking_sdk.response import Response
from booking_sdk.testing import _filling, factories
from booking_sdk.testing._requests import FakeRequest, PlannedFault, mock_transport, take_fault
from booking_sdk.testing._service import BASE_URL, InProcessService
from booking_sdk.testing.clock import ManualClock, on_clock

ResourceT = TypeVar("ResourceT", bound=Resource)

_CODES = {
    400: "validation_failed",
    401: "api_key_invalid",
    403: "insufficient_scope",
    404: "not_found",
    409: "conflict",
    422: "validation_failed",
    429: "rate_limited",
    503: "service_unavailable",
}


class FakeBookingAPI:
    """The service with one sandbox, in memory.

        api = FakeBookingAPI()
        departure = api.add_departure(seats=4)
        api.fail_next(status=503)
        my_shop.book(api.client(), departure.id)
        assert len(api.bookings) == 1

    Fill it (`add_departure`), make it fail (`fail_next`, `drop_connection_after_commit`), pass one of its clients to
    the code under test, and inspect it (`bookings`, `requests`).
    """

    base_url = BASE_URL

    def __init__(
        self,
        *,
        now: datetime | None = None,
        name: str = "Fjord Tours",
        timezone: str = "UTC",
        currency: str = "NOK",
    ) -> None:
        """Create a service with an empty sandbox.

        Args:
            now: The time of its clock. Defaults to the current time.
            name: The name of the organization.
            timezone: The timezone of the organization, by IANA name.
            currency: The currency of the organization.
        """
        self.clock: ManualClock = ManualClock((now or datetime.now(UTC)).replace(microsecond=0))
        self.requests: list[FakeRequest] = []
        """All received requests, including failed ones."""
        self._service = InProcessService(self.clock, name=name, timezone=timezone, currency=currency)
        self._key_ids: dict[str, str] = {}
        self._client_keys: dict[frozenset[str], str] = {}
        self._experiences: dict[str, dict[str, Any]] = {}
        """The entries of the catalogue, by the ids of the experiences."""
        self._starts: set[tuple[str, datetime]] = set()
        self._faults: list[PlannedFault] = []
        self._lock = threading.RLock()
        self._currency = currency
        http_client = httpx.Client(transport=mock_transport(self._service.respond))
        self._staff = on_clock(BookingClient(self.key(), base_url=self.base_url, http_client=http_client), self.clock)
        """A client whose requests do not appear in `requests`."""

    # Clients -------------------------------------------------------------------------------------------------------

    def client(self, scopes: Collection[Scope | str] | None = None, **options: Unpack[ClientOptions]) -> BookingClient:
        """Return a client. Its retry delays advance the clock of the fake.

        Args:
            scopes: The scopes of its key. Defaults to all.
            options: Options as for `with_options`.
        """
        client = BookingClient(
            self._key_of(scopes), base_url=self.base_url, http_client=httpx.Client(transport=self.transport)
        )
        return on_clock(client.with_options(**options), self.clock)

    def async_client(
        self, scopes: Collection[Scope | str] | None = None, **options: Unpack[ClientOptions]
    ) -> AsyncBookingClient:
        """Return an async client. Its retry delays advance the clock of the fake.

        Args:
            scopes: The scopes of its key. Defaults to all.
            options: Options as for `with_options`.
        """
        http_client = httpx.AsyncClient(transport=self.transport)
        client = AsyncBookingClient(self._key_of(scopes), base_url=self.base_url, http_client=http_client)
        return on_clock(client.with_options(**options), self.clock)

    def key(self, scopes: Collection[Scope | str] | None = None) -> str:
        """Create an API key and return it. `scopes` defaults to all."""
        granted = sorted(map(str, scopes or Scope))
        key_id, text = self._service.act(lambda tx, staff: _filling.create_key(tx, staff, granted))
        self._key_ids[text] = key_id
        return text

    def _key_of(self, scopes: Collection[Scope | str] | None) -> str:
        """Return the key that all clients with the same scopes share: an organization has a limited number of keys."""
        scope_names = frozenset(map(str, scopes or Scope))
        if scope_names not in self._client_keys:
            self._client_keys[scope_names] = self.key(scope_names)
        return self._client_keys[scope_names]

    def revoke(self, key: str) -> None:
        """Revoke a key."""
        key_id = self._key_ids[key]
        self._service.act(lambda tx, staff: keys.revoke(tx, key_id, now=_filling.real_now(staff)))

    @property
    def transport(self) -> Any:
        """The transport for your own httpx client, sync or async: `httpx.Client(transport=api.transport)`."""
        return mock_transport(self._receive)

    def advance(self, seconds: float) -> None:
        """Advance the clock, as `client.sandbox.advance` does."""
        self._service.catch_up()
        self.clock.advance(seconds)

    # Contents ------------------------------------------------------------------------------------------------------

    def add_experience(self, *, add_ons: Collection[Mapping[str, Any]] = (), **over: Any) -> Experience:
        """Add an experience with an adult tier at 890.00.

        Its `price_from` defaults to the lowest price of its tiers. With `price_tiers=[]` it has the tier `standard` at
        its `price_from`.

        Args:
            add_ons: The add-ons of the experience, each `{"id", "label", "price"}`.
            over: The fields to override, as a catalogue file has them.

        Raises:
            ValueError: The service does not take such an experience.
        """
        fields = factories.experience_entry(self._currency, **{"id": new_id(), **over}, add_ons=list(add_ons))
        self._import(experiences=fields)
        self._experiences[fields["id"]] = fields
        return self._staff.experiences.get(fields["id"])

    def add_departure(
        self,
        experience: Experience | str | None = None,
        *,
        seats: int = 12,
        starts_at: datetime | None = None,
        ends_at: datetime | None = None,
        price_minor: int | None = None,
        prices: Mapping[str, int] | None = None,
    ) -> Departure:
        """Add an open departure.

        Args:
            experience: The experience or its id. Defaults to a new one.
            seats: The number of seats.
            starts_at: The start. Defaults to two days from now, or the next minute without a departure of the
                experience.
            ends_at: The end. Defaults to the duration of the experience.
            price_minor: The price, when the experience has no price tiers. Defaults to its `price_from`.
            prices: Prices by tier id, for tiers with another price on this departure.

        Raises:
            ValueError: There is a single price although the experience has tiers, a tier does not exist, or the
                experience has a departure at this time.
        """
        experience_id = str(getattr(experience or self.add_experience(), "id", experience))
        tour = self._experiences[experience_id]
        start = starts_at or self._free_start(experience_id)
        end = ends_at or (None if tour.get("duration_minutes") else start)
        departure_id = new_id()
        entry = {
            "id": departure_id,
            "starts_at": start.isoformat(),
            "ends_at": end and end.isoformat(),
            "seats_total": seats,
            "price": None if price_minor is None else factories.money(price_minor, self._currency),
            "prices": prices and dict(prices),
        }
        if (experience_id, start) in self._starts:
            raise ValueError("the experience has a departure at this time")
        self._import(experiences={**tour, "departures": [entry]})
        self._starts.add((experience_id, start))
        return self._staff.departures.get(departure_id)

    def _free_start(self, experience_id: str) -> datetime:
        start = self.clock.now + timedelta(days=2)
        while (experience_id, start) in self._starts:
            start += timedelta(minutes=1)
        return start

    def _import(self, **entries: Mapping[str, Any]) -> None:
        self._service.act(lambda tx, staff: _filling.import_catalogue(tx, staff, **entries))

    def add_customer(self, email: str, *, name: str = "Ada Lovelace", phone: str | None = None) -> Customer:
        """Add a customer and its event."""
        return self._staff.customers.create(email=email, name=name, phone=phone)

    def add_gift_card(
        self, *, code: str = "GIFT-9Q4T-7K2M", amount_minor: int = 50000, balance_minor: int | None = None, **over: Any
    ) -> GiftCard:
        """Add a gift card and its event.

        Args:
            code: The code that pays.
            amount_minor: The initial amount.
            balance_minor: The balance. Defaults to the initial amount.
            over: The fields to override, as a catalogue file has them.

        Raises:
            ValueError: The service does not take such a gift card.
        """
        card = {
            "id": new_id(),
            "code": code,
            "initial_amount": factories.money(amount_minor, self._currency),
            "balance": factories.money(amount_minor if balance_minor is None else balance_minor, self._currency),
            **over,
        }
        self._service.act(lambda tx, staff: _filling.import_gift_card(tx, staff, card))
        return self._staff.gift_cards.get(card["id"])

    def add_gift_card_transaction(
        self,
        gift_card_id: str,
        amount_minor: int,
        *,
        kind: str = "redeem",
        booking_id: str | None = None,
    ) -> GiftCardTransaction:
        """Change the balance of a gift card, and add the transaction.

        Args:
            gift_card_id: The id of the gift card.
            amount_minor: The change; negative to take from the card.
            kind: `redeem`, `restore` or `adjust`.
            booking_id: The booking that was paid or cancelled.
        """
        entry = {"kind": kind, "booking_id": booking_id}
        added = self._service.act(
            lambda tx, staff: _filling.add_transaction(tx, staff, gift_card_id, amount_minor, **entry)
        )
        (transaction,) = (
            transaction
            for transaction in self._staff.gift_cards.iterate_transactions(gift_card_id)
            if transaction.id == added
        )
        return transaction

    def add(self, model: type[ResourceT], **over: Any) -> ResourceT:
        """Add a resource that has no separate method here. `over` overrides its sample fields.

        Raises:
            TypeError: The model has no such field, or a field has no sample value.
        """
        fields = factories.sample_fields(model, **{"id": new_id(), **factories.checked_fields(model, over)})
        return model.model_validate(self._service.act(lambda tx, staff: _filling.insert(tx, staff, model, fields)))

    @property
    def bookings(self) -> list[Booking]:
        """All bookings, oldest first."""
        return list(self._staff.bookings.iterate(order="asc"))

    @property
    def customers(self) -> list[Customer]:
        """All customers, oldest first."""
        return list(self._staff.customers.iterate(order="asc"))

    @property
    def events(self) -> list[AnyEvent]:
        """All events, in order."""
        return list(self._staff.events.iterate(order="asc"))

    # Changes by others ----------------------------------------------------------------------------------------------

    def cancel_booking(self, booking_id: str, *, reason: str = "admin") -> Booking:
        """Cancel a booking as staff or the guest would, and write the event."""
        why = CancelReason(reason)
        self._service.act(lambda tx, staff: bookings.cancel(tx, staff, booking_id, reason=why))
        return self._staff.bookings.get(booking_id)

    def pay_checkout(self, checkout_id: str) -> Booking:
        """Pay for a checkout as its guest would, and confirm its booking. A cancelled booking stays cancelled."""
        with suppress(ConflictError):
            self._staff.sandbox.pay_checkout(checkout_id)
        return self._staff.bookings.get(checkout_id)

    def reschedule_booking(self, booking_id: str, departure_id: str) -> Booking:
        """Reschedule a booking as staff would, and write the event."""
        self._service.act(lambda tx, staff: bookings.reschedule(tx, staff, booking_id, departure_id))
        return self._staff.bookings.get(booking_id)

    def close_departure(self, departure_id: str, *, status: str = "closed") -> None:
        """Close a departure, or with the status `cancelled` cancel it with its bookings, as staff would."""
        change = bookings.cancel_departure_batch if status == "cancelled" else departures.close
        self._service.act(lambda tx, staff: change(tx, staff, departure_id))

    def switch_add_ons(self, on: bool) -> None:
        """Switch the Add-ons app on or off."""
        setting = {"add_ons_app": "on" if on else "off"}
        self._service.act(lambda tx, staff: organizations.set_settings(tx, staff.organization, setting, now=staff.at))

    def emit(self, event_type: str, about: Any, **data: Any) -> AnyEvent:
        """Append any event to the feed.

        Args:
            event_type: The type of the event, which may be unknown to the SDK.
            about: The resource, as a model or as fields.
            data: The other data of the event, such as `reason`.
        """
        fields = about.to_json() if hasattr(about, "to_json") else dict(about)
        event_id = self._service.act(lambda tx, staff: _filling.publish(tx, staff, event_type, fields, **data))
        return self._staff.events.get(event_id)

    # Failures ------------------------------------------------------------------------------------------------------

    def fail_next(
        self,
        status: int = 503,
        *,
        code: str | None = None,
        times: int = 1,
        retry_after: float | str | None = None,
        method: str | None = None,
        path: str | None = None,
    ) -> None:
        """Answer the next requests with an error, without executing them.

        Args:
            status: The HTTP status.
            code: The error code. Defaults to the usual code of the status.
            times: The number of requests.
            retry_after: The Retry-After header: seconds, or an HTTP date.
            method: Only requests with this method.
            path: Only requests whose path begins with this.
        """
        code = code or _CODES.get(status, "internal_error" if status >= 500 else "conflict")
        refusal = {"error": "The test wants it to fail.", "code": code, "request_id": "req_fake"}
        headers = [(b"content-type", b"application/json")]
        if retry_after is not None:
            headers.append((b"retry-after", str(retry_after).encode()))
        self._faults.append(PlannedFault(Response(status, headers, json.dumps(refusal).encode()), times, method, path))

    def drop_connection_after_commit(
        self, times: int = 1, *, method: str | None = None, path: str | None = None, as_timeout: bool = False
    ) -> None:
        """Execute the next requests, and drop the connection before the response.

        Args:
            times: The number of requests.
            method: Only requests with this method.
            path: Only requests whose path begins with this.
            as_timeout: True to time out instead of breaking the connection.
        """
        self._faults.append(PlannedFault(_dropped(as_timeout), times, method, path, after_commit=True))

    def drop_connection_before_commit(
        self, times: int = 1, *, method: str | None = None, path: str | None = None, as_timeout: bool = False
    ) -> None:
        """Drop the connection of the next requests without executing them.

        A client cannot distinguish this from `drop_connection_after_commit`.

        Args:
            times: The number of requests.
            method: Only requests with this method.
            path: Only requests whose path begins with this.
            as_timeout: True to time out instead of breaking the connection.
        """
        self._faults.append(PlannedFault(_dropped(as_timeout), times, method, path))

    def refuse_connections(self, times: int = 1) -> None:
        """Refuse the connections of the next requests.

        Args:
            times: The number of requests.
        """
        self._faults.append(
            PlannedFault(Failure(sent=False, timed_out=False, reason="the test refuses connections"), times)
        )

    def _receive(self, raw: httpx.Request) -> AttemptResult:
        request = FakeRequest.of(raw)
        with self._lock:
            self.requests.append(request)
            fault = take_fault(self._faults, request)
        if fault is None:
            return self._service.respond(raw)
        if fault.after_commit:
            self._service.respond(raw)
        return fault.result


def _dropped(as_timeout: bool) -> Failure:
    return Failure(sent=True, timed_out=as_timeout, reason="the test dropped the connection")
