"""The async client. The sync client, `booking_sdk._sync.client`, is generated from it by `make sync-client`."""

import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack

from booking_sdk._base_client import AsyncAPIClient
from booking_sdk._clock import SYSTEM
from booking_sdk._config import configure
from booking_sdk._parse import parser_for
from booking_sdk._traceback_scrubbing import scrub_traceback
from booking_sdk._transport import AsyncHttpClientLike, AsyncTransport
from booking_sdk.options import ClientOptions, Hooks, RequestOptions, RetryDecision, Timeout
from booking_sdk.request import custom_request, get, with_raw_option
from booking_sdk.response import APIResponse, checked_raw_response

if TYPE_CHECKING:
    from booking_core.models.organizations import Me
    from booking_sdk.resources.availability import AsyncAvailability
    from booking_sdk.resources.bookings import AsyncBookings
    from booking_sdk.resources.checkouts import AsyncCheckouts
    from booking_sdk.resources.customers import AsyncCustomers
    from booking_sdk.resources.departures import AsyncDepartures
    from booking_sdk.resources.events import AsyncEvents
    from booking_sdk.resources.experiences import AsyncExperiences
    from booking_sdk.resources.gift_cards import AsyncGiftCards
    from booking_sdk.resources.holds import AsyncHolds
    from booking_sdk.resources.sandbox import AsyncSandbox
    from booking_sdk.resources.webhooks import AsyncWebhooks

T = TypeVar("T")
P = ParamSpec("P")


class AsyncBookingClient(AsyncAPIClient):
    """A client for the API of one organization.

        async with AsyncBookingClient(api_key, base_url="https://booking.example.com") as client:
            me = await client.me()

    Key and base URL default to `BOOKING_API_KEY` and `BOOKING_BASE_URL`. Create one client and keep it: it serves any
    number of tasks.
    """

    @scrub_traceback
    def __init__(
        self,
        api_key: str | Callable[[], str] | None = None,
        *,
        base_url: str | None = None,
        timeout: float | Timeout = 30.0,
        deadline: float | None = None,
        max_retries: int = 2,
        max_response_bytes: int = 64 * 2**20,
        retry: RetryDecision | None = None,
        http_client: AsyncHttpClientLike | None = None,
        default_headers: Mapping[str, str] | None = None,
        webhook_secret: str | Sequence[str] | None = None,
        hooks: Hooks | None = None,
        user_agent_suffix: str | None = None,
    ) -> None:
        """Create a client. No request is sent yet.

        Args:
            api_key: The API key, or a function that returns the current key and is called before each attempt.
            base_url: The root URL of the service, without `/api/v1`.
            timeout: Seconds for one attempt; at most 5 of them to connect.
            deadline: Seconds for a call with all its attempts and delays.
            max_retries: The maximum number of attempts after the first.
            max_response_bytes: The maximum size of a response body, decompressed. A larger one is not read to its end.
            retry: A function that decides about each retry instead of the SDK.
            http_client: An httpx client of your own. The SDK does not close it.
            default_headers: Headers that are sent with every request.
            webhook_secret: The secret for `webhooks.unwrap`, or several during a rotation. Defaults to
                `BOOKING_WEBHOOK_SECRET`.
            hooks: Functions that are called around every attempt.
            user_agent_suffix: The name of your application, added to the User-Agent header.

        Raises:
            ConfigurationError: Key or base URL is missing, or a value is invalid.
        """
        self._is_root = False
        self._config = configure(
            api_key=api_key,
            base_url=base_url,
            timeout=timeout,
            deadline=deadline,
            max_retries=max_retries,
            max_response_bytes=max_response_bytes,
            retry=retry,
            default_headers=default_headers,
            webhook_secret=webhook_secret,
            hooks=hooks,
            user_agent_suffix=user_agent_suffix,
        )
        self._clock = SYSTEM
        self._transport = AsyncTransport(http_client)
        self._is_root = True

    @scrub_traceback
    def with_options(self, **overrides: Unpack[ClientOptions]) -> Self:
        """Return a copy of the client with other settings, on the same connections. The copy needs no closing.

            slow = client.with_options(timeout=120, max_retries=0)

        Raises:
            TypeError: An option does not exist.
            ConfigurationError: A value is invalid.
        """
        config = self._config.with_changes(overrides)
        other = object.__new__(type(self))
        # From a copy: another thread may be using a resource for the first time, which adds an attribute.
        attributes = self.__dict__.copy()
        # Without the resources, since each is bound to its client.
        other.__dict__.update({name: value for name, value in attributes.items() if name not in _RESOURCES})
        other._config = config
        other._is_root = False
        return other

    @scrub_traceback
    async def with_raw_response(
        self, method: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> APIResponse[T]:
        """Call a method of the client and return its HTTP response, with the body not yet parsed.

            response = await client.with_raw_response(client.bookings.get, booking_id)
            response.headers["x-request-id"], response.body, response.parse().status

        Errors are raised as usual.

        Args:
            method: A method of this client that sends exactly one request.
            args: The positional arguments of the method.
            kwargs: The keyword arguments of the method.

        Raises:
            TypeError: The method does not send exactly one request.
        """
        response: APIResponse[T] = checked_raw_response(await method(*args, **with_raw_option(kwargs)))
        return response

    @scrub_traceback
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
        """Send any request to the API, for operations that have no method yet.

            await client.request("GET", "/api/v1/openapi.json", cast_to=dict)

        Args:
            method: The HTTP method.
            path: The path, without query and escapes.
            params: The query parameters.
            json: The body, which is sent as JSON.
            cast_to: A model, or any type that pydantic can validate JSON into; `bytes` returns the body unchanged.
            idempotency_key: Your key. Without it, a POST is not retried after an unknown outcome.
            options: Settings for this call.

        Returns:
            The response body as `cast_to`.

        Raises:
            APIError: The call returned no result.
            ValueError: The path or the key is invalid.
        """
        spec = custom_request(method, path, params, json, idempotency_key, options)
        return await self._execute(spec, parser_for(cast_to))

    async def me(self, *, options: RequestOptions | None = None) -> "Me":
        """Return the organization and the key of this client. Needs no scope, so it is a good test of a key.

        Args:
            options: Settings for this call.
        """
        from booking_core.models.organizations import Me

        return await self._execute(get("me", options=options), parser_for(Me))

    @cached_property
    def experiences(self) -> "AsyncExperiences":
        """The experiences of the organization's catalogue."""
        from booking_sdk.resources.experiences import AsyncExperiences

        return AsyncExperiences(self)

    @cached_property
    def availability(self) -> "AsyncAvailability":
        """Departures and the seats that are left on them."""
        from booking_sdk.resources.availability import AsyncAvailability

        return AsyncAvailability(self)

    @cached_property
    def departures(self) -> "AsyncDepartures":
        """The departures of a day, and single ones."""
        from booking_sdk.resources.departures import AsyncDepartures

        return AsyncDepartures(self)

    @cached_property
    def bookings(self) -> "AsyncBookings":
        """Bookings: list, get, quote, create and cancel."""
        from booking_sdk.resources.bookings import AsyncBookings

        return AsyncBookings(self)

    @cached_property
    def holds(self) -> "AsyncHolds":
        """Holds of seats while a guest checks out: create, get and delete."""
        from booking_sdk.resources.holds import AsyncHolds

        return AsyncHolds(self)

    @cached_property
    def checkouts(self) -> "AsyncCheckouts":
        """Checkouts with a payment by card: create and get."""
        from booking_sdk.resources.checkouts import AsyncCheckouts

        return AsyncCheckouts(self)

    @cached_property
    def customers(self) -> "AsyncCustomers":
        """Customer records: list, get and create."""
        from booking_sdk.resources.customers import AsyncCustomers

        return AsyncCustomers(self)

    @cached_property
    def gift_cards(self) -> "AsyncGiftCards":
        """Gift cards: list and get."""
        from booking_sdk.resources.gift_cards import AsyncGiftCards

        return AsyncGiftCards(self)

    @cached_property
    def events(self) -> "AsyncEvents":
        """The event feed: list, get and follow."""
        from booking_sdk.resources.events import AsyncEvents

        return AsyncEvents(self)

    @cached_property
    def webhooks(self) -> "AsyncWebhooks":
        """Webhook endpoints and their deliveries."""
        from booking_sdk.resources.webhooks import AsyncWebhooks

        return AsyncWebhooks(self)

    @cached_property
    def sandbox(self) -> "AsyncSandbox":
        """The clock of a sandbox, and its captured mails."""
        from booking_sdk.resources.sandbox import AsyncSandbox

        return AsyncSandbox(self)

    async def close(self) -> None:
        """Close the connections.

        An `http_client` of your own stays open, and closing a copy from `with_options` does nothing.
        """
        if self._is_root:
            await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def __del__(self) -> None:
        if self.__dict__.get("_is_root") and self._transport.is_open:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._config.base_url}>"


_RESOURCES = frozenset(name for name, member in vars(AsyncBookingClient).items() if isinstance(member, cached_property))
