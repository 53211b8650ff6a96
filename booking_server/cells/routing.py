"""Find the cell of a request, by what its key or link names, before anything is looked up."""

from collections.abc import Iterable

from booking_core import cells, guest_links, tokens
from booking_core.errors import BookingError
from booking_server.execution.authenticator import bearer_token

MANAGE = "/manage/"


def subject_of(path: str, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return what a cell would forward: the organization of the guest's link in the path, or the hash of the key."""
    if path.startswith(MANAGE):
        named = guest_links.organization_and_cell(path.removeprefix(MANAGE).removesuffix("/cancel"))
        return named and named[0]
    try:
        return cells.subject_of_key(bearer_token(headers))
    except BookingError:
        return None


def cell_named_by(path: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the cell that the guest's link in the path, or the key, names; empty for none."""
    if path.startswith(MANAGE):
        return _cell_of_link(path.removeprefix(MANAGE))
    try:
        return tokens.cell_of_api_key(bearer_token(headers))
    except BookingError:
        return ""


def _cell_of_link(token: str) -> str:
    named = guest_links.organization_and_cell(token.removesuffix("/cancel"))
    return named[1] if named else ""
