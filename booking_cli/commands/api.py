"""`booking api`: send any request to the API."""

import json
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl

import typer

from booking_cli.client import api_client
from booking_cli.client.connection import API_KEY_VARIABLE
from booking_cli.framework import arguments
from booking_cli.framework.arguments import header, read_bytes
from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError, bad_file, invalid_choice
from booking_cli.framework.formatting import picked
from booking_cli.framework.options import IdempotencyKey, argument, option
from booking_cli.framework.output import merge

app = command_app()

METHODS = ("GET", "POST", "PATCH", "PUT", "DELETE")
_IDEMPOTENT = re.compile(
    r"bookings|checkouts|customers|holds|bookings/[^/]+/(cancel|check-in|guest|no-show|party|reschedule)"
    r"|holds/[^/]+/extend|sandbox/(checkouts/[^/]+/pay|clock/advance)"
)
"""The paths that take an Idempotency-Key (section 4). Others ignore it, and are not sent again after a failure."""


@command(app, "api")
def api(
    cli: Cli,
    method: Annotated[str, argument("METHOD", f"{', '.join(METHODS)}.")],
    path: Annotated[str, argument("PATH", "The path, with or without /api/v1.")],
    data: Annotated[
        list[str] | None,
        option("-d, --data K=V", "A query parameter of GET, or a field of the body; k:=JSON, a.b=v nested."),
    ] = None,
    headers_option: Annotated[list[str] | None, option("-H, --header NAME:VALUE", "A header; repeatable.")] = None,
    source: Annotated[Path | None, option("--input FILE", "A JSON file for the body; - is stdin.")] = None,
    paginate: Annotated[bool, option("--paginate", "Request all pages of a list and merge them.")] = False,
    idempotency_key: IdempotencyKey = None,
) -> None:
    """Send a request to the API and print the JSON response.

    -d k=v gives text; -d k:=v gives JSON: a number, true, null or a list. A POST that takes an Idempotency-Key gets one
    automatically.

    Examples:
        booking api GET me
        booking api GET bookings -d status=confirmed --paginate -o jsonl
        booking api POST customers -d email=ada@example.com -d name='Ada Lovelace'
        booking api POST bookings --input booking.json
        booking api PATCH webhooks/0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 -d 'event_types:=["booking.created"]'
    """
    verb, below, query = _target(method, path)
    if source is not None and data:
        raise CliError("--input and -d exclude each other.", hint="booking api --help")
    fields = _fields(data or [])
    params = query | (_flat(fields) if verb == "GET" else {})
    body = None if verb == "GET" else _read_body(cli, source) if source else fields or None
    if paginate and verb != "GET":
        raise CliError("--paginate is for GET.", hint="booking api --help")
    with api_client.connect(cli) as client:
        if paginate:
            _write_pages(cli, client, below, params)
            return
        headers = _headers(headers_option or [])
        key_option = _pop_idempotency_key(headers) or idempotency_key
        request = partial(api_client.request, client, verb, below, params=params, body=body, headers=headers)
        if verb == "POST" and (key_option or _IDEMPOTENT.fullmatch(below)):
            with cli.idempotency_key(key_option) as key:
                response = request(idempotency_key=key)
        else:
            response = request()
    _write(cli, response.body)


def _write(cli: Cli, body: Any) -> None:
    """Write JSON in every output format, since the shape of the response is not known."""
    if body is None:
        cli.render.note("Done; the response is empty.")
    elif cli.render.fields and isinstance(body, Mapping):
        cli.render.document(picked(body, cli.render.fields))
    else:
        cli.render.document(body)


def _write_pages(cli: Cli, client: Any, path: str, params: dict[str, Any]) -> None:
    pages = api_client.iter_pages(client, path, params, None)
    if cli.render.format == "jsonl":
        for page in pages:
            cli.render.many(page["data"], ())
        return
    merged, fields = merge(pages), cli.render.fields
    merged["data"] = [picked(item, fields) if fields else item for item in merged["data"]]
    cli.render.document(merged)


def _target(method: str, path: str) -> tuple[str, str, dict[str, Any]]:
    """Return the method, the path below /api/v1 and the parameters of its query string."""
    verb = method.upper()
    if verb not in METHODS:
        raise typer.BadParameter(invalid_choice(method, METHODS))
    full_path, _, query = path.partition("?")
    relative = full_path.strip("/").removeprefix(f"{api_client.PREFIX[1:]}/")
    is_safe = relative.isprintable() and not any(c in relative for c in "#\\%")
    if not is_safe or {".", "..", ""} & set(relative.split("/")):
        raise typer.BadParameter(f"{path!r} is not a path of the API.")
    return verb, relative, dict(parse_qsl(query, keep_blank_values=True))


def _fields(texts: list[str]) -> dict[str, Any]:
    """Return the fields of -d; dotted names become nested objects."""
    result: dict[str, Any] = {}
    for text in texts:
        name, equals, written = text.partition("=")
        is_json = name.endswith(":")
        *parents, last = name.removesuffix(":").split(".")
        if not equals or not last:
            raise typer.BadParameter(f"{text!r} is not K=V or K:=JSON.")
        target = result
        for parent in parents:
            target = target.setdefault(parent, {})
            if not isinstance(target, dict):
                raise typer.BadParameter(f"{text!r} puts a field into a value that is not an object.")
        target[last] = _json(written, text) if is_json else written
    return result


def _flat(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the fields as query parameters: dotted names, JSON as text."""
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
        raise typer.BadParameter(f"{text!r} has no JSON after := ({error}).") from None


def _read_body(cli: Cli, source: Path) -> Any:
    if str(source) == "-" and cli.options.api_key_stdin:
        raise CliError("--input - and --api-key-stdin both read stdin.", hint="set BOOKING_API_KEY, or pass a file")
    text = read_bytes(source)
    try:
        return json.loads(text)
    except ValueError as error:
        raise bad_file(source, f"is not JSON: {error}") from None


def _headers(texts: list[str]) -> dict[str, str]:
    """Return the headers of -H by their lower-case names."""
    headers = {name.lower(): value for name, value in map(header, texts)}
    if "authorization" in headers:
        raise CliError(f"The API key is not passed as a header: set {API_KEY_VARIABLE}.", hint="booking login --help")
    return headers


def _pop_idempotency_key(headers: dict[str, str]) -> str | None:
    """Remove the Idempotency-Key from the headers of -H and return it."""
    key = headers.pop("idempotency-key", None)
    return arguments.idempotency_key(key) if key else None
