"""Pages of facts from the code: settings, error codes, event types, scopes and limits."""

import ast
import inspect
import json
import textwrap
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args

from booking_core.base.settings import SECRETS, Settings, variable
from booking_core.models import limits
from booking_core.models.errors import ErrorCode
from booking_core.models.events import READ_SCOPE, EventType
from booking_core.models.reasons import ErrorReason
from booking_core.models.scopes import READ_SCOPES, Scope
from booking_server.api import errors
from docsite import cli
from docsite.markdown import code, fence, page, table

FOLDER = "reference"
NOTES = {
    "BOOKING_SECRET_KEY": "Generated in a file next to an SQLite database. The first key seals and signs, all keys"
    " open. A first key with less than 32 bytes in base64 or hex is refused.",
    "BOOKING_SECRET_KEY_CHECK": "`refuse` stops `serve`, `worker` and `doctor`.",
    "BOOKING_SMTP_URL": "On PostgreSQL mails stay queued instead, unless `BOOKING_MAIL_DIR` is set; `serve` and"
    " `worker` warn.",
    "BOOKING_MAIL_FROM": "An address, or `Name <a@b>`; by default `no-reply@` the public host.",
    "BOOKING_MAIL_DIR": "Files `.eml`, if there is no SMTP; by default `booking.db.mail` next to an SQLite database.",
    "BOOKING_TRUSTED_PROXIES": "Without it, all clients of a proxy count as one address.",
    "BOOKING_WEBHOOK_DEADLINE": "For the whole attempt, from the look-up of the name to the head of the answer.",
    "BOOKING_WEBHOOK_DISABLE_AFTER": "After this time and at least six failures in a row, an endpoint is disabled.",
    "BOOKING_EVENT_RETENTION_DAYS": "Days that events are kept.",
    "BOOKING_DELIVERY_RETENTION_DAYS": "Days that the log of deliveries is kept.",
    "BOOKING_REQUEST_LOG": "From 0 to 1; `on` is 1. Answers with 5xx have a line unless it is `off`.",
    "BOOKING_TRACING": "Needs `booking-server[otel]`; the `OTEL_*` variables configure spans and their destination.",
    "BOOKING_IDEMPOTENCY_RETENTION_DAYS": "Days that stored answers are kept; after that, a key counts as new.",
    "BOOKING_GUEST_RETENTION_DAYS": "After this time, customers are anonymized, with all copies of their data.",
    "BOOKING_PENDING_MINUTES": "An organization may have another value.",
}
"""Additional sentences, for which the command's page about the environment has no room."""


def pages(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of every page by its path."""
    return {
        f"{FOLDER}/settings.md": settings(),
        f"{FOLDER}/error-codes.md": error_codes(),
        f"{FOLDER}/event-types.md": event_types(document),
        f"{FOLDER}/scopes.md": scopes(document),
        f"{FOLDER}/limits.md": numbers(),
    }


def settings() -> str:
    """Return the page of the settings, from the fields of `Settings` and the command's page about them."""
    meanings = {}
    for line in cli.printed("help", "environment", "-o", "tsv").splitlines():
        name, _, meaning = line.split("\t", 2)
        meanings[name] = meaning
    shown = Settings().shown()
    rows = []
    for each in fields(Settings):
        name, is_secret = variable(each.name), each.name in SECRETS
        default = str(each.default) if is_secret and each.default else shown[name].removesuffix(".0")
        # The command's page gives the default among the meanings; here it has a separate column.
        parts = [part for part in meanings.get(name, "").split("; ") if part not in ("", default)]
        sentences = [_sentence("; ".join(parts))] if parts else []
        sentences += [NOTES[name]] if name in NOTES else []
        sentences += ["Masked in logs."] if is_secret else []
        rows.append((code(name), code(default) if default else "none", " ".join(sentences)))
    return page(
        "Settings",
        "Every setting is an environment variable. The table is generated from `booking_core.base.settings`; an empty"
        " variable counts as absent. With an invalid setting, a program ends at its start with exit code 2 and one line"
        " that names the setting. `serve` and `worker` log the effective settings, with secrets masked.",
        table(("setting", "default", "meaning"), rows),
        "[Running the service](../guides/operators/index.md) explains the important ones;"
        " `booking help environment` also lists the settings of client commands.",
        description="Every setting of an installation with its default.",
    )


def _sentence(text: str) -> str:
    """Return a text of the command's help as a sentence; a URL or a value at its beginning stays unchanged."""
    is_word = text.partition(" ")[0].isalpha() and not text.startswith(("refuse", "console"))
    return (text[:1].upper() + text[1:] if is_word else text) + ("" if text.endswith((".", "…")) else ".")


def error_codes() -> str:
    """Return the page of the error codes with their statuses and a message of each."""
    internal = (errors.INTERNAL_STATUS, json.loads(errors.internal(errors.REQUEST_ID).body))
    bodies = [
        (status, example["value"])
        for status, response in errors.refusals(*errors.STATUS).items()
        for example in errors.examples_of(response).values()
    ]
    statuses: dict[str, list[str]] = {}
    messages: dict[str, str] = {}
    for status, body in [*bodies, internal]:
        statuses.setdefault(body["code"], []).append(str(status))
        messages.setdefault(body["code"], body["error"])
    rows = [(code(each.value), ", ".join(statuses[each.value]), messages[each.value]) for each in ErrorCode]
    return page(
        "Error codes",
        'Every refusal has the body `{"error", "code", "details", "request_id"}`. Branch on `code`; the message is'
        " for people and may change. [Errors and retries](../guides/integrators/errors.md) explains what to do about"
        " each. `booking` maps them to [exit codes](cli/index.md#exit-codes).",
        table(("code", "status", "example of a message"), rows),
        "## Reasons",
        "`reason` is one of these words. Later versions may add words. Some are of staff commands only.",
        ", ".join(map(code, sorted(get_args(ErrorReason)))) + ".",
        description="Every error code of the HTTP API, and every reason.",
    )


def event_types(document: Mapping[str, Any]) -> str:
    """Return the page of the event types with the scope of each."""
    rows, bodies = [], []
    for each in EventType:
        described = document["webhooks"][each.value]["post"]
        scope = code(READ_SCOPE[each.resource_type].value)
        link = f"[{each.value}](#{each.value.replace('.', '-')})"
        rows.append((link, code(each.resource_type.value), scope, described["summary"]))
        bodies.append(f"## {each.value} {{ #{each.value.replace('.', '-')} }}")
        example = described["requestBody"]["content"]["application/json"]["example"]
        bodies.append(fence(json.dumps(example, indent=2, ensure_ascii=False), "json"))
    return page(
        "Event types",
        "An event has the whole resource, so reading it, and subscribing to it, needs the read scope of the resource."
        " New types are added without a new version: skip types that you do not know.",
        table(("type", "about", "scope", "meaning"), rows),
        *bodies,
        description="Every type of event, with the scope it needs and an example of its body.",
    )


def scopes(document: Mapping[str, Any]) -> str:
    """Return the page of the scopes with the operations of each."""
    opened: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if scope := operation.get("x-required-scope"):
                opened.setdefault(scope, []).append(code(f"{method.upper()} {path}"))
    rows = [
        (code(each.value), "yes" if each in READ_SCOPES else "no", "<br>".join(opened.get(each.value, ())))
        for each in Scope
    ]
    return page(
        "Scopes",
        "The scopes of a key are its permissions. A new key has every `:read` scope unless you choose otherwise; other"
        " scopes have to be named. A request without the necessary scope is answered 403 `insufficient_scope` with"
        " `required_scope`. Events need the read scope of their resource: see [event types](event-types.md).",
        table(("scope", "given by default", "opens"), rows),
        description="The scopes of an API key.",
    )


def numbers() -> str:
    """Return the page of the limits, from the module with the contract's numbers."""
    tree = ast.parse(inspect.getsource(limits))
    rows = []
    for statement, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            note = ""
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                note = " ".join(textwrap.dedent(str(following.value.value)).split())
            rows.append((code(name), code(str(getattr(limits, name))), note))
    return page(
        "Limits",
        "The numbers of the contract in `booking_core.models.limits`. Times end in `_S` (seconds) or `_DAYS`;"
        " retention and the webhook times are defaults that [settings](settings.md) change.",
        table(("name", "value", "note"), rows),
        description="Every number of the contract.",
    )
