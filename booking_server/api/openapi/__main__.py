"""`python -m booking_server.api.openapi` prints the OpenAPI document as it is kept in the repository."""

import sys

from booking_server.api.openapi.document import rendered
from booking_server.app import describe

if __name__ == "__main__":
    sys.stdout.buffer.write(rendered(describe().openapi()))
