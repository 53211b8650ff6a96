"""Decides which page of a list is requested next. Nothing in this module does I/O.

From page to page only the cursor of the request changes; filters, headers, timeouts and all other options stay.
"""

from collections.abc import Sequence
from typing import Any

from booking_core.models.limits import PAGE_LIMIT_MAX
from booking_core.models.pages import Page
from booking_sdk.errors import PaginationError
from booking_sdk.request import RequestSpec

_WINDOW_PREFIX = "window_"


def next_page_spec(spec: RequestSpec, page: Page[Any]) -> RequestSpec | None:
    """Return the request for the page after this one; None when this is the last.

    Raises:
        PaginationError: There is another page, but its cursor is missing or leads back to this page.
    """
    if not page.has_more:
        return None
    if not page.next_cursor:
        raise PaginationError("has_more is true, but the page has no next_cursor")
    if page.next_cursor == spec.query_parameter("starting_after"):
        raise PaginationError("a page's next_cursor leads to itself")
    return spec.with_query(starting_after=page.next_cursor)


def resume_windows(specs: Sequence[RequestSpec], cursor: str | None) -> list[RequestSpec | None]:
    """Return the requests for several date windows, continued at a cursor; None for each window that is complete.

    Args:
        specs: One request per window.
        cursor: The `cursor` of an earlier iterator over the same windows.

    Raises:
        ValueError: The cursor does not belong to these windows.
    """
    if cursor is None or len(specs) <= 1:
        return [spec if cursor is None else spec.with_query(starting_after=cursor) for spec in specs]
    window, dot, inner = cursor.removeprefix(_WINDOW_PREFIX).partition(".")
    if not (cursor.startswith(_WINDOW_PREFIX) and dot and window.isdecimal() and int(window) < len(specs)):
        raise ValueError("starting_after is not a cursor of an iterator over these date windows")
    index = int(window)
    first = specs[index].with_query(starting_after=inner) if inner else specs[index]
    return [*[None] * index, first, *specs[index + 1 :]]


class PageIterator:
    """The position in a list, or in several date windows of a list, and the requests for its pages.

    An empty page with `has_more` is followed by the next page; a cursor that repeats is an error.
    """

    def __init__(self, specs: Sequence[RequestSpec | None], page_size: int | None, max_items: int | None) -> None:
        """Begin before the first page.

        Args:
            specs: One request per window, None for a window that is complete.
            page_size: The `limit` of each request; None for a list without pages.
            max_items: The maximum number of items; None for all.
        """
        self._window_count = len(specs)
        remaining = [spec for spec in specs if spec is not None]
        if page_size is not None and not 1 <= page_size <= PAGE_LIMIT_MAX:
            raise ValueError(f"page_size must be from 1 to {PAGE_LIMIT_MAX}")
        if max_items is not None and max_items < 0:
            raise ValueError("max_items must not be negative")
        if any(spec.is_raw for spec in remaining):
            raise TypeError("with_raw_response takes a method that sends one request; an iterator sends many")
        self._specs = remaining[::-1]
        self._page_size = page_size
        self._seen_cursors: set[str] = set()
        self.items_left: int | None = max_items
        """How many more items may be returned; None for all."""
        self._position = self._requested = (
            self._window_count - len(remaining),
            remaining[0].query_parameter("starting_after") if remaining else None,
        )

    @property
    def cursor(self) -> str | None:
        """Return the cursor from where another iterator can continue. With several windows it names the window too."""
        window, cursor = self._position
        if self._window_count <= 1 or self._page_size is None:
            return cursor
        return f"{_WINDOW_PREFIX}{window}.{cursor or ''}"

    def next_spec(self) -> RequestSpec | None:
        """Return the request for the next page; None at the end."""
        if not self._specs or self.items_left == 0:
            return None
        spec = self._specs[-1]
        self._requested = self._window_count - len(self._specs), spec.query_parameter("starting_after")
        if self._page_size is None:
            return spec
        limit = self._page_size if self.items_left is None else min(self._page_size, self.items_left)
        return spec.with_query(limit=str(limit))

    def received(self, page: Page[Any]) -> None:
        """Advance past a page.

        Raises:
            PaginationError: The page's cursor leads nowhere.
        """
        spec, self._position = self._specs.pop(), self._requested
        if (following := next_page_spec(spec, page)) is None:
            return
        cursor = str(page.next_cursor)
        if cursor in self._seen_cursors:
            raise PaginationError("a page's next_cursor leads back to an earlier page")
        self._seen_cursors.add(cursor)
        self._specs.append(following)
