"""`booking webhooks trigger`: an event of any type, made up here and sent to a receiver, well or deliberately ill.

No service is asked. The event has the shape that the service gives it, and the request its headers and signature, so
what a receiver does with it is what it will do with the real one.
"""

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from booking_cli import context, forwarding, samples, signing, webhook_secrets
from booking_cli.command import command, single
from booking_cli.context import Cli, CliError
from booking_cli.exit_codes import ExitCode
from booking_cli.forwarding import Answer, Target
from booking_cli.webhook_secrets import SecretFile

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


@dataclass(frozen=True, slots=True)
class Sent:
    """One request and what came of it."""

    headers: Mapping[str, str]
    answer: Answer


@command(
    app,
    "trigger",
    "booking webhooks trigger booking.created --to http://localhost:8000/webhooks",
    "booking webhooks trigger booking.cancelled --to 8000 --set data.reason=min_participants",
    "booking webhooks trigger ping --to localhost:8000/webhooks --stale",
    "booking webhooks trigger booking.created -o json > saved.json",
)
def trigger(
    ctx: typer.Context,
    kind: Annotated[str, typer.Argument(metavar="TYPE", help=f"One of {', '.join(samples.TYPES)}.")],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="URL", help="The receiver; 8000 is short for http://localhost:8000/."),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a field, such as data.reason=api; repeatable."),
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
    """Sends a made-up event to a receiver.

    Signed as the service signs, and nothing is asked of the service. Exit code 0 when the receiver accepted it with
    a 2xx, or refused with a 4xx what has a fault; else 1, with what it answered. Without --to nothing is sent, and
    the delivery is printed.
    """
    cli = context.of(ctx)
    chosen = {"stale": stale, "future": future, "invalid-signature": invalid_signature}
    chosen |= {"tampered": tampered, "no-signature": no_signature}
    faults = [name for name, wanted in chosen.items() if wanted]
    if len(faults) > 1:
        raise CliError(f"--{faults[0]} and --{faults[1]} exclude each other.", hint="one fault at a time")
    body = _body(kind, changes or [])
    secrets = _secrets(cli, secret_file, secret)
    make = _FAULTS[faults[0]] if faults else _sound
    requests = [make(body, secrets) for _ in range(2 if duplicate else 1)]
    if to is None:
        cli.render.document(signing.saved(*requests[0]))
        return ExitCode.OK
    where = forwarding.target(to)
    sent = [Sent(headers, forwarding.post(where, headers, content)) for headers, content in requests]
    return _told(cli, where, body, sent, faults[0] if faults else None)


def _body(kind: str, changes: list[str]) -> bytes:
    made = samples.Made(datetime.now().astimezone(), lambda: str(uuid.uuid4()))
    if kind not in samples.TYPES:
        raise CliError(f"{kind!r} is no event type.", hint=f"one of {', '.join(samples.TYPES)}")
    event = samples.envelope(kind, made)
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


def _told(cli: Cli, where: Target, body: bytes, sent: list[Sent], fault: str | None) -> int:
    """Shows what the receiver made of it, and judges that."""
    event = json.loads(body)
    shown = [
        {
            "status": each.answer.status,
            "duration_ms": each.answer.duration_ms,
            "id": event["id"],
            "type": event["type"],
            "as_expected": _as_expected(each.answer, fault),
            "fault": fault,
            "error": each.answer.error,
            "url": where.url,
            "delivery_id": each.headers["Svc-Delivery-Id"],
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
