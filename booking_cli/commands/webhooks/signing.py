"""`booking webhooks sign` and `verify`: sign a body, and verify a delivery.

Only webhook_verify is imported, since scripts call these commands for each delivery.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from booking_cli.client import webhook_secrets
from booking_cli.client.webhook_secrets import SecretFile, Secrets
from booking_cli.framework.arguments import read_bytes
from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.options import argument, option

app = command_app()

Body = Annotated[str, argument("[BODY]", "A file with the raw body; - is stdin.", show_default=False)]


@command(app, "sign")
def sign(
    cli: Cli,
    body: Body = "-",
    secret_file: SecretFile = None,
    timestamp: Annotated[int | None, option("--timestamp T", "Unix time of the signature; default: now.")] = None,
) -> None:
    """Sign a body, and print the headers of its delivery.

    The body is signed byte for byte: send it unchanged. In the json modes the output has headers and body, as for
    `verify --delivery`.

    Examples:
        booking webhooks sign body.json --secret-file hook.secret
        booking webhooks sign body.json | curl -H @- --data-binary @body.json http://localhost:8000/webhooks
    """
    from webhook_verify.testing import signed_request

    raw = _read(body)
    secrets = webhook_secrets.load(cli, secret_file)
    try:
        headers, _ = signed_request(raw, secrets.values, timestamp=timestamp)
    except ValueError as error:
        raise CliError(f"--timestamp: {error}.") from None
    cli.render.detail(f"signed with the secret of {secrets.origin}")
    if cli.render.is_json_or_fields:
        cli.render.one(delivery_object(headers, raw))
    else:
        cli.render.text("\n".join(f"{name}: {value}" for name, value in headers.items()))


@command(app, "verify")
def verify(
    cli: Cli,
    body: Body = "",
    header: Annotated[
        list[str] | None, option("--header H", "A header as 'Name: value', or the value of Svc-Signature; repeatable.")
    ] = None,
    headers_file: Annotated[Path | None, option("--headers FILE", "A file with one header per line.")] = None,
    delivery: Annotated[
        str | None,
        option("--delivery FILE", "A file with the whole delivery: JSON with headers and body, or the HTTP request."),
    ] = None,
    secret_file: SecretFile = None,
    tolerance: Annotated[
        float, option("--tolerance S", "Accepted age in seconds, past or future; inf accepts any.")
    ] = 300.0,
    now: Annotated[float | None, option("--now T", "Unix time of the arrival; default: now.")] = None,
) -> None:
    """Verify the signature of a delivery.

    Exit code 11 if it is not authentic, with the reason. If possible, the hint tells how the body was changed.

    Examples:
        booking webhooks verify body.json --header 'Svc-Signature: t=1780300000,v1=5f…' --secret-file hook.secret
        booking webhooks verify --delivery saved.json --tolerance inf
    """
    from webhook_verify import Verifier, WebhookVerificationError

    saved_delivery = _delivery(body, header or [], headers_file, delivery)
    secrets = webhook_secrets.load(cli, secret_file)
    try:
        verifier = Verifier(secrets.values, tolerance=tolerance, max_body_bytes=max(len(saved_delivery.body), 1))
        verified = verifier.verify(saved_delivery.body, saved_delivery.headers, now=now)
    except ValueError as error:
        raise CliError(f"--tolerance: {error}.") from None
    except WebhookVerificationError as error:
        raise _not_verified(error, saved_delivery, secrets) from None
    _write(cli, verified, secrets)


@dataclass(frozen=True, slots=True)
class SavedDelivery:
    """A request as it was received, not yet verified."""

    headers: list[tuple[str, str]]
    body: bytes


def delivery_object(headers: dict[str, str], body: bytes) -> dict[str, Any]:
    """Return a delivery as JSON, in the format of `verify --delivery`."""
    try:
        return {"headers": headers, "body": body.decode()}
    except UnicodeDecodeError:
        import base64

        return {"headers": headers, "body_base64": base64.b64encode(body).decode()}


def _read(name: str) -> bytes:
    if name == "-" and sys.stdin.isatty():
        sys.stderr.write("Type the body, and end it with Ctrl-D.\n")
    return read_bytes(Path(name))


def _delivery(body: str, lines: Sequence[str], headers_file: Path | None, delivery: str | None) -> SavedDelivery:
    if delivery is not None:
        if body or lines or headers_file:
            raise CliError("--delivery contains headers and body: leave out the other options.")
        return _parsed(_read(delivery), delivery)
    header_lines = [*lines, *(_lines_of(headers_file) if headers_file else [])]
    if not header_lines:
        raise CliError(
            "The headers of the delivery are missing, at least Svc-Signature.",
            hint="--header 'Svc-Signature: …', --headers FILE or --delivery FILE",
        )
    return SavedDelivery([_header(line) for line in header_lines], _read(body or "-"))


def _lines_of(file: Path) -> list[str]:
    text = _read(str(file)).decode("latin-1")
    return [line for line in text.splitlines() if line.strip()]


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    # A value alone has no colon; the name of a header has no equals sign.
    return ("Svc-Signature", line.strip()) if not colon or "=" in name else (name.strip(), value.strip())


def _parsed(raw: bytes, name: str) -> SavedDelivery:
    """Return the delivery in the output of `sign` or `trigger`, or in an HTTP request."""
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
        f"{name} is not a delivery.", code="bad_file", hint='write {"headers": {"Svc-Signature": "…"}, "body": "…"}'
    )


def _decoded(text: str) -> bytes:
    import base64

    return base64.b64decode(text)


def _parsed_http(raw: bytes, name: str) -> SavedDelivery:
    ends = [(raw.find(blank), len(blank)) for blank in (b"\r\n\r\n", b"\n\n") if blank in raw]
    if not ends:
        raise CliError(f"{name} is not a delivery.", code="bad_file", hint="write headers, an empty line and the body")
    end, length = min(ends)
    lines = raw[:end].decode("latin-1").splitlines()
    # A request line is not a header: its first colon comes after a space.
    header_lines = [line for line in lines if ":" in line and " " not in line.partition(":")[0]]
    return SavedDelivery([_header(line) for line in header_lines], raw[end + length :])


def _not_verified(error: Any, delivery: SavedDelivery, secrets: Secrets) -> CliError:
    hint = None
    if error.reason == "signature_mismatch":
        hint = _mismatch_hint(delivery, secrets) or f"verified with the secret of {secrets.origin}"
    if error.reason in ("timestamp_too_old", "timestamp_too_new"):
        hint = "pass --now with the time of its arrival, or --tolerance inf"
    return CliError(f"not verified: {error}.", ExitCode.SIGNATURE, code=error.reason, hint=hint)


def _mismatch_hint(delivery: SavedDelivery, secrets: Secrets) -> str | None:
    # webhook_verify's own command detects common changes of a body; both packages are released together.
    from webhook_verify.__main__ import _hint

    hints = _hint(delivery.body, delivery.headers, list(secrets.values))
    return hints[0].removeprefix("hint: ") if hints else None


def _write(cli: Cli, verified: Any, secrets: Secrets) -> None:
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
