"""The changelog of the API's versions, as the description and `docs/api-changelog.md` show it (API v1 section 9).

`python -m booking_server.api.openapi.changelog` prints the page.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple


class Change(NamedTuple):
    """An entry of the changelog."""

    date: str
    version: str
    """The version of the resource shapes from then on."""
    kind: Literal["initial", "breaking", "additive"]
    text: str


CHANGES = tuple(Change(**each) for each in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8")))
"""The oldest first; `changelog.json` has them."""


def machine_readable() -> list[dict[str, Any]]:
    """Return the changelog as the description's `x-changelog`."""
    return [
        {"date": each.date, "version": each.version, "breaking": each.kind == "breaking", "change": each.text}
        for each in CHANGES
    ]


def table() -> str:
    """Return the changelog as a Markdown table."""
    return "\n".join(_rows())


def _rows() -> Iterator[str]:
    yield "| Date | Version | Change |"
    yield "|---|---|---|"
    for each in CHANGES:
        yield f"| {each.date} | {each.version} | {each.text} |"


PAGE = f"""\
# Changelog of the API

The version of the resource shapes is a date. It is `info.version` of `GET /api/v1/openapi.json` and `api_version` in
every event. Additions do not change it; a breaking change does, and is announced here at least 30 days before it
happens, while the API is in beta. `info.x-changelog` of the description holds the same for programs.

{table()}

What changed in the software is in [CHANGELOG.md](../CHANGELOG.md).
"""


if __name__ == "__main__":
    sys.stdout.write(PAGE)
