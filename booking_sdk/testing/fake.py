"""The fake service: methods to fill it, to make it fail, and to inspect it."""

import secrets
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, Unpack
from urllib.parse import parse_qsl

from booking_core.models.base import Resource
from booking_core.models.customers import Customer
from booking_core.models.departures import Departure
from booking_core.models.experiences import Experience
from booking_core.models.gift_cards import GiftCardTransaction
from booking_core.models.limits import API_KEY_LENGTH, TEST_API_KEY_PREFIX
from booking_core.models.scopes import Scope
from booking_sdk._http import async_mock_client, mock_client, mock_transport
from booking_sdk._retries import AttemptResult, Failure
from booking_sdk._sync.client import BookingClient
from booking_sdk.client import AsyncBookingClient
from booking_sdk.event_parsing import parse_event
from booking_sdk.models import AnyEvent, Booking, GiftCard
from booking_sdk.options import ClientOptions
from booking_sdk.testing import _changes, factories
from booking_sdk.testing._http import FakeRequest, Refusal, refused
from booking_sdk.testing._service import FakeService, Key
from booking_sdk.testing._store import Store, lowest_price, shown, standard_tiers
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


@dataclass(slots=True)
class _Fault:
    """A failure of the next matching requests."""

    times: int
    method: str | None
    path: str | None
    refusal: Refusal | None = None
    failure: Failure | None = None
    after_commit: bool = False

    def matches(self, request: FakeRequest) -> bool:
        return self.method in (None, request.method) and (self.path is None or request.path.startswith(self.path))


class FakeBookingAPI:
    """The service with one organization, in memory.

        api = FakeBookingAPI()
        departure = api.add_departure(seats=4)
        api.fail_next(status=503)
        my_shop.book(api.client(), departure.id)
        assert len(api.bookings) == 1

    Fill it (`add_departure`), make it fail (`fail_next`, `drop_connection_after_commit`), pass a client of it to the
    code under test, and inspect it (`bookings`, `requests`).
    """

    base_url = "https://fake.example.com"

    def __init__(
        self,
        *,
        now: datetime | None = None,
        name: str = "Fjord Tours",
        timezone: str = "UTC",
        currency: str = "NOK",
    ) -> None:
        """Create an empty service.

        Args:
            now: The time of its clock. Defaults to the current time.
            name: The name of the organization.
            timezone: The timezone of the organization, by IANA name.
            currency: The currency of the organization.
        """
        self.clock: ManualClock = ManualClock((now or datetime.now(UTC)).replace(microsecond=0))
        self.requests: list[FakeRequest] = []
        """All received requests, including failed ones."""
        self._store = Store(self.clock, name, timezone, currency)
        self._service = FakeService(self._store)
        self._faults: list[_Fault] = []
        self._lock = threading.RLock()
        self._currency = currency

    # Clients -------------------------------------------------------------------------------------------------------

    def client(self, scopes: Collection[Scope | str] | None = None, **options: Unpack[ClientOptions]) -> BookingClient:
        """Return a client. Its retry delays advance the clock of the fake.

        Args:
            scopes: The scopes of its key. Defaults to all.
            options: Options as for `with_options`.
        """
        own = BookingClient(self.key(scopes), base_url=self.base_url, http_client=mock_client(self.transport))
        return on_clock(own.with_options(**options), self.clock)

    def async_client(
        self, scopes: Collection[Scope | str] | None = None, **options: Unpack[ClientOptions]
    ) -> AsyncBookingClient:
        """Return an async client. Its retry delays advance the clock of the fake.

        Args:
            scopes: The scopes of its key. Defaults to all.
            options: Options as for `with_options`.
        """
        http_client = async_mock_client(self.transport)
        own = AsyncBookingClient(self.key(scopes), base_url=self.base_url, http_client=http_client)
        return on_clock(own.with_options(**options), self.clock)

    def key(self, scopes: Collection[Scope | str] | None = None) -> str:
        """Create an API key and return it. `scopes` defaults to all."""
        text = TEST_API_KEY_PREFIX + secrets.token_hex(20)[: API_KEY_LENGTH - len(TEST_API_KEY_PREFIX)]
        self._service.keys[text] = Key(factories.new_id(), frozenset(map(str, scopes or Scope)), self.clock.now)
        return text

    def revoke(self, key: str) -> None:
        """Revoke a key."""
        self._service.keys[key].revoked = True

    @property
    def transport(self) -> Any:
        """The transport for your own httpx client, sync or async: `httpx.Client(transport=api.transport)`."""
        return mock_transport(self._receive)

    def advance(self, seconds: float) -> None:
        """Advance the clock, as `client.sandbox.advance` does."""
        self.clock.advance(seconds)

    # Contents ------------------------------------------------------------------------------------------------------

    def add_experience(self, *, add_ons: Collection[Mapping[str, Any]] = (), **over: Any) -> Experience:
        """Add an experience with an adult tier at 890.00.

        Its `price_from` defaults to the lowest price of its tiers. With `price_tiers=[]` it has the tier `standard` at
        its `price_from`.

        Args:
            add_ons: The add-ons of the experience, each `{"id", "label", "price"}`.
            over: The fields to override.
        """
        now = self._store.now
        fields = factories.experience_fields(self._currency, **{"created_at": now, "updated_at": now, **over})
        tiers = fields["price_tiers"]
        if tiers and over.get("price_from") is None:
            fields["price_from"] = lowest_price(tiers)
        fields["price_tiers"] = tiers or standard_tiers(fields["price_from"])
        row = self._store.keep(self._store.experiences, fields)
        row["_add_ons"], row["_has_tiers"] = list(add_ons), bool(tiers)
        return Experience.model_validate(shown(self._store.experience_shown(row)))

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
            starts_at: The start. Defaults to two days from now.
            ends_at: The end. Defaults to the duration of the experience.
            price_minor: The price, when the experience has no price tiers. Defaults to its `price_from`.
            prices: Prices by tier id, for tiers with another price on this departure.

        Raises:
            ValueError: There is a single price although the experience has tiers, or a tier does not exist.
        """
        experience_id = getattr(experience or self.add_experience(), "id", experience)
        kind = self._store.experiences[str(experience_id)]
        tiers = self._tiers(kind, price_minor, prices or {})
        start = starts_at or self.clock.now + timedelta(days=2)
        closes_at = start - timedelta(hours=kind["hours_before_booking_closes"] or 0)
        end = ends_at or start + timedelta(minutes=kind["duration_minutes"] or 0)
        fields = factories.departure_fields(
            experience_id=kind["id"],
            **self._store.times(start, end, closes_at),
            seats_total=seats,
            seats_available=seats,
            price=lowest_price(tiers),
            price_tiers=tiers,
        )
        row = self._store.keep(self._store.departures, fields)
        row |= {"_starts_at": start, "_closes_at": closes_at, "_status": "open", "_tiers": tiers}
        return Departure.model_validate(shown(row))

    def _tiers(self, experience: Mapping[str, Any], price_minor: int | None, prices: Mapping[str, int]) -> list[Any]:
        """Return the price tiers of a departure with their prices."""
        tiers = experience["price_tiers"] if experience["_has_tiers"] else []
        if unknown := prices.keys() - {tier["id"] for tier in tiers}:
            raise ValueError(f"the experience has no price tier {', '.join(sorted(unknown))}")
        if tiers and price_minor is not None:
            raise ValueError("the experience has price tiers: give prices={tier id: amount_minor}")
        if not tiers:
            price = experience["price_from"] if price_minor is None else factories.money(price_minor, self._currency)
            return standard_tiers(price)
        own = {tier: factories.money(amount, self._currency) for tier, amount in prices.items()}
        return [{**tier, "price": own.get(tier["id"], tier["price"])} for tier in tiers]

    def add_customer(self, email: str, *, name: str = "Ada Lovelace", phone: str | None = None) -> Customer:
        """Add a customer and its event."""
        return Customer.model_validate(shown(self._store.find_or_create_customer(name, email, phone)[0]))

    def add_gift_card(
        self, *, code: str = "GIFT-9Q4T-7K2M", amount_minor: int = 50000, balance_minor: int | None = None, **over: Any
    ) -> GiftCard:
        """Add a gift card and its event."""
        amount = factories.money(amount_minor, self._currency)
        balance = amount if balance_minor is None else factories.money(balance_minor, self._currency)
        fields = factories.gift_card_fields(
            **{
                "code_last4": code[-4:],
                "initial_amount": amount,
                "balance": balance,
                "status": "active" if balance["amount_minor"] else "expired",
                "currency": self._currency,
                "created_at": self._store.now,
                **over,
            }
        )
        row = self._store.keep(self._store.gift_cards, fields)
        row |= {"_code": code, "_transactions": []}
        self._store.publish("gift_card.issued", row)
        return GiftCard.model_validate(shown(row))

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
        row = self._store.gift_cards[gift_card_id]
        fields = factories.resource_fields(
            GiftCardTransaction,
            id=factories.new_id(),
            type=kind,
            amount=factories.money(amount_minor, row["currency"]),
            booking_id=booking_id,
            created_at=self._store.now,
        )
        balance = factories.money(row["balance"]["amount_minor"] + amount_minor, row["currency"])
        self._store.change(row, balance=balance, status="active" if balance["amount_minor"] else "expired")
        entries: dict[str, Any] = {}
        row["_transactions"].append(self._store.keep(entries, fields))
        return GiftCardTransaction.model_validate(fields)

    def add(self, model: type[ResourceT], **over: Any) -> ResourceT:
        """Add a resource that has no method of its own here. `over` overrides its sample fields.

        Raises:
            TypeError: The model has no such field, or a field has no sample value.
        """
        fields = factories.sample_fields(model, **factories.checked_fields(model, over))
        row = self._store.keep(self._store.table(model), {"created_at": self._store.now, **fields})
        return model.model_validate(shown(row))

    @property
    def bookings(self) -> list[Booking]:
        """All bookings, oldest first."""
        self._service.work()
        return [Booking.model_validate(shown(row)) for row in self._store.bookings.values()]

    @property
    def customers(self) -> list[Customer]:
        """All customers, oldest first."""
        return [Customer.model_validate(shown(row)) for row in self._store.customers.values()]

    @property
    def events(self) -> list[AnyEvent]:
        """All events, in order."""
        self._service.work()
        return [parse_event(shown(row)) for row in self._store.events.values()]

    # Changes by others ----------------------------------------------------------------------------------------------

    def cancel_booking(self, booking_id: str, *, reason: str = "admin") -> Booking:
        """Cancel a booking as staff or the guest would, and write the event."""
        return Booking.model_validate(shown(self._store.cancel(booking_id, reason)))

    def pay_checkout(self, checkout_id: str) -> Booking:
        """Pay for a checkout as its guest would, and confirm its booking. A booking that was cancelled stays so."""
        return Booking.model_validate(shown(self._service.checkouts.pay(checkout_id)))

    def reschedule_booking(self, booking_id: str, departure_id: str) -> Booking:
        """Reschedule a booking as staff would, and write the event."""
        row, to = self._store.bookings[booking_id], self._store.departures[departure_id]
        _changes.move(self._store, row, to)
        return Booking.model_validate(shown(row))

    def close_departure(self, departure_id: str, *, status: str = "closed") -> None:
        """Set the status of a departure to `closed` or `cancelled`."""
        self._store.departures[departure_id]["_status"] = status
        self._service.announcements.touch(departure_id)

    def switch_add_ons(self, on: bool) -> None:
        """Switch the Add-ons app on or off."""
        self._store.add_ons_app = on

    def emit(self, event_type: str, about: Any, **data: Any) -> AnyEvent:
        """Append any event to the feed.

        Args:
            event_type: The type of the event, which may be unknown to the SDK.
            about: The resource, as a model or as fields.
            data: The other data of the event, such as `reason`.
        """
        fields = about.to_json() if hasattr(about, "to_json") else dict(about)
        return parse_event(shown(self._store.publish(event_type, fields, **data)))

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
        headers = {} if retry_after is None else {"retry-after": str(retry_after)}
        refusal = Refusal(status, code, "The test wants it to fail.", headers=headers)
        self._faults.append(_Fault(times, method, path, refusal=refusal))

    def drop_connection_after_commit(
        self, times: int = 1, *, method: str | None = None, path: str | None = None, as_timeout: bool = False
    ) -> None:
        """Execute the next requests, and drop the connection before the response.

        Args:
            times: The number of requests.
            method: Only requests with this method.
            path: Only requests whose path begins with this.
            as_timeout: True to time out in place of a broken connection.
        """
        failure = Failure(sent=True, timed_out=as_timeout, reason="the test dropped the connection")
        self._faults.append(_Fault(times, method, path, failure=failure, after_commit=True))

    def drop_connection_before_commit(
        self, times: int = 1, *, method: str | None = None, path: str | None = None, as_timeout: bool = False
    ) -> None:
        """Drop the connection of the next requests without executing them.

        A client cannot distinguish this from `drop_connection_after_commit`.

        Args:
            times: The number of requests.
            method: Only requests with this method.
            path: Only requests whose path begins with this.
            as_timeout: True to time out in place of a broken connection.
        """
        failure = Failure(sent=True, timed_out=as_timeout, reason="the test dropped the connection")
        self._faults.append(_Fault(times, method, path, failure=failure))

    def refuse_connections(self, times: int = 1) -> None:
        """Refuse the connections of the next requests.

        Args:
            times: The number of requests.
        """
        failure = Failure(sent=False, timed_out=False, reason="the test refuses connections")
        self._faults.append(_Fault(times, None, None, failure=failure))

    # Request handling ----------------------------------------------------------------------------------------------

    def _receive(self, raw: Any) -> AttemptResult:
        headers = {name.lower(): value for name, value in raw.headers.items()}
        query = dict(parse_qsl(raw.url.query.decode(), keep_blank_values=True))
        request = FakeRequest(raw.method, raw.url.path, query, headers, raw.content)
        with self._lock:
            self.requests.append(request)
            fault = next((fault for fault in self._faults if fault.matches(request)), None)
            if fault is None:
                return self._service.respond(request)
            fault.times -= 1
            if fault.times <= 0:
                self._faults.remove(fault)
            return self._failed(request, fault)

    def _failed(self, request: FakeRequest, fault: _Fault) -> AttemptResult:
        if fault.refusal:
            return refused(fault.refusal, "req_fake")
        if fault.after_commit:
            self._service.respond(request)
        assert fault.failure is not None, "a fault is a refusal or a failure"
        return fault.failure
