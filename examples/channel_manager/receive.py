"""Mirrors bookings by receiving webhooks: `python receive.py MIRROR PORT`.

It wants BOOKING_WEBHOOK_SECRET. An answer of 2xx is given when the mirror has committed, never before; whatever goes
wrong until then, the service sends the event again. So this, too, may be killed at any moment.
"""

import sqlite3
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mirror import Mirror

from booking_sdk import WebhookVerificationError, unwrap
from webhook_verify import Verifier

BODY_BYTES_MAX = 1 << 20
SILENCE_S = 30


class Receiver(ThreadingHTTPServer):
    """Listens for deliveries, signed with the verifier's secret, that go into the mirror."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], path: str, verifier: Verifier) -> None:
        self.path = path
        self.verifier = verifier
        Mirror(path).close()  # fail at the start if the file cannot be opened
        super().__init__(address, Delivery)


class Delivery(BaseHTTPRequestHandler):
    """A handler for one connection, which carries one delivery after the other."""

    server: Receiver
    protocol_version = "HTTP/1.1"
    timeout = SILENCE_S

    def setup(self) -> None:
        super().setup()
        self.mirror = Mirror(self.server.path)

    def finish(self) -> None:
        self.mirror.close()
        super().finish()

    def do_POST(self) -> None:
        status = self._received()
        # A body that was not read would be taken for the next request.
        self.close_connection = self.close_connection or status == 413
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _received(self) -> int:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
            return 413
        try:
            self.mirror.handle(unwrap(self.rfile.read(int(length)), self.headers.items(), self.server.verifier))
        except WebhookVerificationError as error:
            return error.http_status
        except sqlite3.OperationalError as error:
            self.log_error("not taken in, to be sent again: %s", error)
            return 503
        return 204

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing: the mirror has the deliveries that were taken in."""


if __name__ == "__main__":
    with Receiver(("127.0.0.1", int(sys.argv[2])), sys.argv[1], Verifier.from_env()) as receiver:
        receiver.serve_forever()
