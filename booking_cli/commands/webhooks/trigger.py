"""`booking webhooks trigger`: send an event to a receiver, valid or with a deliberate fault.

Without --from-event and --body the event is a sample. Its shape, headers and signature are the same as the service's,
and the receiver handles it like a real event.
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from booking_cli.client import api_client, event_feed, webhook_secrets
from booking_cli.client.webhook_secrets import SecretFile
from booking_cli.commands.webhooks import receiver, signing
from booking_cli.commands.webhooks.receiver import ReceiverResult, ReceiverTarget
from booking_cli.framework import event_types
from booking_cli.framework.arguments import identifier, offers, read_bytes
from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError, invalid_choice
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.options import argument, option

app = command_app()

STALE_S = 3600
"""Twelve times the age that a receiver should accept."""

_AGES_S = {"stale": STALE_S, "future": -STALE_S}

SignedRequest = tuple[dict[str, str], bytes]


def _sign(body: bytes, secrets: tuple[str, ...], fault: str | None) -> SignedRequest:
    """Return the headers and the body of a delivery, with a deliberate fault."""
    from webhook_verify import testing
    from webhook_verify.signature import generate_secret

    if fault in _AGES_S:
        return testing.stale(body, secrets, age=_AGES_S[fault])
    if fault == "tampered":
        return testing.tampered(body, secrets)
    if fault == "invalid-signature":
        secrets = (generate_secret(),)
    headers, body = testing.signed_request(body, secrets)
    if fault == "no-signature":
        headers = {n: value for n, value in headers.items() if n.lower() not in ("svc-signature", "webhook-signature")}
    return headers, body


@offers(*event_types.WORDS)
def _sample_type(text: str) -> str:
    """Return an event type that has a sample, or a prefix of one.

    Raises:
        BadParameter: there is no such type.
    """
    if not event_types.matching(text):
        raise typer.BadParameter(invalid_choice(text, event_types.PREFIXES if "*" in text else event_types.TYPES))
    return text


Kind = Annotated[
    str | None,
    argument(
        "[TYPE]",
        f"One of {', '.join(event_types.TYPES)}; or a prefix: booking.*.",
        parser=_sample_type,
        show_default=False,
    ),
]
To = Annotated[str | None, option("--to URL", "The receiver; 8000 means http://localhost:8000/.")]
Changes = Annotated[
    list[str] | None, option("--set PATH=VALUE", "Change a field, such as data.reason=api; repeatable.")
]
FromEvent = Annotated[str | None, option("--from-event ID", "Send a past event of the service.", parser=identifier)]
BodyFile = Annotated[str | None, option("--body @FILE|-", "Send this body, byte for byte; - is stdin.")]
SecretText = Annotated[str | None, option("--secret S", "The secret itself, which other users of the machine may see.")]
Stale = Annotated[bool, option("--stale", "Sign it an hour ago; to be refused.")]
Future = Annotated[bool, option("--future", "Sign it an hour ahead; to be refused.")]
InvalidSignature = Annotated[bool, option("--invalid-signature", "Sign it with another secret; to be refused.")]
Tampered = Annotated[bool, option("--tampered", "Change it after signing; to be refused.")]
NoSignature = Annotated[bool, option("--no-signature", "Do not sign it; to be refused.")]
Duplicate = Annotated[bool, option("--duplicate", "Send it twice; both to be accepted.")]


@dataclass(frozen=True, slots=True)
class TriggeredDelivery:
    """A request and its result."""

    headers: Mapping[str, str]
    body: bytes
    result: ReceiverResult


@command(app, "trigger")
def trigger(
    cli: Cli,
    kind: Kind = None,
    to: To = None,
    changes: Changes = None,
    from_event: FromEvent = None,
    body_file: BodyFile = None,
    header: receiver.ExtraHeaders = None,
    secret_file: SecretFile = None,
    secret: SecretText = None,
    stale: Stale = False,
    future: Future = False,
    invalid_signature: InvalidSignature = False,
    tampered: Tampered = False,
    no_signature: NoSignature = False,
    duplicate: Duplicate = False,
) -> int:
    """Send a sample event, a past event or your own body to a receiver.

    The request is signed as by the service. Only --from-event calls the service, and needs a key that can read the
    event. Exit code 0 if the receiver accepted it with a 2xx, or refused a faulty one with a 4xx; otherwise 1. Without
    --to nothing is sent, and the delivery is printed.

    Examples:
        booking webhooks trigger booking.created --to http://localhost:8000/webhooks
        booking webhooks trigger booking.cancelled --to 8000 --set data.reason=min_participants
        booking webhooks trigger ping --to localhost:8000/webhooks --stale
        booking webhooks trigger 'booking.*' --to 8000
        booking webhooks trigger --from-event 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --to 8000
        booking webhooks trigger --body @body.json --to 8000 --header 'X-Tenant: fjord'
        booking webhooks trigger booking.created -o json > saved.json
    """
    flags = {"stale": stale, "future": future, "invalid-signature": invalid_signature}
    flags |= {"tampered": tampered, "no-signature": no_signature}
    fault = _single_fault([name for name, is_set in flags.items() if is_set])
    bodies = _bodies(cli, kind, from_event, body_file, changes or [])
    extra = receiver.extra_headers(header or [])
    target = None if to is None else receiver.parse_target(to)
    secrets = _secrets(cli, secret_file, secret)
    copies = 2 if duplicate and target is not None else 1
    signed = (_sign(body, secrets, fault) for body in bodies for _ in range(copies))
    requests = [({**headers, **extra}, body) for headers, body in signed]
    if target is None:
        _print(cli, requests)
        return ExitCode.OK
    sent = [TriggeredDelivery(headers, body, receiver.post(target, headers, body)) for headers, body in requests]
    _write_results(cli, target, sent, fault)
    _require_expected(target, sent, fault)
    return ExitCode.OK


def _single_fault(faults: list[str]) -> str | None:
    if len(faults) > 1:
        raise CliError(f"--{faults[0]} and --{faults[1]} exclude each other.", hint="pass one fault at a time")
    return faults[0] if faults else None


def _print(cli: Cli, requests: list[SignedRequest]) -> None:
    """Print deliveries as JSON instead of sending them."""
    deliveries = [signing.delivery_object(*request) for request in requests]
    if len(deliveries) == 1:
        cli.render.document(deliveries[0])
    else:
        cli.render.document({"data": deliveries, "has_more": False, "next_cursor": None})


def _bodies(cli: Cli, kind: str | None, from_event: str | None, file: str | None, changes: list[str]) -> list[bytes]:
    """Return the bodies to send: a sample of each type, a past event, or the body of a file.

    Raises:
        CliError: not exactly one source is given, or it cannot be read.
    """
    if sum(source is not None for source in (kind, from_event, file)) != 1:
        raise CliError(
            "Pass one of TYPE, --from-event and --body.", hint="booking webhooks trigger booking.created --to URL"
        )
    if file is not None:
        if changes:
            raise CliError("--set cannot be used with --body, which is sent byte for byte.")
        return [read_bytes(Path(file.removeprefix("@")))]
    if from_event is not None:
        return [_changed(_past_event(cli, from_event), changes)]
    now = datetime.now().astimezone()
    samples = [
        event_types.sample(event_type, now, lambda: str(uuid.uuid4()))
        for event_type in event_types.matching(kind or "")
    ]
    return [_changed(sample, changes) for sample in samples]


def _past_event(cli: Cli, event_id: str) -> dict[str, Any]:
    """Return an event of the service as its delivery's body."""
    with api_client.connect(cli) as client:
        item = api_client.get(client, f"events/{event_id}")
    event: dict[str, Any] = json.loads(event_feed.parse_event(item).body)
    return event


def _changed(event: dict[str, Any], changes: list[str]) -> bytes:
    for change in changes:
        _set(event, change)
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()


def _set(event: dict[str, Any], change: str) -> None:
    """Set a field. The value is parsed as JSON if possible, and is a text otherwise."""
    path, equals, text = change.partition("=")
    *parents, last = path.split(".")
    target: Any = event
    for part in parents:
        target = target.get(part) if isinstance(target, dict) else None
    if not equals or not isinstance(target, dict):
        raise CliError(f"--set {change}: there is no such field.", hint="--set data.object.status=cancelled")
    try:
        target[last] = json.loads(text)
    except ValueError:
        target[last] = text


def _secrets(cli: Cli, file: Path | None, secret: str | None) -> tuple[str, ...]:
    if secret is None:
        secrets = webhook_secrets.load(cli, file)
        cli.render.detail(f"signed with the secret of {secrets.origin}")
        return secrets.values
    if file is not None:
        raise CliError("--secret and --secret-file exclude each other.")
    cli.render.warn("Other users of the machine can read a secret on the command line; use --secret-file.")
    return webhook_secrets.parse(secret, "--secret").values


def _id_and_type(body: bytes) -> dict[str, Any]:
    """Return the id and the type of an event; None for a body that is not an event."""
    try:
        event = json.loads(body)
    except ValueError:
        event = None
    return {name: event.get(name) if isinstance(event, dict) else None for name in ("id", "type")}


def _write_results(cli: Cli, target: ReceiverTarget, sent: list[TriggeredDelivery], fault: str | None) -> None:
    rows = [
        {
            "status": attempt.result.status,
            "duration_ms": attempt.result.duration_ms,
            **_id_and_type(attempt.body),
            "as_expected": _is_expected(attempt.result, fault),
            "fault": fault,
            "error": attempt.result.error,
            "url": target.url,
            "delivery_id": attempt.headers.get("Svc-Delivery-Id"),
            "response": attempt.result.excerpt,
        }
        for attempt in sent
    ]
    if len(rows) > 1:
        cli.render.many(rows, ("status", "duration_ms", "id", "type", "as_expected"))
    elif cli.render.is_default_table:
        cli.render.one({name: value for name, value in rows[0].items() if value is not None})
    else:
        cli.render.one(rows[0])


def _require_expected(target: ReceiverTarget, sent: list[TriggeredDelivery], fault: str | None) -> None:
    """Check the results.

    Raises:
        CliError: the receiver is down, accepted a faulty delivery, or refused a valid one.
    """
    wrong = next((attempt.result for attempt in sent if not _is_expected(attempt.result, fault)), None)
    if wrong is None:
        return
    if wrong.status is None and wrong.is_unreachable:
        raise CliError(f"{target.url} cannot be reached: {wrong.reason}.", ExitCode.NETWORK, code="receiver_away")
    expected = "accept it with a 2xx" if fault is None else f"refuse the fault ({fault}) with a 4xx"
    raise CliError(
        f"The receiver should {expected}, but {wrong.reason or f'responded {wrong.status}'}.",
        ExitCode.FAILED,
        code="receiver_failed",
        hint=_hint(fault, wrong),
    )


def _is_expected(result: ReceiverResult, fault: str | None) -> bool:
    if fault is None:
        return result.is_accepted
    return result.status is not None and 400 <= result.status < 500


def _hint(fault: str | None, result: ReceiverResult) -> str | None:
    if fault is not None and result.is_accepted:
        return "check that it verifies the signature and the age of the timestamp first"
    if fault is None and result.status in (400, 401, 403):
        return "check that it has the secret that this was signed with; -v prints its origin"
    if result.error == "redirect":
        return "redirects are not followed: pass the final URL"
    return None
