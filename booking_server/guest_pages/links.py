"""The parts of a secret link: the token, the page below it, and the language that was chosen on the page."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from fastapi import Request

from booking_core.base.languages import NAMES
from booking_server.api.dependencies import ServiceDep

PAGES = ("cancel", "move", "receipt", "calendar.ics")
_ACCEPTED_MAX = 10


@dataclass(frozen=True, slots=True)
class Link:
    """The parts of a secret link."""

    token: str
    path: str
    """The path of the first page, as a browser sees it."""
    page: str
    """The page below it; empty: the first page."""
    locale: str | None
    """The language that was chosen; None: the guest's own."""
    has_moved: bool = False
    """The link leads to the page after a move."""

    @property
    def query(self) -> str:
        """Return the query that keeps the chosen language."""
        return f"?lang={self.locale}" if self.locale else ""

    def to(self, page: str = "") -> str:
        """Return the address of a page of this link, in the chosen language."""
        return f"{self.path}/{page}{self.query}" if page else f"{self.path}{self.query}"

    def in_language(self, code: str) -> str:
        """Return the address of the same page in another language."""
        return f"{self.path}/{self.page}?lang={code}" if self.page else f"{self.path}?lang={code}"


async def get_link(token: str, request: Request, service: ServiceDep) -> Link:
    """Split the rest of a path into the token and the page below it."""
    front, _, page = token.rpartition("/")
    if page in PAGES:
        token = front
    else:
        page = ""
    path = f"{_prefix(service.installation.public_url)}/manage/{token}"
    return Link(token, path, page, chosen_language(request), request.query_params.get("moved") == "1")


async def get_gift_card_link(token: str, request: Request, service: ServiceDep) -> Link:
    """Return the link of a gift card's page."""
    path = f"{_prefix(service.installation.public_url)}/gift-card/{token}"
    return Link(token, path, "", chosen_language(request))


def _prefix(public_url: str) -> str:
    return urlsplit(public_url).path


def chosen_language(request: Request) -> str | None:
    """Return the supported language of the query, or None."""
    chosen = request.query_params.get("lang")
    return chosen if chosen in NAMES else None


def language_of_stranger(request: Request) -> str | None:
    """Return the language for a visitor whose booking is not known: chosen, else the first that the browser accepts."""
    accepted = request.headers.get("accept-language", "").split(",")[:_ACCEPTED_MAX]
    codes = (tag.partition(";")[0].strip().partition("-")[0].lower() for tag in accepted)
    return chosen_language(request) or next((code for code in codes if code in NAMES), None)
