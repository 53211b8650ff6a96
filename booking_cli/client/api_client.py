"""How a client command comes to the service: which key, which address, and errors that say what to do.

    with remote.client(cli) as client:
        answer = remote.ask(client, "GET", "/api/v1/me")

A flag wins over the environment, and that over the profile. What would be ambiguous is an error: a profile chosen on
the command line whose key or address an environment variable would replace. The SDK is imported when the client is
made, and nothing else here needs it.
"""

import gc
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec

from booking_cli.client import key_storage, profiles
from booking_cli.framework import not_found_hints
from booking_cli.framework.context import Cli, CliError, hidden_answer
from booking_cli.framework.exit_codes import BY_CODE, ExitCode, of_status

if TYPE_CHECKING:
    from booking_sdk import APIError, APIResponse, APIStatusError, BookingClient, BookingError, RequestOptions

P = ParamSpec("P")

PREFIX = "/api/v1"
KEY_VARIABLE = "BOOKING_API_KEY"
ADDRESS_VARIABLE = "BOOKING_BASE_URL"

_NOT_NEEDED = ("httpx._main", "trio")
"""httpx imports them when they happen to be installed, for a command and an event loop that are not used here: together
they take longer than a request."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and where it came from."""

    value: str | None = None
    origin: str = "not set"


@dataclass(frozen=True, slots=True)
class Connection:
    """Everything that a client is made of."""

    profile: profiles.Choice
    base_url: Setting
    api_key: Setting


# Which key, which address ----------------------------------------------------------------------------------------


def resolve(cli: Cli) -> Connection:
    """The key and the address of this run; either may be missing.

    Raises:
        CliError: the profile that was named does not exist, or the environment contradicts it.
    """
    profile, known = profiles.chosen(cli), profiles.load()
    if profile.origin != "default" and not _is_told_all(cli):
        known.named(profile.name)
    return Connection(profile, address(cli, profile, known), _key(cli, profile, known))


def _is_told_all(cli: Cli) -> bool:
    """Whether the flags leave nothing to a profile."""
    return bool(cli.options.base_url and cli.options.api_key_stdin)


def address(cli: Cli, profile: profiles.Choice, known: profiles.Profiles) -> Setting:
    """The service's root, and where it was said.

    Raises:
        CliError: the environment contradicts the profile.
    """
    if cli.options.base_url:
        return Setting(cli.options.base_url, "--base-url")
    stored = known.by_name.get(profile.name, profiles.Profile()).base_url
    told = os.environ.get(ADDRESS_VARIABLE)
    if told:
        _refuse_masked(cli, profile, ADDRESS_VARIABLE, "address", stored is not None and stored != told.rstrip("/"))
        return Setting(told, ADDRESS_VARIABLE)
    return Setting(stored, f"profile {profile.name}") if stored else Setting()


def _key(cli: Cli, profile: profiles.Choice, known: profiles.Profiles) -> Setting:
    if cli.options.api_key_stdin:
        return Setting(key_from_stdin(cli), "--api-key-stdin")
    if told := key_of_environment(cli, profile, known):
        return Setting(told, KEY_VARIABLE)
    stored = known.by_name.get(profile.name)
    key = key_storage.find(profile.name, stored) if stored else None
    return Setting(key, f"profile {profile.name}") if key else Setting()


def key_of_environment(cli: Cli, profile: profiles.Choice, known: profiles.Profiles) -> str | None:
    """The key in the environment, which wins over that of the profile.

    Raises:
        CliError: it contradicts the profile.
    """
    stored, told = known.by_name.get(profile.name), os.environ.get(KEY_VARIABLE)
    if not told:
        return None
    # The prefix is enough to tell keys apart, and asking a keyring may open a window.
    is_other = stored is not None and not told.startswith(stored.key_prefix or "\n")
    _refuse_masked(cli, profile, KEY_VARIABLE, "key", is_other)
    return told


def _refuse_masked(cli: Cli, profile: profiles.Choice, variable: str, what: str, differs: bool) -> None:
    """What the environment says instead of the profile: an error where the profile was asked for by name."""
    if not differs:
        return
    if profile.origin == "--profile":
        raise CliError(
            f"--profile {profile.name} and {variable} contradict each other: each names another {what}.",
            code="ambiguous_credentials",
            hint=f"unset {variable}, or leave --profile away",
        )
    cli.render.note(f"note: {variable} takes the place of the {what} of the profile {profile.name}")


def key_from_stdin(cli: Cli) -> str:
    """The key of --api-key-stdin: the first line, read once.

    Raises:
        CliError: there is none.
    """
    if cli.key_from_stdin is None:
        if sys.stdin.isatty():
            cli.key_from_stdin = hidden_answer("API key: ")
        else:
            cli.key_from_stdin = sys.stdin.readline().strip()
    if not cli.key_from_stdin:
        raise CliError("--api-key-stdin found no key on stdin.", code="no_key")
    return cli.key_from_stdin


# The client ------------------------------------------------------------------------------------------------------


def path(*segments: str) -> str:
    """The path of a resource. An id in it was checked by `arguments.identifier`."""
    return "/".join((PREFIX, *segments))


@contextmanager
def client(cli: Cli) -> Iterator["BookingClient"]:
    """The SDK's client, for one command; its errors leave as CliError.

    Raises:
        CliError: nobody is logged in, or whatever became of the requests.
    """
    connection = resolve(cli)
    if not connection.api_key.value:
        raise CliError(
            "You are not logged in.", ExitCode.AUTH, code="not_logged_in", hint=f"booking login, or set {KEY_VARIABLE}"
        )
    if not connection.base_url.value:
        raise CliError(
            "No service is named.",
            code="no_base_url",
            hint=f"pass --base-url, set {ADDRESS_VARIABLE}, or booking login",
        )
    cli.render.detail(f"service: {connection.base_url.value} ({connection.base_url.origin})")
    cli.render.detail(f"key: {connection.api_key.value[:12]}… ({connection.api_key.origin})")
    with opened(cli, connection.base_url.value, connection.api_key.value) as made:
        yield made


@contextmanager
def opened(cli: Cli, base_url: str, api_key: str) -> Iterator["BookingClient"]:
    """A client with that key at that address; its errors leave as CliError.

    Raises:
        CliError: the address or the key makes no sense, or whatever became of the requests.
    """
    with _lean():
        import booking_sdk
    try:
        with _lean():
            made = booking_sdk.BookingClient(
                api_key, base_url=base_url, webhook_secret=(), hooks=_hooks(cli), user_agent_suffix="booking-cli"
            )
        with made:
            yield made
    except booking_sdk.BookingError as error:
        raise failure(error) from error


@contextmanager
def _lean() -> Iterator[None]:
    """Hides what httpx would import for nothing, while it is imported; and imports leave no garbage to look for."""
    was_collecting = gc.isenabled()
    gc.disable()
    hidden = [name for name in _NOT_NEEDED if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None is what says "there is none"
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)
        if was_collecting:
            gc.enable()


def _hooks(cli: Cli) -> Any:
    """Tells every attempt with --verbose: what was asked, what came, never a secret or a body."""
    if not (cli.options.verbose or cli.options.debug):
        return None
    from booking_sdk import Hooks

    return Hooks(
        on_send=lambda sending: cli.render.detail(f"> {sending.method} {sending.path}"),
        on_response=lambda _, told: cli.render.detail(
            f"< {told.status_code} in {told.elapsed.total_seconds() * 1000:.0f} ms, request {told.request_id}"
        ),
        on_retry=lambda attempt: cli.render.detail(f"! {attempt.error}; again in {attempt.wait:.1f} s"),
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, as it came: a field that is newer than this command is shown too."""

    body: Any
    status: int
    headers: Mapping[str, str]
    is_replay: bool


def ask(
    client: "BookingClient",
    method: str,
    path: str,
    *,
    params: Mapping[str, Any] | None = None,
    body: object = None,
    idempotency_key: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """One request, with the SDK's retries. `path` begins with /api/v1; body is what JSON can say.

    Raises:
        BookingError: it did not give its result; `client` makes a CliError of it.
    """
    from booking_sdk import NotFoundError

    options: RequestOptions = {"headers": dict(headers or {})}
    try:
        came = client.with_raw_response(
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
        raise failure(error, not_found_hints.hint_of_request(method, path)) from error
    return _read(came)


def answer(client: "BookingClient", method: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
    """What one of the SDK's methods is answered, as it came; none when there is nothing in it.

    `ask` does the same without the SDK's models, and starts in half the time.

    Raises:
        BookingError: as for `ask`.
    """
    return _read(client.with_raw_response(method, *args, **kwargs)).body


def _read(came: "APIResponse[Any]") -> Answer:
    try:
        parsed = json.loads(came.body) if came.body else None
    except ValueError:
        raise CliError(
            f"The answer {came.status_code} is not JSON.",
            ExitCode.SERVER,
            code="unreadable_answer",
            status=came.status_code,
            request_id=came.meta.request_id,
            hint="is the address that of the service? booking config show tells which was used",
        ) from None
    return Answer(parsed, came.status_code, came.headers, came.meta.idempotent_replayed)


# Changes that must not happen twice ------------------------------------------------------------------------------


@contextmanager
def once(cli: Cli, given: str | None) -> Iterator[str]:
    """The Idempotency-Key of a change: the one given, or a new one; interrupted, it is told.

    The same command again with the same key settles what happened, and does nothing twice.
    """
    from secrets import token_hex

    key = given or f"cli-{token_hex(16)}"
    cli.render.detail(f"idempotency key: {key}")
    try:
        yield key
    except KeyboardInterrupt:
        raise CliError(
            "Interrupted; it may have been carried out.", ExitCode.INTERRUPTED, code="interrupted", hint=_again(key)
        ) from None


def _again(key: str) -> str:
    return f"run the same command with --idempotency-key {key}: it settles what happened, and does nothing twice"


# What went wrong -------------------------------------------------------------------------------------------------


def failure(error: "BookingError", hint: str | None = None) -> CliError:
    """Return what to tell of an error of the SDK; the hint is for a thing that is not found."""
    from booking_sdk import APIConnectionError, APIError, APIStatusError, APITimeoutError, ConfigurationError

    if isinstance(error, ConfigurationError):
        return CliError(f"{error}.", code="bad_setting")
    if isinstance(error, APIStatusError):
        return _status_failure(error, hint)
    if isinstance(error, APIConnectionError):
        code = "timeout" if isinstance(error, APITimeoutError) else "network_error"
        return CliError(_without_key(error), ExitCode.NETWORK, code=code, hint=_unsettled(error) or _unreached(error))
    hint = _unsettled(error) if isinstance(error, APIError) else None
    return CliError(f"{error}.", ExitCode.SERVER, code="unreadable_answer", hint=hint)


def _status_failure(error: "APIStatusError", hint: str | None) -> CliError:
    exit_code = BY_CODE.get(error.code or "", of_status(error.status_code))
    return CliError(
        error.message,
        exit_code,
        code=error.code or f"http_{error.status_code}",
        hint=_unsettled(error) or _hint(error) or (hint if error.code == "not_found" else None),
        details=[detail.to_json() for detail in error.details],
        status=error.status_code,
        request_id=error.request_id,
    )


def _hint(error: "APIStatusError") -> str | None:
    from booking_sdk import InsufficientCapacityError, InsufficientScopeError

    if isinstance(error, InsufficientScopeError):
        return f"the key needs the scope {error.required_scope}: booking keys create --scope {error.required_scope}"
    if isinstance(error, InsufficientCapacityError):
        return f"seats left: {error.seats_available}; booking availability shows other departures"
    if error.status_code == 429 and error.retry_after is not None:
        return f"try again in {error.retry_after:.0f} s"
    return _HINTS.get(error.code or "")


_HINTS: Mapping[str, str] = {
    "api_key_invalid": "booking login, with a key of this service; booking config show tells which one was used",
    "api_key_revoked": "the merchant revoked the key: booking login with another",
    "api_key_expired": "the key is past its end: booking login with another",
    "app_not_enabled": "booking orgs set SLUG api_app=on",
    "plan_upgrade_required": "booking orgs set SLUG plan_api=on",
    "idempotency_in_progress": "the same command again with the same --idempotency-key gets the first one's answer",
    "idempotency_key_reused": "this key was used for something else: leave --idempotency-key away",
}


def _unsettled(error: "APIError") -> str | None:
    """What to run when nobody knows whether the change was made."""
    if not (error.maybe_executed and error.idempotency_key):
        return None
    return _again(error.idempotency_key)


def _without_key(error: "APIError") -> str:
    """The sentence; the key in it stands in the hint, with what to do with it."""
    sentence, _, _ = str(error).partition(", which the same call")
    return f"{sentence}."


def _unreached(error: "APIError") -> str | None:
    if error.maybe_executed:
        return "look whether it was carried out before you run it again"
    return "is the service running? booking config show tells which address was used"
