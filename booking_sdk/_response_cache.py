"""Bodies of responses with their entity tags, so that a body that has not changed is not sent again."""

import threading
from collections import OrderedDict

from booking_sdk.response import Response


class ResponseCache:
    """A cache for responses with an ETag: experiences, availability, departures and single resources.

        client = BookingClient(cache=ResponseCache())

    Each call still sends a request, with `If-None-Match`, so that a result is never stale. When the service responds
    304, the result is made of the body that came before, and `meta(result).from_cache` is True. A cache may be shared
    by clients and threads. It holds the bodies in memory, personal data included, and drops the least recently used.
    """

    def __init__(self, max_entries: int = 256) -> None:
        """Create an empty cache.

        Args:
            max_entries: The maximum number of responses.

        Raises:
            ValueError: The number is below 1.
        """
        if max_entries < 1:
            raise ValueError("max_entries must be at least 1")
        self._max_entries = max_entries
        self._entries: OrderedDict[str, tuple[str, Response]] = OrderedDict()
        self._lock = threading.Lock()

    def clear(self) -> None:
        """Drop all responses."""
        with self._lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<ResponseCache of {len(self)}>"

    def etag(self, url: str) -> str | None:
        """Return the entity tag of the response from a URL; None without one."""
        with self._lock:
            entry = self._entries.get(url)
        return entry[0] if entry else None

    def resolve(self, url: str, etag: str | None, response: Response) -> Response:
        """Return the response to use: for a 304 to the tag, the body of the response before. Store one with a tag."""
        with self._lock:
            before = self._entries.get(url)
            if response.status_code == 304 and before and before[0] == etag:
                self._entries.move_to_end(url)
                kept = [(b"content-type", b"application/json"), *response.raw_headers]
                return Response(200, kept, before[1].body, from_cache=True)
            tag = response.headers.get("etag")
            if response.status_code == 200 and tag:
                self._entries[url] = (tag, response)
                self._entries.move_to_end(url)
                while len(self._entries) > self._max_entries:
                    self._entries.popitem(last=False)
        return response
