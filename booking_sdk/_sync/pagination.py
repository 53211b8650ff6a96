# Generated from booking_sdk/pagination.py by `make sync-client`. Do not edit.
"""Pages of a list, and iterators over all its items.

`booking_sdk._page_iterator` decides which page comes next.
"""

from collections.abc import Iterator
from typing import Any, Generic, Self, TypeVar, cast, overload

from booking_core.models.pages import EventPage as EventPageModel
from booking_core.models.pages import Page as PageModel
from booking_core.models.suggestions import Suggesting
from booking_sdk._page_iterator import PageIterator, next_page_spec
from booking_sdk._parse import validate_body
from booking_sdk._sync._base_client import APIClient
from booking_sdk.errors import ConfigurationError
from booking_sdk.request import RequestSpec
from booking_sdk.response import Response, ResponseMeta, attach_meta

T = TypeVar("T", covariant=True)


class Page(Suggesting, Generic[T]):
    """A page of a list. Iterating over it yields the items of this page and sends no request.

        page = client.bookings.list(limit=10)
        for booking in page:
            print(booking.booking_number)

    `next_page` requests the next one.
    """

    _model: Any = PageModel

    def __init__(
        self, client: APIClient, spec: RequestSpec, item_type: Any, page: PageModel[T], meta: ResponseMeta
    ) -> None:
        self._client: APIClient | None = client
        self._spec: RequestSpec | None = spec
        self._item_type = item_type
        self._page = page
        attach_meta(self, meta)

    @property
    def data(self) -> list[T]:
        """The items of the page, in the requested order."""
        return self._page.data

    @property
    def has_more(self) -> bool:
        """True when more items follow this page."""
        return self._page.has_more

    @property
    def next_cursor(self) -> str | None:
        """The value of `starting_after` for the next page, now or later; None on the last page."""
        return self._page.next_cursor

    def next_page(self) -> Self | None:
        """Request the next page, with the same filters and options.

        Returns:
            The next page, or None when this is the last.

        Raises:
            PaginationError: More items follow, but the page has no valid cursor.
            ConfigurationError: The page was unpickled, so it has no client.
        """
        if not self.has_more:
            return None
        if self._client is None or self._spec is None:
            raise ConfigurationError("a page that was pickled has no client: list(starting_after=page.next_cursor)")
        spec = next_page_spec(self._spec, self._page)
        return None if spec is None else fetch_page(self._client, spec, self._item_type, type(self))

    def to_json(self) -> dict[str, Any]:
        """Return the page as JSON values, with the field names of the API."""
        return self._page.to_json()

    def __getstate__(self) -> dict[str, Any]:
        """Return the page without its client, whose connections belong to this process."""
        fields = {**self._page.__dict__, **(self._page.__pydantic_extra__ or {})}
        return {**self.__dict__, "_client": None, "_spec": None, "_item_type": None, "_page": fields}

    def __setstate__(self, state: dict[str, Any]) -> None:
        page = self._model.model_construct(**state["_page"])
        self.__dict__.update(state, _page=page)

    def __iter__(self) -> Iterator[T]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        return self.data[index]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)}, has_more={self.has_more}>"


PageT = TypeVar("PageT", bound=Page[Any])


def fetch_page(client: APIClient, spec: RequestSpec, item_type: Any, page_class: type[PageT]) -> PageT:
    """Request one page of a list.

    Args:
        client: The client that sends the request.
        spec: The request.
        item_type: The type of the items.
        page_class: The class of the page.
    """
    parsed_spec = spec.without_raw()

    def parse(response: Response, meta: ResponseMeta) -> PageT:
        page = validate_body(page_class._model[item_type], response.body)
        return page_class(client, parsed_spec, item_type, page, meta)

    return client._execute(spec, parse)


class EventPage(Page[T]):
    """A page of the event feed."""

    _model = EventPageModel

    @property
    def resume_cursor(self) -> str:
        """The value of `starting_after` that continues after this page in the same order, even on an empty page."""
        return cast("EventPageModel[T]", self._page).resume_cursor


class Paginator(Suggesting, Iterator[T]):
    """An iterator over all items of a list. It requests each page when the items of the page before are used up.

        for booking in client.bookings.iterate(status="confirmed"):
            print(booking.booking_number)

    Like a file, it moves forward only: it yields each item once.
    """

    def __init__(self, client: APIClient, page_iterator: PageIterator, item_type: Any) -> None:
        self._client = client
        self._page_iterator = page_iterator
        self._item_type = item_type
        self._items: Iterator[T] = iter(())

    @property
    def cursor(self) -> str | None:
        """The cursor to continue with later: `iterate(starting_after=cursor)`, with the same filters and order.

        It points before the current page, so the new iterator repeats items of that page and misses none. None means
        the beginning of the list.
        """
        return self._page_iterator.cursor

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        while self._page_iterator.items_left != 0:
            for item in self._items:
                if self._page_iterator.items_left is not None:
                    self._page_iterator.items_left -= 1
                return item
            page = self._fetch_next()
            if page is None:
                break
            self._items = iter(page.data)
        raise StopIteration

    def pages(self) -> Iterator[Page[T]]:
        """Iterate over the remaining pages instead of the items."""
        while (page := self._fetch_next()) is not None:
            if self._page_iterator.items_left is not None:
                self._page_iterator.items_left = max(0, self._page_iterator.items_left - len(page))
            yield page

    def take(self, count: int) -> list[T]:
        """Return the next items.

        Args:
            count: The maximum number of items.
        """
        items: list[T] = []
        while len(items) < count:
            try:
                items.append(next(self))
            except StopIteration:
                break
        return items

    def first(self) -> T | None:
        """Return the next item; None at the end of the list."""
        items = self.take(1)
        return items[0] if items else None

    def _fetch_next(self) -> Page[T] | None:
        spec = self._page_iterator.next_spec()
        if spec is None:
            return None
        page: Page[T] = fetch_page(self._client, spec, self._item_type, Page)
        self._page_iterator.received(page._page)
        return page

    def __repr__(self) -> str:
        items = self._item_type.__name__ if isinstance(self._item_type, type) else "Event"
        return f"<{type(self).__name__} of {items}, cursor={self.cursor!r}>"
