"""`booking api`: any request of the API, for what no command stands for yet."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl

import typer

from booking_cli.client import api_client, pagination
from booking_cli.framework import context
from booking_cli.framework.arguments import idempotency_key as checked_key
from booking_cli.framework.arguments import refusal
from booking_cli.framework.command import command, single
from booking_cli.framework.context import Cli, CliError
from booking_cli.framework.options import Key
from booking_cli.framework.output import picked

app = single()

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
METHODS = ("GET", "POST", "PATCH", "PUT", "DELETE")
_KEYED = re.compile(r"/api/v1/(bookings|customers|bookings/[^/]+/cancel)")
"""What takes an Idempotency-Key (section 4). For the others a key would promise what the service does not keep."""


@command(
    app,
    "api",
    "booking api GET me",
    "booking api GET bookings -d status=confirmed --paginate -o jsonl",
    "booking api POST customers -d email=ada@example.com -d name='Ada Lovelace'",
    "booking api POST bookings --input booking.json",
    "booking api PATCH webhooks/0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 -d 'event_types:=[\"booking.created\"]'",
)
def api(
    ctx: typer.Context,
    method: Annotated[str, typer.Argument(metavar="METHOD", help=f"{', '.join(METHODS)}.")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="Below /api/v1, which may be left away.")],
    data: Annotated[
        list[str] | None,
        typer.Option(
            "-d", "--data", metavar="K=V", help="A parameter of GET, or a field of the body; k:=JSON, a.b=v nested."
        ),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("-H", "--header", metavar="NAME:VALUE", help="A header; may be repeated.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--input", metavar="FILE", help="The body, as JSON; - is stdin.")
    ] = None,
    paginate: Annotated[bool, typer.Option("--paginate", help="Every page of a list, as one.")] = False,
    idempotency_key: Key = None,
) -> None:
    """Sends a request and writes the JSON that is answered.

    -d k=v gives text; -d k:=v gives JSON: a number, true, null, a list. What a command of its own books once, this
    does too: POST bookings, their cancel and POST customers get an Idempotency-Key of their own.
    """
    cli = context.of(ctx)
    verb, place, query = _target(method, path)
    if source is not None and data:
        raise CliError("--input and -d exclude each other.", hint="booking api --help")
    fields = _fields(data or [])
    params = query | (_flat(fields) if verb == "GET" else {})
    body = (_read(cli, source) if source else fields or None) if verb != "GET" else None
    if paginate and verb != "GET":
        raise CliError("--paginate is for GET.", hint="booking api --help")
    with api_client.client(cli) as client:
        if paginate:
            _show_pages(cli, client, place, params)
            return
        headers = _headers(header or [])
        given = _key_among(headers) or idempotency_key
        if verb == "POST" and (given or _KEYED.fullmatch(place)):
            with api_client.once(cli, given) as key:
                answer = api_client.ask(
                    client, verb, place, params=params, body=body, idempotency_key=key, headers=headers
                )
        else:
            answer = api_client.ask(client, verb, place, params=params, body=body, headers=headers)
    _show(cli, answer.body)


def _show(cli: Cli, body: Any) -> None:
    """JSON, whatever the output is: what shape it has is not known."""
    if body is None:
        cli.render.note("Done; the answer is empty.")
    elif cli.render.fields and isinstance(body, Mapping):
        cli.render.document(picked(body, cli.render.fields))
    else:
        cli.render.document(body)


def _show_pages(cli: Cli, client: Any, place: str, params: dict[str, Any]) -> None:
    found = pagination.pages(client, place, params, None)
    if cli.render.format == "jsonl":
        for page in found:
            cli.render.many(page["data"], ())
        return
    whole = pagination.merged(found)
    fields = cli.render.fields
    whole["data"] = [picked(item, fields) if fields else item for item in whole["data"]]
    cli.render.document(whole)


def _target(method: str, path: str) -> tuple[str, str, dict[str, Any]]:
    """Method, whole path and the parameters that were written behind it."""
    verb = method.upper()
    if verb not in METHODS:
        raise typer.BadParameter(refusal(method, METHODS))
    place, _, query = path.partition("?")
    place = "/" + place.strip("/")
    if not place.startswith(f"{api_client.PREFIX}/"):
        place = api_client.PREFIX + place
    if any(c in place for c in "#\\%") or not place.isprintable() or {".", "..", ""} & set(place.split("/")[1:]):
        raise typer.BadParameter(f"{path!r} is no path of the API.")
    return verb, place, dict(parse_qsl(query, keep_blank_values=True))


def _fields(texts: list[str]) -> dict[str, Any]:
    """The fields of -d, nested where their names are dotted."""
    result: dict[str, Any] = {}
    for text in texts:
        name, equals, written = text.partition("=")
        is_json = name.endswith(":")
        *parents, last = name.removesuffix(":").split(".")
        if not equals or not last:
            raise typer.BadParameter(f"{text!r} is not K=V or K:=JSON.")
        place = result
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise typer.BadParameter(f"{text!r} puts a field into what is none.")
        place[last] = _json(written, text) if is_json else written
    return result


def _flat(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The parameters of a GET: the names as they were typed, JSON as text."""
    result: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            result |= _flat(value, f"{prefix}{name}.")
        else:
            result[f"{prefix}{name}"] = value if isinstance(value, str) else json.dumps(value)
    return result


def _json(written: str, text: str) -> Any:
    try:
        return json.loads(written)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} holds no JSON behind := ({error}).") from None


def _read(cli: Cli, source: Path) -> Any:
    if str(source) == "-" and cli.options.api_key_stdin:
        raise CliError("--input - and --api-key-stdin both want stdin.", hint="set BOOKING_API_KEY, or name a file")
    try:
        text = sys.stdin.buffer.read() if str(source) == "-" else source.read_bytes()
        return json.loads(text)
    except OSError as error:
        raise CliError(f"{source} cannot be read: {error.strerror}.", code="bad_file") from None
    except ValueError as error:
        raise CliError(f"{source} is not JSON: {error}.", code="bad_file") from None


def _headers(texts: list[str]) -> dict[str, str]:
    """The headers of -H by name in lower case."""
    result: dict[str, str] = {}
    for text in texts:
        name, colon, value = text.partition(":")
        name = name.strip().lower()
        if not (colon and _HEADER_NAME.fullmatch(name) and text.isascii() and text.isprintable()):
            raise typer.BadParameter(f"{text!r} is not NAME:VALUE.")
        if name == "authorization":
            raise CliError(
                f"The key is not passed as a header: set {api_client.KEY_VARIABLE}.", hint="booking login --help"
            )
        result[name] = value.strip()
    return result


def _key_among(headers: dict[str, str]) -> str | None:
    """The Idempotency-Key of -H, taken out: it is sent as that of --idempotency-key is."""
    key = headers.pop("idempotency-key", None)
    return checked_key(key) if key else None
