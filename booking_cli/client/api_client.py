"""Send requests to the service with the SDK's client.

    with api_client.connect(cli) as client:
        me = api_client.request(client, "GET", api_client.path("me")).body

The SDK is imported when a client is made. Responses are JSON as the service sent it, so that a field which is newer
than this command is shown too.
"""

import gc
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from booking_cli.client import connection
from booking_cli.client.errors import NOT_THE_API, to_cli_error
from booking_cli.framework import not_found_hints
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.idempotency import idempotency_key

if TYPE_CHECKING:
    from booking_sdk import APIResponse, BookingClient, RequestOptions

PREFIX = "/api/v1"

_UNUSED_IMPORTS = ("httpx._main", "trio")
"""Modules that httpx imports if they are installed, for a command and an event loop that are not used here. Together
they take longer than a request."""


def path(*segments: str) -> str:
    """Return the path of a resource. Ids in it were checked by `arguments.identifier`."""
    return "/".join((PREFIX, *segments))


@contextmanager
def connect(cli: Cli) -> Iterator["BookingClient"]:
    """Yield a client with the key and the base URL of this run.

    Raises:
        CliError: the key or the base URL is missing, or a request failed.
    """
    settings = connection.resolve(cli)
    if not settings.api_key.value:
        hint = f"run booking login, or set {connection.API_KEY_VARIABLE} and {connection.BASE_URL_VARIABLE}"
        raise CliError("You are not logged in.", ExitCode.AUTH, code="not_logged_in", hint=hint)
    if not settings.base_url.value:
        hint = f"pass --base-url, set {connection.BASE_URL_VARIABLE}, or run booking login"
        raise CliError("The base URL of the service is not set.", code="no_base_url", hint=hint)
    cli.render.detail(f"service: {settings.base_url.value} ({settings.base_url.origin})")
    cli.render.detail(f"key: {settings.api_key.value[:12]}… ({settings.api_key.origin})")
    with open_client(cli, settings.base_url.value, settings.api_key.value) as client:
        yield client


@contextmanager
def open_client(cli: Cli, base_url: str, api_key: str) -> Iterator["BookingClient"]:
    """Yield a client with this key and base URL.

    Raises:
        CliError: the key or the base URL is invalid, or a request failed.
    """
    with _fast_import():
        import booking_sdk
    try:
        with _fast_import():
            client = booking_sdk.BookingClient(
                api_key, base_url=base_url, webhook_secret=(), hooks=_hooks(cli), user_agent_suffix="booking-cli"
            )
        with client:
            yield client
    except booking_sdk.BookingError as error:
        raise to_cli_error(error) from error


@contextmanager
def _fast_import() -> Iterator[None]:
    """Import without the modules of `_UNUSED_IMPORTS` and without garbage collections."""
    was_enabled = gc.isenabled()
    gc.disable()
    hidden = [name for name in _UNUSED_IMPORTS if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None makes the import fail
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)
        if was_enabled:
            gc.enable()


def _hooks(cli: Cli) -> Any:
    """Return hooks that print every attempt with --verbose, but no secret and no body."""
    if not (cli.options.verbose or cli.options.debug):
        return None
    from booking_sdk import Hooks

    return Hooks(
        on_send=lambda sent: cli.render.detail(f"> {sent.method} {sent.path}"),
        on_response=lambda _, came: cli.render.detail(
            f"< {came.status_code} in {came.elapsed.total_seconds() * 1000:.0f} ms, request {came.request_id}"
        ),
        on_retry=lambda attempt: cli.render.detail(f"! {attempt.error}; retrying in {attempt.wait:.1f} s"),
    )


@dataclass(frozen=True, slots=True)
class Response:
    """A response with its JSON body."""

    body: Any
    status: int
    headers: Mapping[str, str]
    is_replay: bool


def request(
    client: "BookingClient",
    method: str,
    path: str,
    *,
    params: Mapping[str, Any] | None = None,
    body: object = None,
    idempotency_key: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Send a request with the SDK's retries, and return the response.

    Args:
        path: begins with /api/v1.
        body: a value that JSON can represent.

    Raises:
        BookingError: the request failed; `connect` turns it into a CliError.
        CliError: the resource was not found, or the response is not JSON.
    """
    from booking_sdk import NotFoundError

    options: RequestOptions = {"headers": dict(headers or {})}
    try:
        response = client.with_raw_response(
            client.request,
            method,
            path,
            params=params,
            json=body,
            cast_to=bytes,
            idempotency_key=idempotency_key,
            options=options,
        )
    except NotFoundError as error:
        raise to_cli_error(error, not_found_hints.hint_of_request(method, path)) from error
    return _parse(response)


def post(cli: Cli, *segments: str, body: object, key_option: str | None) -> Response:
    """Send a request that changes something once, and return the response; `key_option` is --idempotency-key."""
    with connect(cli) as client, idempotency_key(cli, key_option) as key:
        return request(client, "POST", path(*segments), body=body, idempotency_key=key)


def get(client: "BookingClient", *segments: str) -> Any:
    """Return the JSON of a resource."""
    return request(client, "GET", path(*segments)).body


def write_resource(cli: Cli, *segments: str) -> None:
    """Request a resource and write it."""
    with connect(cli) as client:
        resource = get(client, *segments)
    cli.render.one(resource)


def _parse(response: "APIResponse[Any]") -> Response:
    try:
        body = json.loads(response.body) if response.body else None
    except ValueError:
        raise CliError(
            f"The response {response.status_code} is not JSON.",
            ExitCode.SERVER,
            code="unreadable_answer",
            status=response.status_code,
            request_id=response.meta.request_id,
            hint=NOT_THE_API,
        ) from None
    return Response(body, response.status_code, response.headers, response.meta.idempotent_replayed)
