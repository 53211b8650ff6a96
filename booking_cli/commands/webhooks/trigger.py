"""`booking webhooks trigger`: an event of any type, sent to a receiver, sound or with a deliberate fault.

It is made up here, unless a past one or a body is named. The event has the shape that the service gives it, and the
request its headers and signature, so what a receiver does with it is what it will do with the real one.
"""

import json
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from booking_cli.client import api_client, event_feed, webhook_secrets
from booking_cli.client.webhook_secrets import SecretFile
from booking_cli.commands.webhooks import receiver, samples, signing
from booking_cli.commands.webhooks.receiver import Answer, Target
from booking_cli.framework import context, event_types
from booking_cli.framework.arguments import identifier, refusal
from booking_cli.framework.command import command, single
from booking_cli.framework.context import Cli, CliError
from booking_cli.framework.exit_codes import ExitCode

app = single()

STALE_S = 3600
"""An hour: twelve times what a receiver should take."""

Request = tuple[dict[str, str], bytes]
Fault = Callable[[bytes, tuple[str, ...]], Request]


def _sound(body: bytes, secrets: tuple[str, ...]) -> Request:
    from webhook_verify.testing import signed_request

    return signed_request(body, secrets)


def _stale(body: bytes, secrets: tuple[str, ...]) -> Request:
    from webhook_verify.testing import stale

    return stale(body, secrets, age=STALE_S)


def _future(body: bytes, secrets: tuple[str, ...]) -> Request:
    from webhook_verify.testing import stale

    return stale(body, secrets, age=-STALE_S)


def _signed_by_another(body: bytes, secrets: tuple[str, ...]) -> Request:
    from webhook_verify.signature import generate_secret

    return _sound(body, (generate_secret(),))


def _tampered(body: bytes, secrets: tuple[str, ...]) -> Request:
    from webhook_verify.testing import tampered

    return tampered(body, secrets)


def _unsigned(body: bytes, secrets: tuple[str, ...]) -> Request:
    headers, body = _sound(body, secrets)
    signed = ("svc-signature", "webhook-signature")
    return {name: value for name, value in headers.items() if name.lower() not in signed}, body


_FAULTS: Mapping[str, Fault] = {
    "stale": _stale,
    "future": _future,
    "invalid-signature": _signed_by_another,
    "tampered": _tampered,
    "no-signature": _unsigned,
}


def _made_up(text: str) -> str:
    """Parse a type of which there is a sample, or a prefix.

    Raises:
        BadParameter: there is none.
    """
    if not event_types.matching(text):
        raise typer.BadParameter(refusal(text, event_types.PREFIXES if "*" in text else event_types.TYPES))
    return text


@dataclass(frozen=True, slots=True)
class Sent:
    """One request and what came of it."""

    headers: Mapping[str, str]
    body: bytes
    answer: Answer


@command(
    app,
    "trigger",
    "booking webhooks trigger booking.created --to http://localhost:8000/webhooks",
    "booking webhooks trigger booking.cancelled --to 8000 --set data.reason=min_participants",
    "booking webhooks trigger ping --to localhost:8000/webhooks --stale",
    "booking webhooks trigger 'booking.*' --to 8000",
    "booking webhooks trigger --from-event 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --to 8000",
    "booking webhooks trigger --body @body.json --to 8000 --header 'X-Tenant: fjord'",
    "booking webhooks trigger booking.created -o json > saved.json",
)
def trigger(
    ctx: typer.Context,
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[TYPE]",
            parser=_made_up,
            help=f"One of {', '.join(event_types.TYPES)}; or all of a kind: booking.*.",
            show_default=False,
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="URL", help="The receiver; 8000 is short for http://localhost:8000/."),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a field, such as data.reason=api; repeatable."),
    ] = None,
    from_event: Annotated[
        str | None,
        typer.Option(
            "--from-event",
            metavar="ID",
            parser=identifier,
            help="A past event of the service, instead of a made-up one.",
        ),
    ] = None,
    body_file: Annotated[
        str | None,
        typer.Option("--body", metavar="@FILE|-", help="This body, byte for byte, instead; - is standard input."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME:VALUE", help="Send this header too; repeatable."),
    ] = None,
    secret_file: SecretFile = None,
    secret: Annotated[
        str | None, typer.Option("--secret", metavar="S", help="The secret itself; who shares the machine may see it.")
    ] = None,
    stale: Annotated[bool, typer.Option("--stale", help="Signed an hour ago; to be refused.")] = False,
    future: Annotated[bool, typer.Option("--future", help="Signed an hour ahead; to be refused.")] = False,
    invalid_signature: Annotated[
        bool, typer.Option("--invalid-signature", help="Signed with another secret; to be refused.")
    ] = False,
    tampered: Annotated[bool, typer.Option("--tampered", help="Altered after it was signed; to be refused.")] = False,
    no_signature: Annotated[bool, typer.Option("--no-signature", help="Not signed at all; to be refused.")] = False,
    duplicate: Annotated[
        bool, typer.Option("--duplicate", help="Send it twice, as happens; both to be accepted.")
    ] = False,
) -> int:
    """Send an event to a receiver: a made-up one, a past one, or your own.

    Signed as the service signs. Only --from-event asks the service, and needs a key that may read the event. Exit
    code 0 when the receiver accepted it with a 2xx, or refused with a 4xx what has a fault; else 1, with what it
    answered. Without --to nothing is sent, and the delivery is printed.
    """
    cli = context.of(ctx)
    chosen = {"stale": stale, "future": future, "invalid-signature": invalid_signature}
    chosen |= {"tampered": tampered, "no-signature": no_signature}
    faults = [name for name, wanted in chosen.items() if wanted]
    if len(faults) > 1:
        raise CliError(f"--{faults[0]} and --{faults[1]} exclude each other.", hint="one fault at a time")
    bodies = _bodies(cli, kind, from_event, body_file, changes or [])
    added = receiver.headers(header or [])
    where = None if to is None else receiver.target(to)
    secrets = _secrets(cli, secret_file, secret)
    make = _FAULTS[faults[0]] if faults else _sound
    requests = [make(body, secrets) for body in bodies for _ in range(2 if duplicate else 1)]
    if where is None:
        _print(cli, [({**headers, **added}, content) for headers, content in requests[:: 2 if duplicate else 1]])
        return ExitCode.OK
    sent = [
        Sent(headers, content, receiver.post(where, {**headers, **added}, content)) for headers, content in requests
    ]
    return _told(cli, where, sent, faults[0] if faults else None)


def _print(cli: Cli, requests: list[Request]) -> None:
    """Print deliveries instead of sending them: one as a document, several as a list."""
    shown = [signing.saved(*request) for request in requests]
    if len(shown) == 1:
        cli.render.document(shown[0])
    else:
        cli.render.document({"data": shown, "has_more": False, "next_cursor": None})


def _bodies(cli: Cli, kind: str | None, from_event: str | None, file: str | None, changes: list[str]) -> list[bytes]:
    """Return what is sent: an event for each type that was named, or the one that is given.

    Raises:
        CliError: not exactly one source is named, or it cannot be read.
    """
    if sum(each is not None for each in (kind, from_event, file)) != 1:
        raise CliError(
            "Name one of TYPE, --from-event and --body.", hint="booking webhooks trigger booking.created --to URL"
        )
    if file is not None:
        if changes:
            raise CliError("--set changes an event; --body is sent byte for byte.")
        return [_read(cli, file)]
    if from_event is not None:
        return [_changed(_past(cli, from_event), changes)]
    return [_changed(_sample(each), changes) for each in event_types.matching(kind or "")]


def _past(cli: Cli, event_id: str) -> dict[str, Any]:
    """Return an event of the service as the body of its delivery."""
    with api_client.client(cli) as client:
        item = api_client.ask(client, "GET", api_client.path("events", event_id)).body
    found: dict[str, Any] = json.loads(event_feed.read(item).body)
    return found


def _read(cli: Cli, file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    path = Path(file.removeprefix("@"))
    try:
        return path.read_bytes()
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}.", code="bad_file") from None


def _sample(kind: str) -> dict[str, Any]:
    return samples.envelope(kind, samples.Made(datetime.now().astimezone(), lambda: str(uuid.uuid4())))


def _changed(event: dict[str, Any], changes: list[str]) -> bytes:
    for change in changes:
        _set(event, change)
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()


def _set(event: dict[str, Any], change: str) -> None:
    """Changes one field; the value is JSON where it is any, else text."""
    path, equals, text = change.partition("=")
    *parents, last = path.split(".")
    place: Any = event
    for part in parents:
        place = place.get(part) if isinstance(place, dict) else None
    if not equals or not isinstance(place, dict):
        raise CliError(f"--set {change}: there is no such field.", hint="--set data.object.status=cancelled")
    try:
        place[last] = json.loads(text)
    except ValueError:
        place[last] = text


def _secrets(cli: Cli, file: Path | None, secret: str | None) -> tuple[str, ...]:
    if secret is None:
        found = webhook_secrets.chosen(cli, file)
        cli.render.detail(f"signed with the secret of {found.origin}")
        return found.values
    if file is not None:
        raise CliError("--secret and --secret-file exclude each other.")
    cli.render.warn("A secret on the command line can be read by whoever shares the machine; --secret-file cannot.")
    return webhook_secrets.checked(secret, "--secret").values


def _named(body: bytes) -> dict[str, Any]:
    """Return id and type of an event; of a body that is none, nothing."""
    try:
        event = json.loads(body)
    except ValueError:
        event = None
    return {name: event.get(name) if isinstance(event, dict) else None for name in ("id", "type")}


def _told(cli: Cli, where: Target, sent: list[Sent], fault: str | None) -> int:
    """Show what the receiver answered, and give the exit code for it."""
    shown = [
        {
            "status": each.answer.status,
            "duration_ms": each.answer.duration_ms,
            **_named(each.body),
            "as_expected": _as_expected(each.answer, fault),
            "fault": fault,
            "error": each.answer.error,
            "url": where.url,
            "delivery_id": each.headers.get("Svc-Delivery-Id"),
            "response": each.answer.excerpt,
        }
        for each in sent
    ]
    if len(shown) == 1:
        is_for_people = cli.render.format == "table" and not cli.render.fields
        cli.render.one({name: value for name, value in shown[0].items() if value is not None or not is_for_people})
    else:
        cli.render.many(shown, ("status", "duration_ms", "id", "type", "as_expected"))
    wrong = next((each.answer for each in sent if not _as_expected(each.answer, fault)), None)
    if wrong is None:
        return ExitCode.OK
    if wrong.status is None and wrong.is_away:
        raise CliError(f"{where.url} cannot be reached: {wrong.reason}.", ExitCode.NETWORK, code="receiver_away")
    wanted = "accept it with a 2xx" if fault is None else f"refuse what is wrong ({fault}) with a 4xx"
    raise CliError(
        f"The receiver should {wanted}, and {wrong.reason or f'answered {wrong.status}'}.",
        ExitCode.FAILED,
        code="receiver_failed",
        hint=_hint(fault, wrong),
    )


def _as_expected(answer: Answer, fault: str | None) -> bool:
    if fault is None:
        return answer.is_accepted
    return answer.status is not None and 400 <= answer.status < 500


def _hint(fault: str | None, answer: Answer) -> str | None:
    if fault is not None and answer.is_accepted:
        return "does it verify the signature, and the age of its timestamp, before anything else?"
    if fault is None and answer.status in (400, 401, 403):
        return "does it have the secret that this was signed with? -v tells which it was"
    if answer.error == "redirect":
        return "a redirect is never followed: give the address it points to"
    return None
