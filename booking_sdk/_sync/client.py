# Generated from booking_sdk/client.py by `make sync-client`. Do not edit.
"""The sync client."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack

from booking_sdk._clock import SYSTEM
from booking_sdk._config import configure
from booking_sdk._parse import parser_for
from booking_sdk._sync._base_client import APIClient
from booking_sdk._sync._transport import HttpClientLike, Transport
from booking_sdk._traceback_scrubbing import scrub_traceback
from booking_sdk.options import ClientOptions, Hooks, RequestOptions, RetryDecision, Timeout
from booking_sdk.request import custom_request, get, with_raw_option
from booking_sdk.response import APIResponse, checked_raw_response

if TYPE_CHECKING:
    from booking_core.models.organizations import Me
    from booking_sdk._sync.resources.availability import Availability
    from booking_sdk._sync.resources.bookings import Bookings
    from booking_sdk._sync.resources.checkouts import Checkouts
    from booking_sdk._sync.resources.customers import Customers
    from booking_sdk._sync.resources.departures import Departures
    from booking_sdk._sync.resources.events import Events
    from booking_sdk._sync.resources.experiences import Experiences
    from booking_sdk._sync.resources.gift_cards import GiftCards
    from booking_sdk._sync.resources.holds import Holds
    from booking_sdk._sync.resources.sandbox import Sandbox
    from booking_sdk._sync.resources.webhooks import Webhooks

T = TypeVar("T")
P = ParamSpec("P")


class BookingClient(APIClient):
    """A client for the API of one organization.

        with BookingClient(api_key, base_url="https://booking.example.com") as client:
            me = client.me()

    Key and base URL default to `BOOKING_API_KEY` and `BOOKING_BASE_URL`. Create one client and keep it: it serves any
    number of threads.
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
        http_client: HttpClientLike | None = None,
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
        self._transport = Transport(http_client)
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
    def with_raw_response(self, method: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> APIResponse[T]:
        """Call a method of the client and return its HTTP response, with the body not yet parsed.

            response = client.with_raw_response(client.bookings.get, booking_id)
            response.headers["x-request-id"], response.body, response.parse().status

        Errors are raised as usual.

        Args:
            method: A method of this client that sends exactly one request.
            args: The positional arguments of the method.
            kwargs: The keyword arguments of the method.

        Raises:
            TypeError: The method does not send exactly one request.
        """
        response: APIResponse[T] = checked_raw_response(method(*args, **with_raw_option(kwargs)))
        return response

    @scrub_traceback
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
        """Send any request to the API, for operations that have no method yet.

            client.request("GET", "/api/v1/openapi.json", cast_to=dict)

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
        return self._execute(spec, parser_for(cast_to))

    def me(self, *, options: RequestOptions | None = None) -> "Me":
        """Return the organization and the key of this client. Needs no scope, so it is a good test of a key.

        Args:
            options: Settings for this call.
        """
        from booking_core.models.organizations import Me

        return self._execute(get("me", options=options), parser_for(Me))

    @cached_property
    def experiences(self) -> "Experiences":
        """The experiences of the organization's catalogue."""
        from booking_sdk._sync.resources.experiences import Experiences

        return Experiences(self)

    @cached_property
    def availability(self) -> "Availability":
        """Departures and the seats that are left on them."""
        from booking_sdk._sync.resources.availability import Availability

        return Availability(self)

    @cached_property
    def departures(self) -> "Departures":
        """The departures of a day, and single ones."""
        from booking_sdk._sync.resources.departures import Departures

        return Departures(self)

    @cached_property
    def bookings(self) -> "Bookings":
        """Bookings: list, get, quote, create and cancel."""
        from booking_sdk._sync.resources.bookings import Bookings

        return Bookings(self)

    @cached_property
    def holds(self) -> "Holds":
        """Holds of seats while a guest checks out: create, get and delete."""
        from booking_sdk._sync.resources.holds import Holds

        return Holds(self)

    @cached_property
    def checkouts(self) -> "Checkouts":
        """Checkouts with a payment by card: create and get."""
        from booking_sdk._sync.resources.checkouts import Checkouts

        return Checkouts(self)

    @cached_property
    def customers(self) -> "Customers":
        """Customer records: list, get and create."""
        from booking_sdk._sync.resources.customers import Customers

        return Customers(self)

    @cached_property
    def gift_cards(self) -> "GiftCards":
        """Gift cards: list and get."""
        from booking_sdk._sync.resources.gift_cards import GiftCards

        return GiftCards(self)

    @cached_property
    def events(self) -> "Events":
        """The event feed: list, get and follow."""
        from booking_sdk._sync.resources.events import Events

        return Events(self)

    @cached_property
    def webhooks(self) -> "Webhooks":
        """Webhook endpoints and their deliveries."""
        from booking_sdk._sync.resources.webhooks import Webhooks

        return Webhooks(self)

    @cached_property
    def sandbox(self) -> "Sandbox":
        """The clock of a sandbox, and its captured mails."""
        from booking_sdk._sync.resources.sandbox import Sandbox

        return Sandbox(self)

    def close(self) -> None:
        """Close the connections.

        An `http_client` of your own stays open, and closing a copy from `with_options` does nothing.
        """
        if self._is_root:
            self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self.__dict__.get("_is_root") and self._transport.is_open:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._config.base_url}>"


_RESOURCES = frozenset(name for name, member in vars(BookingClient).items() if isinstance(member, cached_property))
