"""Lists: one page at a time, or all of it as it is needed.

The walk itself is decided here once, without I/O: `Walk` says which request comes next, goes on behind an empty page,
and refuses a cursor that leads back. What it changes in the request is the cursor; filters, headers, timeouts and
whatever else was asked for stay.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from booking_core.models.limits import PAGE_LIMIT_MAX
from booking_core.models.pages import EventPage as WireEventPage
from booking_core.models.pages import Page as WirePage
from booking_sdk.errors import ConfigurationError, PaginationError
from booking_sdk.request import Spec
from booking_sdk.response import ResponseMeta, attach

if TYPE_CHECKING:
    from booking_sdk.client import AsyncBookingClient, BookingClient

T = TypeVar("T")


def following(spec: Spec, page: WirePage[Any]) -> Spec | None:
    """The request for the page behind this one; none when it is the last.

    Raises:
        PaginationError: more follows, and the cursor that leads there is missing or the one that led here.
    """
    if not page.has_more:
        return None
    if not page.next_cursor:
        raise PaginationError("a page says that more follows, and holds no cursor to it")
    if page.next_cursor == spec.value("starting_after"):
        raise PaginationError("a page's next_cursor leads to itself")
    return spec.with_query(starting_after=page.next_cursor)


_WINDOW = "window_"


def from_cursor(specs: Sequence[Spec], cursor: str | None) -> list[Spec | None]:
    """Return the requests of a walk through several windows, from where its `cursor` stands; None for those done.

    Raises:
        ValueError: it is not the cursor of such a walk.
    """
    if cursor is None or len(specs) <= 1:
        return [spec if cursor is None else spec.with_query(starting_after=cursor) for spec in specs]
    window, dot, inner = cursor.removeprefix(_WINDOW).partition(".")
    if not (cursor.startswith(_WINDOW) and dot and window.isdecimal() and int(window) < len(specs)):
        raise ValueError("starting_after is not the cursor of a walk through these windows")
    done = int(window)
    first = specs[done].with_query(starting_after=inner) if inner else specs[done]
    return [*[None] * done, first, *specs[done + 1 :]]


class Walk:
    """Where a walk through one list, or through several behind each other, stands."""

    def __init__(self, specs: Sequence[Spec | None], page_size: int | None, max_items: int | None) -> None:
        self._windows = len(specs)
        left = [spec for spec in specs if spec is not None]
        if page_size is not None and not 1 <= page_size <= PAGE_LIMIT_MAX:
            raise ValueError(f"page_size must be from 1 to {PAGE_LIMIT_MAX}")
        if max_items is not None and max_items < 0:
            raise ValueError("max_items must not be negative")
        if any(spec.raw for spec in left):
            raise TypeError("a walk has many answers: with_raw_response takes a method that has one")
        self._specs = left[::-1]
        self._page_size = page_size
        self._cursors: set[str] = set()
        self.left: int | None = max_items
        """How many items may still be given."""
        self._place = self._asked = (
            self._windows - len(left),
            left[0].value("starting_after") if left else None,
        )

    @property
    def cursor(self) -> str | None:
        """Return where a later walk takes this one up; of a walk through several windows it names the window too."""
        window, cursor = self._place
        if self._windows <= 1 or self._page_size is None:
            return cursor
        return f"{_WINDOW}{window}.{cursor or ''}"

    def next_spec(self) -> Spec | None:
        """The request for the next page; none at the end."""
        if not self._specs or self.left == 0:
            return None
        spec = self._specs[-1]
        self._asked = self._windows - len(self._specs), spec.value("starting_after")
        if self._page_size is None:
            return spec
        limit = self._page_size if self.left is None else min(self._page_size, self.left)
        return spec.with_query(limit=str(limit))

    def took(self, page: WirePage[Any]) -> None:
        """Goes on behind a page."""
        spec, self._place = self._specs.pop(), self._asked
        if (behind := following(spec, page)) is None:
            return
        cursor = str(page.next_cursor)
        if cursor in self._cursors:
            raise PaginationError("a page's next_cursor leads back to a page that was read before")
        self._cursors.add(cursor)
        self._specs.append(behind)


class AsyncPage(Generic[T]):
    """One page of a list. Iterating gives the items of this page, and asks for no other."""

    _envelope: Any = WirePage

    def __init__(
        self, client: "AsyncBookingClient", spec: Spec, kind: Any, page: WirePage[T], meta: ResponseMeta
    ) -> None:
        self._client: AsyncBookingClient | None = client
        self._spec: Spec | None = spec
        self._kind = kind
        self._page = page
        attach(self, meta)

    @property
    def data(self) -> list[T]:
        """The items, in the order asked for."""
        return self._page.data

    @property
    def has_more(self) -> bool:
        """Whether more follow."""
        return self._page.has_more

    @property
    def next_cursor(self) -> str | None:
        """What `starting_after` takes to get the next page, now or later."""
        return self._page.next_cursor

    async def next_page(self) -> Self | None:
        """The page behind this one, asked for with the same filters and options; none when this is the last.

        Raises:
            PaginationError: more follows, and no cursor leads there.
        """
        if not self.has_more:
            return None
        if self._client is None or self._spec is None:
            raise ConfigurationError("a page that was pickled has no client: list(starting_after=page.next_cursor)")
        spec = following(self._spec, self._page)
        return None if spec is None else await self._client._page(spec, self._kind, type(self))

    def to_json(self) -> dict[str, Any]:
        """The page as the API spells it."""
        return self._page.to_json()

    def __getstate__(self) -> dict[str, Any]:
        """The page without its client, whose connections stay in their process."""
        fields = {**self._page.__dict__, **(self._page.__pydantic_extra__ or {})}
        return {**self.__dict__, "_client": None, "_spec": None, "_kind": None, "_page": fields}

    def __setstate__(self, state: dict[str, Any]) -> None:
        page = self._envelope.model_construct(**state["_page"])
        self.__dict__.update(state, _page=page)

    def __iter__(self) -> Iterator[T]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)}, has_more={self.has_more}>"


class AsyncEventPage(AsyncPage[T]):
    """One page of the event feed."""

    _envelope = WireEventPage

    @property
    def resume_cursor(self) -> str | None:
        """What `starting_after` takes to go on behind this page with the same order, also when nothing is there yet."""
        cursor: str | None = getattr(self._page, "resume_cursor", None)
        return cursor


class AsyncPaginator(AsyncIterator[T]):
    """Every item of a list, page after page, each asked for when the one before is used up.

    It goes forward only, like a file: what was given once is not given again.
    """

    def __init__(self, client: "AsyncBookingClient", walk: Walk, kind: Any) -> None:
        self._client = client
        self._walk = walk
        self._kind = kind
        self._items: Iterator[T] = iter(())

    @property
    def cursor(self) -> str | None:
        """Where a later walk can take this one up: `iterate(starting_after=cursor)`, with the same filters and order.

        It stands in front of the page that is being given out, so that a walk that was broken off repeats items of
        that page, and misses none. None: from the beginning.
        """
        return self._walk.cursor

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while self._walk.left != 0:
            for item in self._items:
                if self._walk.left is not None:
                    self._walk.left -= 1
                return item
            page = await self._turn()
            if page is None:
                break
            self._items = iter(page.data)
        raise StopAsyncIteration

    async def pages(self) -> AsyncIterator[AsyncPage[T]]:
        """The pages that are left, whole."""
        while (page := await self._turn()) is not None:
            if self._walk.left is not None:
                self._walk.left = max(0, self._walk.left - len(page))
            yield page

    async def take(self, count: int) -> list[T]:
        """The next items, at most that many."""
        taken: list[T] = []
        while len(taken) < count:
            try:
                taken.append(await anext(self))
            except StopAsyncIteration:
                break
        return taken

    async def first(self) -> T | None:
        """The next item; none when there is none."""
        found = await self.take(1)
        return found[0] if found else None

    async def _turn(self) -> AsyncPage[T] | None:
        spec = self._walk.next_spec()
        if spec is None:
            return None
        page: AsyncPage[T] = await self._client._page(spec, self._kind, AsyncPage)
        self._walk.took(page._page)
        return page


# Made from the classes above by tests/booking_sdk/unasync.py; change those, and run it. -------------------------------


class Page(Generic[T]):
    """One page of a list. Iterating gives the items of this page, and asks for no other."""

    _envelope: Any = WirePage

    def __init__(self, client: "BookingClient", spec: Spec, kind: Any, page: WirePage[T], meta: ResponseMeta) -> None:
        self._client: BookingClient | None = client
        self._spec: Spec | None = spec
        self._kind = kind
        self._page = page
        attach(self, meta)

    @property
    def data(self) -> list[T]:
        """The items, in the order asked for."""
        return self._page.data

    @property
    def has_more(self) -> bool:
        """Whether more follow."""
        return self._page.has_more

    @property
    def next_cursor(self) -> str | None:
        """What `starting_after` takes to get the next page, now or later."""
        return self._page.next_cursor

    def next_page(self) -> Self | None:
        """The page behind this one, asked for with the same filters and options; none when this is the last.

        Raises:
            PaginationError: more follows, and no cursor leads there.
        """
        if not self.has_more:
            return None
        if self._client is None or self._spec is None:
            raise ConfigurationError("a page that was pickled has no client: list(starting_after=page.next_cursor)")
        spec = following(self._spec, self._page)
        return None if spec is None else self._client._page(spec, self._kind, type(self))

    def to_json(self) -> dict[str, Any]:
        """The page as the API spells it."""
        return self._page.to_json()

    def __getstate__(self) -> dict[str, Any]:
        """The page without its client, whose connections stay in their process."""
        fields = {**self._page.__dict__, **(self._page.__pydantic_extra__ or {})}
        return {**self.__dict__, "_client": None, "_spec": None, "_kind": None, "_page": fields}

    def __setstate__(self, state: dict[str, Any]) -> None:
        page = self._envelope.model_construct(**state["_page"])
        self.__dict__.update(state, _page=page)

    def __iter__(self) -> Iterator[T]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)}, has_more={self.has_more}>"


class EventPage(Page[T]):
    """One page of the event feed."""

    _envelope = WireEventPage

    @property
    def resume_cursor(self) -> str | None:
        """What `starting_after` takes to go on behind this page with the same order, also when nothing is there yet."""
        cursor: str | None = getattr(self._page, "resume_cursor", None)
        return cursor


class Paginator(Iterator[T]):
    """Every item of a list, page after page, each asked for when the one before is used up.

    It goes forward only, like a file: what was given once is not given again.
    """

    def __init__(self, client: "BookingClient", walk: Walk, kind: Any) -> None:
        self._client = client
        self._walk = walk
        self._kind = kind
        self._items: Iterator[T] = iter(())

    @property
    def cursor(self) -> str | None:
        """Where a later walk can take this one up: `iterate(starting_after=cursor)`, with the same filters and order.

        It stands in front of the page that is being given out, so that a walk that was broken off repeats items of
        that page, and misses none. None: from the beginning.
        """
        return self._walk.cursor

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        while self._walk.left != 0:
            for item in self._items:
                if self._walk.left is not None:
                    self._walk.left -= 1
                return item
            page = self._turn()
            if page is None:
                break
            self._items = iter(page.data)
        raise StopIteration

    def pages(self) -> Iterator[Page[T]]:
        """The pages that are left, whole."""
        while (page := self._turn()) is not None:
            if self._walk.left is not None:
                self._walk.left = max(0, self._walk.left - len(page))
            yield page

    def take(self, count: int) -> list[T]:
        """The next items, at most that many."""
        taken: list[T] = []
        while len(taken) < count:
            try:
                taken.append(next(self))
            except StopIteration:
                break
        return taken

    def first(self) -> T | None:
        """The next item; none when there is none."""
        found = self.take(1)
        return found[0] if found else None

    def _turn(self) -> Page[T] | None:
        spec = self._walk.next_spec()
        if spec is None:
            return None
        page: Page[T] = self._client._page(spec, self._kind, Page)
        self._walk.took(page._page)
        return page
