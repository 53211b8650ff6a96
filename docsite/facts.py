"""Pages of facts from the code: settings, error codes, event types and scopes."""

import json
from collections.abc import Mapping
from typing import Any, get_args

from booking_cli.framework.environment import VARIABLES
from booking_core.models.events import READ_SCOPE, EventType
from booking_core.models.reasons import ErrorReason
from booking_core.models.scopes import READ_SCOPES, Scope
from booking_server.api import errors
from docsite.markdown import code, fence, page, table

FOLDER = "docs/reference"


def pages(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of every page by its path."""
    return {
        f"{FOLDER}/settings.md": settings(),
        f"{FOLDER}/error-codes.md": error_codes(),
        f"{FOLDER}/event-types.md": event_types(document),
        f"{FOLDER}/scopes.md": scopes(document),
    }


def settings() -> str:
    """Return the page of the settings: what the command's page about the environment has, without its client half."""
    rows = [(code(name), meaning) for name, half, meaning in VARIABLES if half == "operator"]
    return page(
        "Settings",
        "Every setting is an environment variable; an empty variable counts as absent. With an invalid setting, a"
        " program ends at its start with exit code 2 and one line that names the setting. `serve` and `worker` log the"
        " effective settings, with secrets masked.",
        table(("setting", "meaning; default"), rows),
        "[Running the service](../guides/operators/index.md) explains the important ones;"
        " `booking help environment` also lists the settings of client commands.",
        description="Every setting of an installation with its default.",
    )


def error_codes() -> str:
    """Return the page of the error codes with their statuses and a message of each."""
    rows = [
        (code(name), str(status), example["value"]["error"])
        for status, response in errors.refusals(*errors.STATUS).items()
        for name, example in errors.examples_of(response).items()
    ]
    internal = json.loads(errors.internal(errors.REQUEST_ID).body)
    rows.append((code(internal["code"]), str(errors.INTERNAL_STATUS), internal["error"]))
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
    for event_type in EventType:
        described = document["webhooks"][event_type.value]["post"]
        scope = code(READ_SCOPE[event_type.resource_type].value)
        link = f"[{event_type.value}](#{event_type.value.replace('.', '-')})"
        rows.append((link, code(event_type.resource_type.value), scope, described["summary"]))
        bodies.append(f"## {event_type.value} {{ #{event_type.value.replace('.', '-')} }}")
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
            if required := operation.get("x-required-scope"):
                opened.setdefault(required, []).append(code(f"{method.upper()} {path}"))
    rows = [
        (code(scope.value), "yes" if scope in READ_SCOPES else "no", "<br>".join(opened.get(scope.value, ())))
        for scope in Scope
    ]
    return page(
        "Scopes",
        "The scopes of a key are its permissions. A new key has every `:read` scope unless you choose otherwise; other"
        " scopes have to be named. A request without the necessary scope is answered 403 `insufficient_scope` with"
        " `required_scope`. Events need the read scope of their resource: see [event types](event-types.md).",
        table(("scope", "given by default", "opens"), rows),
        description="The scopes of an API key.",
    )
