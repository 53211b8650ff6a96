"""Builds the requests of lists from the arguments that the TypedDicts of `params` declare."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from booking_sdk._page_iterator import PageIterator, resume_windows
from booking_sdk.request import RequestSpec, checked_date, get, utc_timestamp

_CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("departure_from", "departure_to"), checked_date),
    **dict.fromkeys(("updated_since", "created_since", "created_until"), utc_timestamp),
}
"""The functions that check the days and the times among the filters."""
_NOT_SENT = frozenset({"options", "page_size", "max_items"})


def list_spec(kind: type, *segments: str, arguments: Mapping[str, Any], **query: Any) -> RequestSpec:
    """Build the request of one page.

    Args:
        kind: The TypedDict of the arguments.
        segments: The path below `/api/v1`.
        arguments: The arguments of the call.
        query: Other parameters of the query.

    Raises:
        TypeError: The call has an argument that the TypedDict does not have, or a filter of another type.
    """
    parameters = {"limit": 25, "order": "desc"} | query | _query(kind, arguments)
    return get(*segments, query=parameters, options=arguments.get("options"))


def page_iterator(
    kind: type,
    *segments: str,
    arguments: Mapping[str, Any],
    windows: Sequence[Mapping[str, Any]] = ({},),
    **query: Any,
) -> PageIterator:
    """Return the iterator over the pages of a list.

    Args:
        kind: The TypedDict of the arguments.
        segments: The path below `/api/v1`.
        arguments: The arguments of the call.
        windows: The parameters of each part of the list, which is requested on its own.
        query: Other parameters of the query.

    Raises:
        TypeError: The call has an argument that the TypedDict does not have, or a filter of another type.
    """
    parameters = {"order": "desc"} | query | _query(kind, arguments)
    cursor = parameters.pop("starting_after", None)
    options = arguments.get("options")
    specs = [get(*segments, query=parameters | dict(window), options=options) for window in windows]
    return PageIterator(resume_windows(specs, cursor), arguments.get("page_size", 100), arguments.get("max_items"))


def _query(kind: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := arguments.keys() - kind.__annotations__.keys():
        raise TypeError(f"unexpected arguments: {', '.join(sorted(unknown))}")
    query = {name: value for name, value in arguments.items() if value is not None and name not in _NOT_SENT}
    return {name: _CHECKS[name](name, value) if name in _CHECKS else value for name, value in query.items()}
