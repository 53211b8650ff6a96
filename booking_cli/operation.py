"""One verb of the core, for an operator's command: in a transaction of its own, for whoever owns what it changes."""

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from booking_cli import storage
from booking_cli.context import Cli, CliError

if TYPE_CHECKING:
    from booking_core.caller import Actor, Installation, Organization
    from booking_core.db.engine import Tx
    from booking_core.db.writes import Writes

Verb = Callable[["Tx", "Actor", "Writes"], Any]


def stored_id(text: str, noun: str = "thing") -> str:
    """Return an id as it is stored; what cannot be one is a thing that does not exist, and for PostgreSQL an error of
    ours.

    Raises:
        NotFound: it cannot be one.
    """
    from booking_core.errors import NotFound
    from booking_core.wire.base import UUID_PATTERN

    if not re.fullmatch(UUID_PATTERN, text):
        raise NotFound(f"There is no {noun} {text!r}.")
    return text.lower()


def act(cli: Cli, owner: "Callable[[Tx], Organization]", verb: Verb) -> Any:
    """What the verb gives, done for that organization; JSON is read.

    Raises:
        BookingError: whatever the verb refuses with; nothing is changed then.
    """

    def work(tx: "Tx", installation: "Installation") -> Any:
        organization = owner(tx)
        storage.tell_organization(cli, organization)
        pending, shown = _done(tx, installation, organization, verb)
        tx.write(pending)
        return shown

    return _written(cli, work)


def act_on(cli: Cli, verb: Verb, *, noun: str = "thing", org: str | None = None) -> Any:
    """The same for a thing that is named by its id alone: for the organization that has it.

    A catalogue file that was imported into two organizations gave both the same ids. Then somebody has to say which is
    meant, or a stranger's card would be switched off.

    Args:
        noun: what it is, for the sentence when nobody has it.
        org: the slug of the only organization that is looked at.

    Raises:
        CliError: several have it.
        NotFound: none has it.
        BookingError: whatever the verb refuses with.
    """

    def work(tx: "Tx", installation: "Installation") -> Any:
        from booking_core import organizations
        from booking_core.errors import NotFound

        owners = organizations.find(tx) if org is None else [organizations.get(tx, slug=org)]
        done: list[tuple[Organization, Writes, Any]] = []
        for organization in owners:
            try:
                done.append((organization, *_done(tx, installation, organization, verb)))
            except NotFound:
                continue  # another organization's; nothing was collected
        if not done:
            raise NotFound(f"There is no such {noun}.")
        if len(done) > 1:
            slugs = ", ".join(each.slug for each, _, _ in done)
            raise CliError(f"Several organizations have that id: {slugs}.", code="ambiguous", hint="pass --org")
        ((found, pending, shown),) = done
        storage.tell_organization(cli, found)
        tx.write(pending)
        return shown

    return _written(cli, work)


def _done(tx: "Tx", installation: "Installation", organization: "Organization", verb: Verb) -> "tuple[Writes, Any]":
    """What is to be written, and what the verb gives."""
    from booking_core.caller import Actor
    from booking_core.db.writes import Writes

    actor, pending = Actor(installation=installation, organization=organization, at=tx.now()), Writes()
    return pending, verb(tx, actor, pending)


def _written(cli: Cli, work: "Callable[[Tx, Installation], Any]") -> Any:
    installation = storage.installation(storage.settings())
    with storage.database(cli) as database:
        shown = database.write_once(lambda tx: work(tx, installation))
    return json.loads(shown) if isinstance(shown, bytes) else shown
