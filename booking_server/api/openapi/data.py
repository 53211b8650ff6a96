"""The prose, the examples and the changelog of the OpenAPI document, from the data files beside this module."""

import json
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from booking_core.models.limits import API_VERSION

_FOLDER = Path(__file__).parent


@cache
def changes() -> list[dict[str, Any]]:
    """Return the changes, the oldest first: the description's `x-changelog`."""
    entries: list[dict[str, Any]] = json.loads((_FOLDER / "changelog.json").read_text(encoding="utf-8"))
    return entries


def changelog_page() -> str:
    """Return the page of the documentation with the changes."""
    return _filled("changelog.md")


def _filled(name: str) -> str:
    """Return a template with its values. The changelog is a Markdown table."""
    rows = [f"| {change['date']} | {change['version']} | {change['change']} |" for change in changes()]
    table = "\n".join(["| Date | Version | Change |", "|---|---|---|", *rows])
    return Template((_FOLDER / name).read_text(encoding="utf-8")).substitute(api_version=API_VERSION, changelog=table)


def description() -> str:
    """Return the description of the API, in Markdown."""
    return _filled("description.md")


@cache
def webhook_description() -> str:
    """Return the description of every webhook, in Markdown."""
    return (_FOLDER / "webhooks.md").read_text().rstrip("\n")


@cache
def examples() -> Any:
    """Return the examples: `tags`, `events`, `bodies` and `resources` by model, `event_data` by event type."""
    return json.loads((_FOLDER / "examples.json").read_text())


@cache
def components() -> Any:
    """Return what several operations share: `headers` and `parameters` by name, and the `delivery_headers`."""
    return json.loads((_FOLDER / "components.json").read_text())


CURSOR = "AQYtOT0mFgAAehyeVDsNT2qdPhxbii9OYJ1kT3p1Z0hK9mQ2b3JyZWN0"
EVENT_ID = "5d0f6a0c-8f0e-4a83-9a52-0f6a3f1c7d21"


def envelope(kind: str) -> dict[str, Any]:
    """Return an example of an event of that type, as it is delivered."""
    return {
        "id": EVENT_ID,
        "type": kind,
        "created_at": "2026-11-21T13:00:00+01:00",
        "api_version": API_VERSION,
        "sequence": 5210,
        "data": examples()["event_data"][kind],
    }
