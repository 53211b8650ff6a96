"""`booking webhooks sign` and `verify`: one delivery, checked or made by hand.

Nothing is loaded for them but the verifier itself, so that a script may call them for each delivery it has.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from booking_cli.client import webhook_secrets
from booking_cli.client.webhook_secrets import SecretFile, Secrets
from booking_cli.framework import context
from booking_cli.framework.command import command, several
from booking_cli.framework.context import Cli, CliError
from booking_cli.framework.exit_codes import ExitCode

app = several()

Body = Annotated[
    str, typer.Argument(metavar="[BODY]", help="The file with the raw body; - is standard input.", show_default=False)
]


@command(
    app,
    "sign",
    "booking webhooks sign body.json --secret-file hook.secret",
    "booking webhooks sign body.json | curl -H @- --data-binary @body.json http://localhost:8000/webhooks",
)
def sign(
    ctx: typer.Context,
    body: Body = "-",
    secret_file: SecretFile = None,
    timestamp: Annotated[
        int | None, typer.Option("--timestamp", metavar="T", help="Unix seconds to sign at, instead of now.")
    ] = None,
) -> None:
    """Signs a body as the service would.

    Prints the headers of its delivery. A body is signed as it stands, byte for byte: send it unchanged. In the json
    modes the body comes with the headers, as `verify --delivery` takes them.
    """
    from webhook_verify.testing import signed_request

    cli = context.of(ctx)
    raw = _bytes_of(body)
    secrets = webhook_secrets.chosen(cli, secret_file)
    try:
        headers, _ = signed_request(raw, secrets.values, timestamp=timestamp)
    except ValueError as error:
        raise CliError(f"--timestamp: {error}.") from None
    cli.render.detail(f"signed with the secret of {secrets.origin}")
    if cli.render.is_json or cli.render.fields:
        cli.render.one(saved(headers, raw))
    else:
        cli.render.text("\n".join(f"{name}: {value}" for name, value in headers.items()))


@command(
    app,
    "verify",
    "booking webhooks verify body.json --header 'Svc-Signature: t=1780300000,v1=5f…' --secret-file hook.secret",
    "booking webhooks verify --delivery saved.json --tolerance inf",
)
def verify(
    ctx: typer.Context,
    body: Body = "",
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header", metavar="H", help="A header as 'Name: value', or just the value of Svc-Signature; repeatable."
        ),
    ] = None,
    headers_file: Annotated[
        Path | None, typer.Option("--headers", metavar="FILE", help="A file with a header on each line.")
    ] = None,
    delivery: Annotated[
        str | None,
        typer.Option(
            "--delivery",
            metavar="FILE",
            help="A whole delivery instead: JSON with headers and body, or HTTP as it was.",
        ),
    ] = None,
    secret_file: SecretFile = None,
    tolerance: Annotated[
        float, typer.Option("--tolerance", metavar="S", help="Seconds in both directions; inf takes any age.")
    ] = 300.0,
    now: Annotated[
        float | None, typer.Option("--now", metavar="T", help="Unix time at which it arrived, instead of now.")
    ] = None,
) -> None:
    """Tells whether a delivery is authentic.

    Exit code 11 when it is not, with the reason. Where it can be found, the hint says what happened to the body or
    the secret on the way.
    """
    from webhook_verify import Verifier, WebhookVerificationError

    cli = context.of(ctx)
    saved_delivery = _delivery(body, header or [], headers_file, delivery)
    secrets = webhook_secrets.chosen(cli, secret_file)
    try:
        verifier = Verifier(secrets.values, tolerance=tolerance, max_body_bytes=max(len(saved_delivery.body), 1))
        verified = verifier.verify(saved_delivery.body, saved_delivery.headers, now=now)
    except ValueError as error:
        raise CliError(f"--tolerance: {error}.") from None
    except WebhookVerificationError as error:
        raise _not_verified(error, saved_delivery, secrets) from None
    _show(cli, verified, secrets)


@dataclass(frozen=True, slots=True)
class SavedDelivery:
    """A request as it was received, and not yet believed."""

    headers: list[tuple[str, str]]
    body: bytes


def saved(headers: dict[str, str], body: bytes) -> dict[str, Any]:
    """A delivery as JSON, to be read by `verify --delivery`."""
    try:
        return {"headers": headers, "body": body.decode()}
    except UnicodeDecodeError:
        import base64

        return {"headers": headers, "body_base64": base64.b64encode(body).decode()}


# Reading ---------------------------------------------------------------------------------------------------------


def _bytes_of(name: str) -> bytes:
    if name == "-":
        if sys.stdin.isatty():
            sys.stderr.write("Type the body, and end it with Ctrl-D.\n")
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise CliError(f"{name} cannot be read: {error.strerror}.", code="bad_file") from None


def _delivery(body: str, lines: Sequence[str], headers_file: Path | None, delivery: str | None) -> SavedDelivery:
    if delivery is not None:
        if body or lines or headers_file:
            raise CliError("--delivery brings headers and body: leave the others away.")
        return _parsed(_bytes_of(delivery), delivery)
    given = [*lines, *(_lines_of(headers_file) if headers_file else [])]
    if not given:
        raise CliError(
            "The headers of the delivery are missing, Svc-Signature above all.",
            hint="--header 'Svc-Signature: …', --headers FILE or --delivery FILE",
        )
    return SavedDelivery([_header(line) for line in given], _bytes_of(body or "-"))


def _lines_of(file: Path) -> list[str]:
    text = _bytes_of(str(file)).decode("latin-1")
    return [line for line in text.splitlines() if line.strip()]


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    # A bare value holds no colon; a header's name holds no equals sign.
    return ("Svc-Signature", line.strip()) if not colon or "=" in name else (name.strip(), value.strip())


def _parsed(raw: bytes, name: str) -> SavedDelivery:
    """A delivery as `sign` and `trigger` print it, or the bytes of its request."""
    if not raw.lstrip().startswith(b"{"):
        return _parsed_http(raw, name)
    try:
        document = json.loads(raw)
        headers = document["headers"]
        pairs = list(headers.items() if isinstance(headers, dict) else map(tuple, headers))
        body = _decoded(document["body_base64"]) if "body_base64" in document else document["body"].encode()
        if all(isinstance(part, str) for pair in pairs for part in pair) and all(len(pair) == 2 for pair in pairs):
            return SavedDelivery(pairs, body)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise CliError(
        f"{name} holds no delivery.", code="bad_file", hint='write {"headers": {"Svc-Signature": "…"}, "body": "…"}'
    )


def _decoded(text: str) -> bytes:
    import base64

    return base64.b64decode(text)


def _parsed_http(raw: bytes, name: str) -> SavedDelivery:
    ends = [(raw.find(blank), len(blank)) for blank in (b"\r\n\r\n", b"\n\n") if blank in raw]
    if not ends:
        raise CliError(f"{name} holds no delivery.", code="bad_file", hint="headers, an empty line, and the body")
    end, length = min(ends)
    lines = raw[:end].decode("latin-1").splitlines()
    # The request line, where it was kept, is no header: its first colon stands behind a space.
    named = [line for line in lines if ":" in line and " " not in line.partition(":")[0]]
    return SavedDelivery([_header(line) for line in named], raw[end + length :])


# Telling ---------------------------------------------------------------------------------------------------------


def _not_verified(error: Any, delivery: SavedDelivery, secrets: Secrets) -> CliError:
    hint = None
    if error.reason == "signature_mismatch":
        hint = _what_happened(delivery, secrets) or f"the secret is the one of {secrets.origin}"
    if error.reason in ("timestamp_too_old", "timestamp_too_new"):
        hint = "--now with the time it arrived, or --tolerance inf to check the rest"
    return CliError(f"not verified: {error}.", ExitCode.SIGNATURE, code=error.reason, hint=hint)


def _what_happened(delivery: SavedDelivery, secrets: Secrets) -> str | None:
    # The verifier's own command knows how deliveries are spoilt on their way; it is released together with this one.
    from webhook_verify.__main__ import _hint

    found = _hint(delivery.body, delivery.headers, list(secrets.values))
    return found[0].removeprefix("hint: ") if found else None


def _show(cli: Cli, verified: Any, secrets: Secrets) -> None:
    from webhook_verify import PayloadError

    try:
        event_id, event_type = verified.event_id, verified.event_type
    except PayloadError:
        event_id = event_type = None
    cli.render.one(
        {
            "verified": True,
            "event_id": event_id,
            "event_type": event_type,
            "timestamp": verified.timestamp,
            "age_seconds": round(verified.age, 3),
            "secret_index": verified.secret_index,
            "secret_from": secrets.origin,
        }
    )
