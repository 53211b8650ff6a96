"""The two clients.

The half that awaits is written by hand, and the one that does not is made from it by `tests/booking_sdk/unasync.py`.
What either of them does is decided in `_flow`, and how a request is sent in `_transport`.
"""

import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack

from booking_sdk._clock import SYSTEM, Clock
from booking_sdk._config import Config, configure
from booking_sdk._discreet import clear_frames, discreet
from booking_sdk._flow import Send, Sleep, Steps, flow
from booking_sdk._parse import Parse, as_type, read
from booking_sdk._retries import Outcome
from booking_sdk._transport import AsyncHttpClientLike, AsyncPool, HttpClientLike, Pool
from booking_sdk.options import ClientOptions, Hooks, RequestOptions, RetryDecision, Timeout
from booking_sdk.request import RAW, Spec, anything, get
from booking_sdk.response import APIResponse, Response, ResponseMeta

if TYPE_CHECKING:
    from booking_core.models.organizations import Me
    from booking_sdk.paging import AsyncPage, Page
    from booking_sdk.resources.availability import AsyncAvailability, Availability
    from booking_sdk.resources.bookings import AsyncBookings, Bookings
    from booking_sdk.resources.customers import AsyncCustomers, Customers
    from booking_sdk.resources.events import AsyncEvents, Events
    from booking_sdk.resources.experiences import AsyncExperiences, Experiences
    from booking_sdk.resources.gift_cards import AsyncGiftCards, GiftCards
    from booking_sdk.resources.webhooks import AsyncWebhooks, Webhooks

T = TypeVar("T")
P = ParamSpec("P")
AsyncPageT = TypeVar("AsyncPageT", bound="AsyncPage[Any]")
PageT = TypeVar("PageT", bound="Page[Any]")

_RESOURCES = frozenset({"experiences", "availability", "bookings", "customers", "gift_cards", "events", "webhooks"})


def _warn_unclosed(client: object) -> None:
    warnings.warn(f"unclosed {client!r}", ResourceWarning, stacklevel=2, source=client)


def _raw(keywords: Mapping[str, Any]) -> Any:
    return {**keywords, "options": {**(keywords.get("options") or {}), RAW: True}}


def _checked_raw(answer: Any) -> Any:
    if not isinstance(answer, APIResponse):
        raise TypeError("with_raw_response takes a method of the client that sends one request, and its arguments")
    return answer


class AsyncBookingClient:
    """The API of one organization.

        async with AsyncBookingClient(api_key, base_url="https://booking.example.com") as client:
            me = await client.me()

    Key and address come from `BOOKING_API_KEY` and `BOOKING_BASE_URL` where they are not given. One client serves any
    number of tasks; make one and keep it.
    """

    @discreet
    def __init__(
        self,
        api_key: str | Callable[[], str] | None = None,
        *,
        base_url: str | None = None,
        timeout: float | Timeout = 30.0,
        deadline: float | None = None,
        max_retries: int = 2,
        retry: RetryDecision | None = None,
        http_client: AsyncHttpClientLike | None = None,
        default_headers: Mapping[str, str] | None = None,
        webhook_secret: str | Sequence[str] | None = None,
        hooks: Hooks | None = None,
        user_agent_suffix: str | None = None,
    ) -> None:
        """A client; nothing is sent yet.

        Args:
            api_key: the key, or a function that gives the one of the moment.
            base_url: the root of the service, without `/api/v1`.
            timeout: seconds that one attempt may take, 5 of them to connect.
            deadline: seconds that a call may take, with all its attempts and waits.
            max_retries: how often an attempt that failed is followed by another.
            retry: decides about each of those instead of the SDK.
            http_client: an httpx client of your own; it stays yours to close.
            default_headers: sent with every request.
            webhook_secret: for `webhooks.unwrap`; several during a rotation. Else `BOOKING_WEBHOOK_SECRET`.
            hooks: told of every attempt.
            user_agent_suffix: who you are.

        Raises:
            ConfigurationError: key or address is missing, or something makes no sense.
        """
        self._is_root = False
        self._config: Config = configure(
            api_key=api_key,
            base_url=base_url,
            timeout=timeout,
            deadline=deadline,
            max_retries=max_retries,
            retry=retry,
            default_headers=default_headers,
            webhook_secret=webhook_secret,
            hooks=hooks,
            user_agent_suffix=user_agent_suffix,
        )
        self._clock: Clock = SYSTEM
        self._pool = AsyncPool(http_client)
        self._is_root = True

    @discreet
    def with_options(self, **overrides: Unpack[ClientOptions]) -> Self:
        """A client with other settings on the same connections; it needs no closing.

        Raises:
            TypeError: there is no such option.
            ConfigurationError: a value makes no sense.
        """
        config = self._config.changed(overrides)
        other = object.__new__(type(self))
        # From a copy: another thread may be using a resource for the first time, which adds it.
        own = self.__dict__.copy()
        other.__dict__.update({name: value for name, value in own.items() if name not in _RESOURCES})
        other._config = config
        other._is_root = False
        return other

    @discreet
    async def with_raw_response(
        self, method: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> APIResponse[T]:
        """The answer to a call as it came, with its body not yet parsed.

            response = await client.with_raw_response(client.bookings.get, booking_id)
            response.headers["x-request-id"], response.body, response.parse().status

        Errors are raised as ever.

        Raises:
            TypeError: the method does not send exactly one request.
        """
        answer: APIResponse[T] = _checked_raw(await method(*args, **_raw(kwargs)))
        return answer

    @discreet
    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: object = None,
        cast_to: type[T],
        idempotency_key: str | None = None,
        options: RequestOptions | None = None,
    ) -> T:
        """Any request of the API, for what no method stands for yet.

            await client.request("GET", "/api/v1/openapi.json", cast_to=dict)

        A POST is sent again after an unknown outcome only with an `idempotency_key` of yours.

        Args:
            cast_to: a model, or any type that pydantic can read JSON into; bytes: the body as it came.
        """
        spec = anything(method, path, params, json, idempotency_key, options)
        return await self._run(spec, as_type(cast_to))

    async def me(self, *, options: RequestOptions | None = None) -> "Me":
        """The organization and the key of this client: the test of a key. Needs no scope."""
        from booking_core.models.organizations import Me

        return await self._run(get("me", options=options), as_type(Me))

    @cached_property
    def experiences(self) -> "AsyncExperiences":
        """The catalogue."""
        from booking_sdk.resources.experiences import AsyncExperiences

        return AsyncExperiences(self)

    @cached_property
    def availability(self) -> "AsyncAvailability":
        """Departures and their seats."""
        from booking_sdk.resources.availability import AsyncAvailability

        return AsyncAvailability(self)

    @cached_property
    def bookings(self) -> "AsyncBookings":
        """To list, get, create and cancel."""
        from booking_sdk.resources.bookings import AsyncBookings

        return AsyncBookings(self)

    @cached_property
    def customers(self) -> "AsyncCustomers":
        """The organization's customer records."""
        from booking_sdk.resources.customers import AsyncCustomers

        return AsyncCustomers(self)

    @cached_property
    def gift_cards(self) -> "AsyncGiftCards":
        """Prepaid amounts."""
        from booking_sdk.resources.gift_cards import AsyncGiftCards

        return AsyncGiftCards(self)

    @cached_property
    def events(self) -> "AsyncEvents":
        """What happened, to be listed or followed."""
        from booking_sdk.resources.events import AsyncEvents

        return AsyncEvents(self)

    @cached_property
    def webhooks(self) -> "AsyncWebhooks":
        """Where events are sent, and what arrives there."""
        from booking_sdk.resources.webhooks import AsyncWebhooks

        return AsyncWebhooks(self)

    async def close(self) -> None:
        """Closes the connections. Those of an `http_client` of yours stay open, and so do those of the client that
        this one was made from."""
        if self._is_root:
            await self._pool.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def __del__(self) -> None:
        if self.__dict__.get("_is_root") and self._pool.is_open:
            _warn_unclosed(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._config.base_url}>"

    async def _run(self, spec: Spec, parse: Parse[T]) -> T:
        """Carry out the steps of one call."""
        steps: Steps[T] = flow(spec, parse, self._config, self._clock)
        outcome: Outcome | None = None
        try:
            while True:
                step = steps.send(outcome)
                try:
                    outcome = await self._carry_out(step)
                except BaseException as error:  # noqa: BLE001 - raised by the flow, with what is known of the call
                    steps.throw(error)
        except StopIteration as done:
            result: T = done.value
            return result
        except BaseException as error:
            outcome = None
            clear_frames(error)
            raise

    async def _carry_out(self, step: Send | Sleep) -> Outcome | None:
        if isinstance(step, Send):
            return await self._pool.send(step)
        await self._clock.async_sleep(step.seconds)
        return None

    async def _page(self, spec: Spec, kind: Any, shape: type[AsyncPageT]) -> AsyncPageT:
        """One page of a list of that kind."""
        plain = spec.without_raw()

        def parse(response: Response, meta: ResponseMeta) -> AsyncPageT:
            return shape(self, plain, kind, read(shape._envelope[kind], response.body), meta)

        return await self._run(spec, parse)


# Made from the classes above by tests/booking_sdk/unasync.py; change those, and run it. -------------------------------


class BookingClient:
    """The API of one organization.

        with BookingClient(api_key, base_url="https://booking.example.com") as client:
            me = client.me()

    Key and address come from `BOOKING_API_KEY` and `BOOKING_BASE_URL` where they are not given. One client serves any
    number of threads; make one and keep it.
    """

    @discreet
    def __init__(
        self,
        api_key: str | Callable[[], str] | None = None,
        *,
        base_url: str | None = None,
        timeout: float | Timeout = 30.0,
        deadline: float | None = None,
        max_retries: int = 2,
        retry: RetryDecision | None = None,
        http_client: HttpClientLike | None = None,
        default_headers: Mapping[str, str] | None = None,
        webhook_secret: str | Sequence[str] | None = None,
        hooks: Hooks | None = None,
        user_agent_suffix: str | None = None,
    ) -> None:
        """A client; nothing is sent yet.

        Args:
            api_key: the key, or a function that gives the one of the moment.
            base_url: the root of the service, without `/api/v1`.
            timeout: seconds that one attempt may take, 5 of them to connect.
            deadline: seconds that a call may take, with all its attempts and waits.
            max_retries: how often an attempt that failed is followed by another.
            retry: decides about each of those instead of the SDK.
            http_client: an httpx client of your own; it stays yours to close.
            default_headers: sent with every request.
            webhook_secret: for `webhooks.unwrap`; several during a rotation. Else `BOOKING_WEBHOOK_SECRET`.
            hooks: told of every attempt.
            user_agent_suffix: who you are.

        Raises:
            ConfigurationError: key or address is missing, or something makes no sense.
        """
        self._is_root = False
        self._config: Config = configure(
            api_key=api_key,
            base_url=base_url,
            timeout=timeout,
            deadline=deadline,
            max_retries=max_retries,
            retry=retry,
            default_headers=default_headers,
            webhook_secret=webhook_secret,
            hooks=hooks,
            user_agent_suffix=user_agent_suffix,
        )
        self._clock: Clock = SYSTEM
        self._pool = Pool(http_client)
        self._is_root = True

    @discreet
    def with_options(self, **overrides: Unpack[ClientOptions]) -> Self:
        """A client with other settings on the same connections; it needs no closing.

        Raises:
            TypeError: there is no such option.
            ConfigurationError: a value makes no sense.
        """
        config = self._config.changed(overrides)
        other = object.__new__(type(self))
        # From a copy: another thread may be using a resource for the first time, which adds it.
        own = self.__dict__.copy()
        other.__dict__.update({name: value for name, value in own.items() if name not in _RESOURCES})
        other._config = config
        other._is_root = False
        return other

    @discreet
    def with_raw_response(self, method: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> APIResponse[T]:
        """The answer to a call as it came, with its body not yet parsed.

            response = client.with_raw_response(client.bookings.get, booking_id)
            response.headers["x-request-id"], response.body, response.parse().status

        Errors are raised as ever.

        Raises:
            TypeError: the method does not send exactly one request.
        """
        answer: APIResponse[T] = _checked_raw(method(*args, **_raw(kwargs)))
        return answer

    @discreet
    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: object = None,
        cast_to: type[T],
        idempotency_key: str | None = None,
        options: RequestOptions | None = None,
    ) -> T:
        """Any request of the API, for what no method stands for yet.

            client.request("GET", "/api/v1/openapi.json", cast_to=dict)

        A POST is sent again after an unknown outcome only with an `idempotency_key` of yours.

        Args:
            cast_to: a model, or any type that pydantic can read JSON into; bytes: the body as it came.
        """
        spec = anything(method, path, params, json, idempotency_key, options)
        return self._run(spec, as_type(cast_to))

    def me(self, *, options: RequestOptions | None = None) -> "Me":
        """The organization and the key of this client: the test of a key. Needs no scope."""
        from booking_core.models.organizations import Me

        return self._run(get("me", options=options), as_type(Me))

    @cached_property
    def experiences(self) -> "Experiences":
        """The catalogue."""
        from booking_sdk.resources.experiences import Experiences

        return Experiences(self)

    @cached_property
    def availability(self) -> "Availability":
        """Departures and their seats."""
        from booking_sdk.resources.availability import Availability

        return Availability(self)

    @cached_property
    def bookings(self) -> "Bookings":
        """To list, get, create and cancel."""
        from booking_sdk.resources.bookings import Bookings

        return Bookings(self)

    @cached_property
    def customers(self) -> "Customers":
        """The organization's customer records."""
        from booking_sdk.resources.customers import Customers

        return Customers(self)

    @cached_property
    def gift_cards(self) -> "GiftCards":
        """Prepaid amounts."""
        from booking_sdk.resources.gift_cards import GiftCards

        return GiftCards(self)

    @cached_property
    def events(self) -> "Events":
        """What happened, to be listed or followed."""
        from booking_sdk.resources.events import Events

        return Events(self)

    @cached_property
    def webhooks(self) -> "Webhooks":
        """Where events are sent, and what arrives there."""
        from booking_sdk.resources.webhooks import Webhooks

        return Webhooks(self)

    def close(self) -> None:
        """Closes the connections. Those of an `http_client` of yours stay open, and so do those of the client that
        this one was made from."""
        if self._is_root:
            self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self.__dict__.get("_is_root") and self._pool.is_open:
            _warn_unclosed(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._config.base_url}>"

    def _run(self, spec: Spec, parse: Parse[T]) -> T:
        """Carry out the steps of one call."""
        steps: Steps[T] = flow(spec, parse, self._config, self._clock)
        outcome: Outcome | None = None
        try:
            while True:
                step = steps.send(outcome)
                try:
                    outcome = self._carry_out(step)
                except BaseException as error:  # noqa: BLE001 - raised by the flow, with what is known of the call
                    steps.throw(error)
        except StopIteration as done:
            result: T = done.value
            return result
        except BaseException as error:
            outcome = None
            clear_frames(error)
            raise

    def _carry_out(self, step: Send | Sleep) -> Outcome | None:
        if isinstance(step, Send):
            return self._pool.send(step)
        self._clock.sleep(step.seconds)
        return None

    def _page(self, spec: Spec, kind: Any, shape: type[PageT]) -> PageT:
        """One page of a list of that kind."""
        plain = spec.without_raw()

        def parse(response: Response, meta: ResponseMeta) -> PageT:
            return shape(self, plain, kind, read(shape._envelope[kind], response.body), meta)

        return self._run(spec, parse)
