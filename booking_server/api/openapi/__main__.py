"""`python -m booking_server.api.openapi` prints `openapi.json`, and with `changelog` `docs/api-changelog.md`."""

import sys

from booking_server.api.openapi import data
from booking_server.api.openapi.document import rendered
from booking_server.app import describe

if __name__ == "__main__":
    is_changelog = sys.argv[1:] == ["changelog"]
    sys.stdout.buffer.write(data.changelog_page().encode() if is_changelog else rendered(describe().openapi()))
