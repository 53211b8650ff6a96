"""`python -m webhook_verify`: checks a saved delivery, and explains why the check fails."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from webhook_verify.errors import PayloadError, WebhookVerificationError
from webhook_verify.receiver import VerifiedDelivery, Verifier, is_valid
from webhook_verify.signature import SIGNATURE_HEADER, split_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

VERIFIED, NOT_VERIFIED = 0, 11

SECRET_VARIABLE = "BOOKING_WEBHOOK_SECRET"  # noqa: S105 - the name of a variable

DESCRIPTION = """\
Check a saved webhook delivery against the secret of its endpoint.

BODY is the file with the body of the request, byte for byte as it came in; - reads standard input.
"""

EPILOG = f"""\
secrets:
  One per line in the file given with --secret-file, or separated by commas in the environment variable
  {SECRET_VARIABLE}. During a rotation give the old one and the new one: any of them may have signed.
  A secret is never taken from the command line, where other users of the machine can read it.

exit status:
  0   the signature fits, and the timestamp is within the tolerance
  2   usage: no secret, no header, a file that cannot be read
  11  the delivery did not verify; standard error says why, and what would make it verify

examples:
  python -m webhook_verify --secret-file secret.txt --header 'Svc-Signature: t=1780300000,v1=5f...' body.json
  python -m webhook_verify --secret-file secret.txt --header 't=1780300000,v1=5f...' --tolerance inf body.json
  curl -s https://example.com/saved/42 | python -m webhook_verify --header "$HEADER" --now 1780300003 -
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status. Raises SystemExit(2) for wrong usage."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        secrets = _read_secrets(options.secret_file)
        body = _read_body(options.body)
        headers = _read_headers(options.header)
        verifier = Verifier(secrets, tolerance=options.tolerance, max_body_bytes=max(len(body), 1))
    except (OSError, ValueError) as error:
        parser.error(str(error))
    try:
        delivery = verifier.verify(body, headers, now=options.now)
    except WebhookVerificationError as error:
        sys.stderr.write(_explanation(error, body, headers, secrets))
        return NOT_VERIFIED
    sys.stdout.write(_summary(delivery, len(secrets)))
    return VERIFIED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m webhook_verify",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("body", metavar="BODY", help="file with the raw body, or -")
    parser.add_argument(
        "--header",
        action="append",
        required=True,
        metavar="H",
        help="a header of the request as 'Name: value', or just the value of Svc-Signature; may be repeated",
    )
    parser.add_argument(
        "--secret-file", type=Path, metavar="F", help=f"file with the secret; default: ${SECRET_VARIABLE}"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=300.0,
        metavar="S",
        help="seconds, in both directions; inf accepts any age (default: 300)",
    )
    parser.add_argument(
        "--now", type=float, metavar="T", help="unix time to check at: when the delivery arrived (default: now)"
    )
    return parser


def _read_secrets(file: Path | None) -> list[str]:
    secrets = split_secrets(os.environ.get(SECRET_VARIABLE, "") if file is None else file.read_text(encoding="utf-8"))
    if not secrets:
        raise ValueError(
            f"no secret: {file or SECRET_VARIABLE} holds none; give --secret-file or set {SECRET_VARIABLE}"
        )
    return secrets


def _read_body(name: str) -> bytes:
    return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()


def _read_headers(lines: Sequence[str]) -> list[tuple[str, str]]:
    headers = []
    for line in lines:
        name, colon, value = line.partition(":")
        # A bare value holds no colon; a header's name holds no equals sign.
        bare = not colon or "=" in name
        headers.append((SIGNATURE_HEADER, line.strip()) if bare else (name.strip(), value.strip()))
    return headers


def _summary(delivery: VerifiedDelivery, secret_count: int) -> str:
    signed = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(delivery.timestamp))
    lines = [f"verified: signed {signed}, {abs(delivery.age):.0f} s {'ago' if delivery.age >= 0 else 'ahead'}"]
    if secret_count > 1:
        lines.append(f"secret:   number {delivery.secret_index + 1} of {secret_count}")
    try:
        lines += [f"event:    {delivery.event_id}", f"type:     {delivery.event_type}"]
    except PayloadError:
        lines.append("event:    the body is not an event in JSON")
    return "\n".join(lines) + "\n"


def _explanation(
    error: WebhookVerificationError, body: bytes, headers: list[tuple[str, str]], secrets: list[str]
) -> str:
    lines = [f"not verified: {error.reason}", str(error)]
    if error.reason == "signature_mismatch":
        lines += _hint(body, headers, secrets)
    if error.reason in ("timestamp_too_old", "timestamp_too_new"):
        lines.append("hint: give --now with the time the delivery arrived, or --tolerance inf to check the rest")
    return "\n".join(lines) + "\n"


def _hint(body: bytes, headers: list[tuple[str, str]], secrets: list[str]) -> list[str]:
    """Find the change to the body that broke the signature, by undoing likely changes one by one."""
    changes = [
        ("a newline was added at the end of the body, as many editors do", body.rstrip(b"\r\n")),
        ("the line ends of the body were converted", body.replace(b"\r\n", b"\n")),
        ("the body was parsed and encoded again", _compact(body)),
    ]
    for change, sent in changes:
        if is_valid(sent, headers, secrets, tolerance=float("inf")):
            return [f"hint: it verifies once this is undone: {change}"]
    return []


def _compact(body: bytes) -> bytes:
    try:
        return json.dumps(json.loads(body), separators=(",", ":"), ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return body


if __name__ == "__main__":
    sys.exit(main())
