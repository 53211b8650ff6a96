"""Find the cell of a request, by what its key or link names, before anything is looked up."""

from collections.abc import Iterable

from booking_core.base import guest_links, tokens
from booking_core.base.errors import BookingError
from booking_core.payments import stripe_accounts
from booking_server.execution.authenticator import bearer_token
from booking_server.guest_pages import GUEST_PAGES

STRIPE_WEBHOOKS = stripe_accounts.WEBHOOK_PATH
NAMED_BY_PATH = (*GUEST_PAGES, STRIPE_WEBHOOKS)
"""Paths that name the cell of an organization."""


def cell_named_by(path: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the cell that the path, or the key, names; empty for none.

    A path is the address of Stripe's webhooks, or a guest's link, whose token is followed by the name of a page.
    """
    if path.startswith(STRIPE_WEBHOOKS):
        named = stripe_accounts.organization_and_cell(path.removeprefix(STRIPE_WEBHOOKS))
    elif path.startswith(GUEST_PAGES):
        named = guest_links.organization_and_cell(path.split("/")[2])
    else:
        try:
            return tokens.cell_of_api_key(bearer_token(headers))
        except BookingError:
            return ""
    return named[1] if named else ""
