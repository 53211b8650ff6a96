"""What an endpoint of the API is: one declaration that the dispatcher carries out and the OpenAPI document shows, so
that the two cannot drift apart."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from booking_core.context import Caller
from booking_core.db.engine import Tx
from booking_core.errors import BookingError
from booking_core.idempotency import Answer, Once
from booking_core.models.base import Request
from booking_core.models.scopes import Scope
from booking_server.api.params import Param, Values


@dataclass(frozen=True, slots=True)
class Call:
    """A request that passed every check: its path ids, its query, its body."""

    caller: Caller
    ids: Mapping[str, str]
    query: Values
    body: Any
    once: Once | None
    refuse: Callable[[BookingError], Answer]
    prepared: Any = None
    """What `prepare` found."""


Read = Callable[[Tx, Call], object]
"""Gives what is answered with 200: a dict for JSON, or JSON bytes."""
Write = Callable[[Tx, Call], Answer]
"""Collects its writes, and gives the answer that is stored for the idempotency key."""
Prepare = Callable[[Call, Callable[[str], bool]], Any]
"""Asks the world outside what a write has to know, before its transaction begins; it is given what tells whether a URL
leads to a public address."""
Book = Callable[[Call], Any]
"""Gives the request for the desk that books what waits together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path."""

    id: str
    method: str
    path: str
    tag: str
    summary: str
    description: str = ""
    scope: Scope | None = None
    any_scope: tuple[Scope, ...] = ()
    """Where the scope depends on what is asked for: without any of these nothing can be, and the first is named."""
    act: Read | None = None
    write: Write | None = None
    prepare: Prepare | None = None
    book: Book | None = None
    query: tuple[Param, ...] = ()
    body: type[Request] | None = None
    body_optional: bool = False
    idempotency: str | None = None
    """`required`, `optional`, or none when the endpoint takes no key."""
    answers: Mapping[int, tuple[str, Any]] = field(default_factory=dict)
    """Success statuses: what they say, and the wire model of their body."""
    refusals: tuple[type[BookingError], ...] = ()
    """What it may refuse beyond what every operation may."""
    example: Mapping[str, Any] | None = None
    """A body that works."""
