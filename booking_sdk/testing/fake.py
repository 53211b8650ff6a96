"""The fake as a test sees it: what is put into it, what goes wrong with it, what became of it."""

import secrets
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack
from urllib.parse import parse_qsl

from booking_core.models.customers import Customer
from booking_core.models.departures import Departure
from booking_core.models.experiences import Experience
from booking_core.models.limits import API_KEY_PREFIX
from booking_core.models.scopes import Scope
from booking_sdk._http import async_mock_client, mock_client, mock_transport
from booking_sdk._retries import AttemptResult, Failure
from booking_sdk._sync.client import BookingClient
from booking_sdk.client import AsyncBookingClient
from booking_sdk.event_parsing import parse_event
from booking_sdk.models import AnyEvent, Booking, GiftCard
from booking_sdk.options import ClientOptions
from booking_sdk.testing import factories
from booking_sdk.testing._http import FakeRequest, Refusal, refused
from booking_sdk.testing._service import FakeService, Key
from booking_sdk.testing._store import Store, lowest_price, shown, standard_tiers
from booking_sdk.testing.clock import ManualClock, on_clock

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
    """Something that goes wrong with the next requests that it is meant for."""

    times: int
    method: str | None
    path: str | None
    refusal: Refusal | None = None
    failure: Failure | None = None
    after_commit: bool = False

    def is_for(self, request: FakeRequest) -> bool:
        return self.method in (None, request.method) and (self.path is None or request.path.startswith(self.path))


class FakeBookingAPI:
    """A service in memory, of one organization.

    Put things into it (`add_departure`), break it (`fail_next`, `drop_connection_after_commit`), give code under test
    one of its clients, and look at what became of it (`bookings`, `requests`).
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
        """A service with nothing in it.

        Args:
            now: where its clock stands; the moment's own time unless given.
            timezone: the organization's, by IANA name.
        """
        self.clock: ManualClock = ManualClock((now or datetime.now(UTC)).replace(microsecond=0))
        self.requests: list[FakeRequest] = []
        """Every request that arrived, also those that failed."""
        self._store = Store(self.clock, name, timezone, currency)
        self._service = FakeService(self._store)
        self._faults: list[_Fault] = []
        self._lock = threading.RLock()
        self._currency = currency

    # Clients -------------------------------------------------------------------------------------------------------

    def client(self, scopes: Collection[Scope | str] | None = None, **options: Unpack[ClientOptions]) -> BookingClient:
        """A client with a key that holds these scopes, or every scope. Its waits move the fake's clock."""
        own = BookingClient(self.key(scopes), base_url=self.base_url, http_client=mock_client(self.transport))
        return on_clock(own.with_options(**options), self.clock)

    def async_client(
        self, scopes: Collection[Scope | str] | None = None, **options: Unpack[ClientOptions]
    ) -> AsyncBookingClient:
        """The same, to be awaited."""
        http_client = async_mock_client(self.transport)
        own = AsyncBookingClient(self.key(scopes), base_url=self.base_url, http_client=http_client)
        return on_clock(own.with_options(**options), self.clock)

    def key(self, scopes: Collection[Scope | str] | None = None) -> str:
        """A new API key."""
        text = API_KEY_PREFIX + secrets.token_hex(20)
        self._service.keys[text] = Key(factories.new_id(), frozenset(map(str, scopes or Scope)), self.clock.now)
        return text

    def revoke(self, key: str) -> None:
        """Ends a key."""
        self._service.keys[key].revoked = True

    @property
    def transport(self) -> Any:
        """For an httpx client of your own, of either kind: `httpx.Client(transport=api.transport)`."""
        return mock_transport(self._receive)

    def advance(self, seconds: float) -> None:
        """Lets time pass."""
        self.clock.advance(seconds)

    # What is in it -------------------------------------------------------------------------------------------------

    def add_experience(self, *, add_ons: Collection[Mapping[str, Any]] = (), **over: Any) -> Experience:
        """An experience with an adult tier at 890.00, or whatever `over` says: `price_tiers=[...]`. Its `price_from` is
        the lowest price of its tiers unless given; without tiers it sells one, `standard`, at its `price_from`.

        Args:
            add_ons: what can be bought with it, each `{"id", "label", "price"}`.
        """
        now = self._store.now
        fields = factories.experience_fields(self._currency, **{"created_at": now, "updated_at": now, **over})
        tiers = fields["price_tiers"]
        if tiers and over.get("price_from") is None:
            fields["price_from"] = lowest_price(tiers)
        fields["price_tiers"] = tiers or standard_tiers(fields["price_from"])
        row = self._store.keep(self._store.experiences, fields)
        row["_add_ons"], row["_has_tiers"] = list(add_ons), bool(tiers)
        return Experience.model_validate(shown(row))

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
        """An open departure, two days from now unless said; of a new experience unless one is given.

        Args:
            price_minor: its single price, when its experience has no price tiers; else the experience's `price_from`.
            prices: its prices by tier id, for the tiers that do not cost what they cost elsewhere.

        Raises:
            ValueError: a single price where the experience has tiers, or a price for a tier that it does not have.
        """
        experience_id = getattr(experience or self.add_experience(), "id", experience)
        kind = self._store.experiences[str(experience_id)]
        tiers = self._tiers(kind, price_minor, prices or {})
        start = starts_at or self.clock.now + timedelta(days=2)
        closes_at = start - timedelta(hours=kind["hours_before_booking_closes"] or 0)
        end = ends_at or start + timedelta(minutes=kind["duration_minutes"] or 0)
        fields = factories.departure_fields(
            experience_id=kind["id"],
            starts_at=self._store.at(start),
            ends_at=self._store.at(end),
            seats_total=seats,
            seats_available=seats,
            price=lowest_price(tiers),
            booking_closes_at=self._store.at(closes_at),
        )
        row = self._store.keep(self._store.departures, fields)
        row |= {"_starts_at": start, "_closes_at": closes_at, "_status": "open", "_tiers": tiers}
        return Departure.model_validate(shown(row))

    def _tiers(self, experience: Mapping[str, Any], price_minor: int | None, prices: Mapping[str, int]) -> list[Any]:
        """Return the tiers of a departure, each with its price there."""
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
        """A customer record, with its event."""
        return Customer.model_validate(shown(self._store.know(name, email, phone)[0]))

    def add_gift_card(
        self, *, code: str = "GIFT-9Q4T-7K2M", amount_minor: int = 50000, balance_minor: int | None = None, **over: Any
    ) -> GiftCard:
        """A gift card, with its event."""
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
        row["_code"] = code
        self._store.tell("gift_card.issued", row)
        return GiftCard.model_validate(shown(row))

    @property
    def bookings(self) -> list[Booking]:
        """Every booking there is, oldest first."""
        return [Booking.model_validate(shown(row)) for row in self._store.bookings.values()]

    @property
    def customers(self) -> list[Customer]:
        """Every customer there is, oldest first."""
        return [Customer.model_validate(shown(row)) for row in self._store.customers.values()]

    @property
    def events(self) -> list[AnyEvent]:
        """Everything that happened, in order."""
        return [parse_event(shown(row)) for row in self._store.events.values()]

    # What others do to it ------------------------------------------------------------------------------------------

    def cancel_booking(self, booking_id: str, *, reason: str = "admin") -> Booking:
        """Cancels a booking as staff or the guest would, with its event."""
        return Booking.model_validate(shown(self._store.cancel(booking_id, reason)))

    def reschedule_booking(self, booking_id: str, departure_id: str) -> Booking:
        """Moves a booking as staff would, with its event."""
        row, to = self._store.bookings[booking_id], self._store.departures[departure_id]
        before = {name: row["departure"][name] for name in ("id", "starts_at")}
        self._store.change(row, departure={name: to[name] for name in ("id", "starts_at", "ends_at")})
        self._store.tell("booking.rescheduled", row, previous_departure=before)
        return Booking.model_validate(shown(row))

    def close_departure(self, departure_id: str, *, status: str = "closed") -> None:
        """Ends the sale of a departure: `closed` or `cancelled`."""
        self._store.departures[departure_id]["_status"] = status

    def switch_add_ons(self, on: bool) -> None:
        """Switches the Add-ons app."""
        self._store.add_ons_app = on

    def emit(self, event_type: str, about: Any, **data: Any) -> AnyEvent:
        """Writes any event into the feed, also one of a type that does not exist yet.

        Args:
            about: the resource, as a model or as fields.
            data: what stands beside it, such as `reason`.
        """
        fields = about.to_json() if hasattr(about, "to_json") else dict(about)
        return parse_event(shown(self._store.tell(event_type, fields, **data)))

    # What goes wrong -----------------------------------------------------------------------------------------------

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
        """Answers the next requests with a failure, and does nothing of what they ask.

        Args:
            code: the error's; the usual one of the status unless given.
            retry_after: seconds, or a date as HTTP writes it.
            method: only requests of this method.
            path: only requests whose path begins like this.
        """
        code = code or _CODES.get(status, "internal_error" if status >= 500 else "conflict")
        headers = {} if retry_after is None else {"retry-after": str(retry_after)}
        refusal = Refusal(status, code, "The test wants it to fail.", headers=headers)
        self._faults.append(_Fault(times, method, path, refusal=refusal))

    def drop_connection_after_commit(
        self, times: int = 1, *, method: str | None = None, path: str | None = None, as_timeout: bool = False
    ) -> None:
        """Does what the next requests ask, and loses the answers."""
        failure = Failure(sent=True, timed_out=as_timeout, reason="the test dropped the connection")
        self._faults.append(_Fault(times, method, path, failure=failure, after_commit=True))

    def drop_connection_before_commit(
        self, times: int = 1, *, method: str | None = None, path: str | None = None, as_timeout: bool = False
    ) -> None:
        """Loses the next requests on their way; from outside it looks the same as losing the answers."""
        failure = Failure(sent=True, timed_out=as_timeout, reason="the test dropped the connection")
        self._faults.append(_Fault(times, method, path, failure=failure))

    def refuse_connections(self, times: int = 1) -> None:
        """Takes no connection for the next requests."""
        failure = Failure(sent=False, timed_out=False, reason="the test refuses connections")
        self._faults.append(_Fault(times, None, None, failure=failure))

    # How a request goes through ------------------------------------------------------------------------------------

    def _receive(self, raw: Any) -> AttemptResult:
        headers = {name.lower(): value for name, value in raw.headers.items()}
        query = dict(parse_qsl(raw.url.query.decode(), keep_blank_values=True))
        request = FakeRequest(raw.method, raw.url.path, query, headers, raw.content)
        with self._lock:
            self.requests.append(request)
            fault = next((fault for fault in self._faults if fault.is_for(request)), None)
            if fault is None:
                return self._service.answered(request)
            fault.times -= 1
            if fault.times <= 0:
                self._faults.remove(fault)
            return self._failed(request, fault)

    def _failed(self, request: FakeRequest, fault: _Fault) -> AttemptResult:
        if fault.refusal:
            return refused(fault.refusal, "req_fake")
        if fault.after_commit:
            self._service.answered(request)
        assert fault.failure is not None, "a fault is a refusal or a failure"
        return fault.failure
