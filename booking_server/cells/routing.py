"""Find the cell of a request, by what its key or link names, before anything is looked up."""

from collections.abc import Iterable

from booking_core import cells, guest_links, tokens
from booking_core.errors import BookingError
from booking_server.execution.authenticator import bearer_token

GUEST_PAGES = ("/manage/", "/gift-card/")


def subject_of(path: str, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return what a cell would forward: the organization of the guest's link in the path, or the hash of the key."""
    if path.startswith(GUEST_PAGES):
        named = _named_by_link(path)
        return named and named[0]
    try:
        return cells.subject_of_key(bearer_token(headers))
    except BookingError:
        return None


def cell_named_by(path: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the cell that the guest's link in the path, or the key, names; empty for none."""
    if path.startswith(GUEST_PAGES):
        named = _named_by_link(path)
        return named[1] if named else ""
    try:
        return tokens.cell_of_api_key(bearer_token(headers))
    except BookingError:
        return ""


def _named_by_link(path: str) -> tuple[str, str] | None:
    """Return the organization and the cell of a guest's link, whose token is followed by the name of a page."""
    _, _, token, *_ = path.split("/")
    return guest_links.organization_and_cell(token)
