"""The secret link: it opens one booking, for as long as it lasts, and no other text opens anything."""

import base64
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from support.world.mails import Mails
from support.world.world import DAY, HOUR, SECRET, World

from booking_core import notifications
from booking_core.base.context import Installation
from booking_core.base.errors import NotFound
from booking_core.base.guest_links import ManageLinks, open_token
from booking_core.base.tokens import SecretKeys
from booking_core.db import tables
from booking_core.notifications import GuestView


def token_of(mails: Mails, booking_id: str, installation: Installation | None = None) -> str:
    installation = installation or mails.world.installation
    link = ManageLinks(installation, mails.world.org).make(booking_id, installation.secret_keys.first_id)
    assert link is not None
    return link.rpartition("/")[2]


def opened(mails: Mails, token: str, installation: Installation | None = None) -> GuestView:
    installation = installation or mails.world.installation
    return mails.world.database.read(lambda tx: notifications.open_link(tx, installation, token))


def check_not_found(mails: Mails, token: str, installation: Installation | None = None) -> None:
    with pytest.raises(NotFound):
        opened(mails, token, installation)


def test_it_opens_the_booking_it_was_made_for(mails: Mails) -> None:
    booking = mails.book()
    view = opened(mails, token_of(mails, booking))
    assert view.row.id == booking
    assert (view.summary.title, view.summary.guest_name) == ("Fjord kayak", "Ada Lovelace")
    assert view.actor.organization == mails.world.organization
    assert view.actor.at == mails.world.clock()
    assert not view.has_begun


def test_it_ends_with_the_instant_it_expires_at(mails: Mails) -> None:
    booking = mails.book()
    token = token_of(mails, booking)
    mails.world.clock.at = mails.world.row(tables.bookings, booking)["manage_expires_at"] - 1
    assert opened(mails, token).has_begun
    mails.world.clock.advance(1)
    check_not_found(mails, token)


def test_it_goes_on_when_a_catalogue_moves_the_departure(mails: Mails) -> None:
    booking = mails.book()
    token, row = token_of(mails, booking), mails.world.row(tables.bookings, booking)
    mails.world.change(tables.departures, row["departure_id"], starts_at=row["manage_expires_at"] + HOUR)
    mails.world.clock.at = row["manage_expires_at"]
    assert not opened(mails, token).has_begun
    mails.world.clock.advance(DAY)
    check_not_found(mails, token)


@pytest.mark.parametrize("column", ["manage_key_id", "manage_expires_at"])
def test_a_booking_without_a_link_is_opened_by_none(mails: Mails, column: str) -> None:
    booking = mails.book()
    mails.world.change(tables.bookings, booking, **{column: None})
    check_not_found(mails, token_of(mails, booking))


def mangled(token: str) -> list[str]:
    """Texts that are not the token."""
    data = base64.urlsafe_b64decode(token)
    encoded = [
        base64.urlsafe_b64encode(bytes([*data[:index], data[index] ^ 1, *data[index + 1 :]])).decode()
        for index in range(len(data))
    ]
    shaped = [token[:-1], token + "A", token.swapcase(), token + "\n", f" {token}", token[:-1] + "=", token[:-1] + "+"]
    return [*encoded, *shaped, "", "A" * 64, "é" * 64, "\u0661" * 64, "." * 64, "-" * 64]


def test_no_other_text_opens_anything_or_is_sent_to_the_database(mails: Mails, statements: list[str]) -> None:
    token = token_of(mails, mails.book())
    statements.clear()
    for text in mangled(token):
        check_not_found(mails, text)
    assert statements == []


def test_a_link_of_one_organization_opens_nothing_of_another(mails: Mails, new_world: Callable[..., World]) -> None:
    check_not_found(mails, token_of(Mails(new_world()), mails.book()))


def test_a_genuine_token_of_what_is_not_there_opens_nothing(mails: Mails) -> None:
    check_not_found(mails, token_of(mails, str(uuid.uuid4())))


def test_a_live_key_opens_only_the_links_made_with_it(mails: Mails) -> None:
    """Both keys are live, but the row says that the older one made its link."""
    booking = mails.book()
    rotated = Installation(SecretKeys("a newer secret key", SECRET))
    check_not_found(mails, token_of(mails, booking, rotated), rotated)


def test_what_was_opened_is_not_shown_with_its_secret(mails: Mails) -> None:
    link: Any = open_token(mails.world.installation.secret_keys, token_of(mails, mails.book()))
    assert str(link.secret) not in repr(link)
