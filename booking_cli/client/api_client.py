"""Send requests to the service with the SDK's client, and read its lists page by page.

    with api_client.connect(cli) as client:
        me = api_client.request(client, "GET", "me").body

Paths begin below /api/v1. Ids in them were checked by `arguments.identifier`.
The SDK is imported when a client is made. Responses are JSON as the service sent it: a field that is newer than this
command is shown too.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from booking_cli.client import connection, profiles
from booking_cli.client.errors import NOT_THE_API, not_found_hint, to_cli_error
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.options import Paging
from booking_cli.framework.output import ListPage
from booking_cli.framework.tables import Columns

if TYPE_CHECKING:
    from booking_sdk import APIResponse, BookingClient, RequestOptions

PREFIX = "/api/v1"
_PAGE_SIZE_MAX = 100
_UNUSED_MODULES = ("httpx._main", "trio")
"""Modules that httpx imports if what they need is installed, for a command and an event loop that are not used here.
They take longer than the rest of the client."""


@contextmanager
def connect(cli: Cli) -> Iterator["BookingClient"]:
    """Yield a client with the key and the base URL of this run.

    Raises:
        CliError: the key or the base URL is missing, or a request failed.
    """
    base_url, api_key = login(cli)
    with open_client(cli, base_url, api_key) as client:
        yield client


def login(cli: Cli) -> tuple[str, str]:
    """Return the base URL and the key of this run.

    Raises:
        CliError: one of them is missing.
    """
    settings = connection.resolve(cli)
    if not settings.api_key.value:
        hint = f"run booking login, or set {connection.API_KEY_VARIABLE} and {connection.BASE_URL_VARIABLE}"
        raise CliError("You are not logged in.", ExitCode.AUTH, code="not_logged_in", hint=hint)
    if not settings.base_url.value:
        hint = f"pass --base-url, set {connection.BASE_URL_VARIABLE}, or run booking login"
        raise CliError("The base URL of the service is not set.", code="no_base_url", hint=hint)
    cli.render.detail(f"service: {settings.base_url.value} ({settings.base_url.origin})")
    cli.render.detail(f"key: {profiles.masked(settings.api_key.value)} ({settings.api_key.origin})")
    return settings.base_url.value, settings.api_key.value


@contextmanager
def open_client(cli: Cli, base_url: str, api_key: str) -> Iterator["BookingClient"]:
    """Yield a client with this key and base URL.

    Raises:
        CliError: the key or the base URL is invalid, or a request failed.
    """
    with _without_unused_modules():
        import booking_sdk
    try:
        with _without_unused_modules():
            client = booking_sdk.BookingClient(
                api_key, base_url=base_url, webhook_secret=(), hooks=_hooks(cli), user_agent_suffix="booking-cli"
            )
        with client:
            yield client
    except booking_sdk.BookingError as error:
        raise to_cli_error(error) from error


@contextmanager
def _without_unused_modules() -> Iterator[None]:
    hidden = [name for name in _UNUSED_MODULES if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None makes the import fail
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)


def _hooks(cli: Cli) -> Any:
    """Return hooks that print every attempt with --verbose, but no secret and no body."""
    if not (cli.options.verbose or cli.options.debug):
        return None
    from booking_sdk import Hooks

    return Hooks(
        on_send=lambda sent: cli.render.detail(f"> {sent.method} {sent.path}"),
        on_response=lambda _, response: cli.render.detail(
            f"< {response.status_code} in {response.elapsed.total_seconds() * 1000:.0f} ms,"
            f" request {response.request_id}"
        ),
        on_retry=lambda attempt: cli.render.detail(f"! {attempt.error}; retrying in {attempt.wait:.1f} s"),
    )


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A response with its JSON body."""

    body: Any
    status: int
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
) -> ApiResponse:
    """Send a request with the SDK's retries, and return the response.

    Args:
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
            f"{PREFIX}/{path}",
            params=params,
            json=body,
            cast_to=bytes,
            idempotency_key=idempotency_key,
            options=options,
        )
    except NotFoundError as error:
        raise to_cli_error(error, not_found_hint(method, path)) from error
    return _parse(response)


def post(cli: Cli, path: str, *, body: object, key_option: str | None) -> ApiResponse:
    """Send a request that changes something once, and return the response; `key_option` is --idempotency-key."""
    with connect(cli) as client:
        return post_once(cli, client, path, body, key_option)


def write_posted(cli: Cli, path: str, *, body: object, key_option: str | None) -> ApiResponse:
    """Send a request as `post` does, write the resource, and return the response."""
    response = post(cli, path, body=body, key_option=key_option)
    cli.render.one(response.body)
    return response


def post_once(cli: Cli, client: "BookingClient", path: str, body: object, key_option: str | None) -> ApiResponse:
    """Do the same with an open client."""
    with cli.idempotency_key(key_option) as key:
        return request(client, "POST", path, body=body, idempotency_key=key)


def get(client: "BookingClient", path: str) -> Any:
    """Return the JSON of a resource."""
    return request(client, "GET", path).body


def write_resource(cli: Cli, path: str, method: str = "GET", **arguments: Any) -> Any:
    """Send a request whose response is a resource, write the resource, and return it.

    Args:
        arguments: of `request`.
    """
    with connect(cli) as client:
        resource = request(client, method, path, **arguments).body
    cli.render.one(resource)
    return resource


def _parse(response: "APIResponse[Any]") -> ApiResponse:
    try:
        body = json.loads(response.body) if response.body else None
    except (ValueError, RecursionError):
        raise CliError(
            f"The response {response.status_code} is not JSON.",
            ExitCode.SERVER,
            code="unreadable_answer",
            status=response.status_code,
            request_id=response.meta.request_id,
            hint=NOT_THE_API,
        ) from None
    return ApiResponse(body, response.status_code, response.meta.idempotent_replayed)


def write_list(cli: Cli, paging: Paging, path: str, columns: Columns, **params: Any) -> None:
    """Request a list and write it; `params` are the filters."""
    query = {**params, "order": paging.order, "starting_after": paging.starting_after}
    cli.render.pages(_fetch(cli, path, query, paging.most), columns)


def _fetch(cli: Cli, path: str, params: Mapping[str, Any], limit: int | None) -> Iterator[ListPage]:
    with connect(cli) as client:
        yield from iter_pages(client, path, params, limit)


def iter_pages(client: "BookingClient", path: str, params: Mapping[str, Any], limit: int | None) -> Iterator[ListPage]:
    """Yield the pages of a list, up to a number of items; without a limit all of them.

    Raises:
        CliError: a cursor repeats, or a response is not a list.
    """
    query = {name: value for name, value in params.items() if value is not None}
    cursors: set[str] = set()
    while True:
        if limit is not None or "limit" not in query:
            query["limit"] = min(_PAGE_SIZE_MAX, _PAGE_SIZE_MAX if limit is None else limit)
        page = fetch_page(client, path, query)
        yield page
        limit = None if limit is None else limit - len(page["data"])
        if not page["has_more"] or limit == 0:
            return
        cursor = page["next_cursor"]
        if not cursor or cursor in cursors:
            raise CliError("The list's cursor is missing or repeats.", ExitCode.SERVER, code="unreadable_answer")
        cursors.add(cursor)
        query["starting_after"] = cursor


def iter_items(client: "BookingClient", path: str, params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every item of a list."""
    for page in iter_pages(client, path, params, None):
        yield from page["data"]


def fetch_page(client: "BookingClient", path: str, params: Mapping[str, Any]) -> ListPage:
    """Return one page.

    Raises:
        CliError: the response is not a list.
    """
    page = request(client, "GET", path, params=params).body
    if not (isinstance(page, dict) and isinstance(page.get("data"), list) and "has_more" in page):
        raise CliError(
            "The response is not a list of the API.", ExitCode.SERVER, code="unreadable_answer", hint=NOT_THE_API
        )
    return {"next_cursor": None, **page}
