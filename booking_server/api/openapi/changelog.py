"""The changelog of the API's versions, as the description and `docs/api-changelog.md` show it (API v1 section 9).

`python -m booking_server.api.openapi.changelog` prints the page.
"""

import json
import sys
from pathlib import Path
from typing import Any

CHANGES: list[dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
"""The oldest first; `changelog.json` has them. It is the description's `x-changelog`."""


def table() -> str:
    """Return the changelog as a Markdown table."""
    rows = [f"| {each['date']} | {each['version']} | {each['change']} |" for each in CHANGES]
    return "\n".join(["| Date | Version | Change |", "|---|---|---|", *rows])


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
