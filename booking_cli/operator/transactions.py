"""One verb of the core, for an operator's command: in a transaction of its own, for whoever owns what it changes."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from booking_cli.framework.context import Cli, CliError
from booking_cli.operator import storage

if TYPE_CHECKING:
    from booking_core.context import Actor, Installation, Organization
    from booking_core.db.engine import Database, Tx
    from booking_core.db.writes import Writes

T = TypeVar("T")
Owner = Callable[["Tx"], "Organization"]
Verb = Callable[["Tx", "Actor", "Writes"], Any]
Then = Callable[["Tx", "Actor", Any], Any]
"""Sees what a verb gives once it is written, in the same transaction, and gives what is shown."""


def stored_id(text: str, noun: str = "thing") -> str:
    """Return an id as it is stored; what cannot be one is a thing that does not exist, and for PostgreSQL an error of
    ours.

    Raises:
        NotFound: it cannot be one.
    """
    from booking_core.errors import NotFound
    from booking_core.models.base import UUID_PATTERN

    if not re.fullmatch(UUID_PATTERN, text):
        raise NotFound(f"There is no {noun} {text!r}.")
    return text.lower()


def of(slug: str) -> Owner:
    """Return a function that gives the organization of that slug."""
    with storage.installed():
        from booking_core import organizations

    return lambda tx: organizations.get(tx, slug=slug)


def of_one(find: "Callable[[Tx], Sequence[Organization]]", noun: str, reference: str, *, org: str | None) -> Owner:
    """Return a function that gives the one organization that has a thing which is named by its id.

    Args:
        find: gives every organization that has it.
        noun: what the thing is, as in "departure".
        reference: its id.
        org: the slug of the only organization that is looked at.
    """
    if org is not None:
        return of(org)

    def owner(tx: "Tx") -> "Organization":
        from booking_core.errors import NotFound

        found = find(tx)
        if not found:
            raise NotFound(f"There is no {noun} {reference!r}.")
        if len(found) > 1:
            slugs = ", ".join(each.slug for each in found)
            raise CliError(
                f"Several organizations have the {noun} {reference}: {slugs}.", code="ambiguous", hint="pass --org"
            )
        return found[0]

    return owner


@dataclass(frozen=True, slots=True)
class Session:
    """The database, opened once for all that a command does."""

    cli: Cli
    database: "Database"
    installation: "Installation"

    def look(self, owner: Owner, verb: "Callable[[Tx, Actor], T]") -> T:
        """Return what the verb reads for that organization."""
        return self.database.read(lambda tx: verb(tx, _actor(tx, self.installation, self._told(owner(tx)))))

    def act(self, owner: Owner, verb: Verb, *, then: Then | None = None, dry_run: bool = False) -> Any:
        """Return what the verb gives, done for that organization in a transaction of its own; JSON is read.

        Args:
            then: makes of it what is shown.
            dry_run: do all of it, and undo it: every check is made, and nothing stays.

        Raises:
            BookingError: whatever the verb refuses with; nothing is changed then.
        """

        def work(tx: "Tx") -> Any:
            organization = self._told(owner(tx))
            pending, shown = _done(tx, self.installation, organization, verb)
            tx.write(pending)
            return then(tx, _actor(tx, self.installation, organization), _read(shown)) if then else shown

        return _read(self.database.rehearse(work) if dry_run else self.database.write_once(work))

    def _told(self, organization: "Organization") -> "Organization":
        """Return the organization, which is told on stderr the first time."""
        storage.tell_organization(self.cli, organization)
        return organization


@contextmanager
def opened(cli: Cli) -> Iterator[Session]:
    """Open the database of the settings."""
    settings = storage.sealing_settings()
    with storage.database(cli) as database:
        yield Session(cli, database, storage.unlocked(settings, database, cli.render.warn))


def act(cli: Cli, owner: Owner, verb: Verb, *, then: Then | None = None, dry_run: bool = False) -> Any:
    """What the verb gives, done for that organization; JSON is read. As `Session.act`.

    Raises:
        BookingError: whatever the verb refuses with; nothing is changed then.
    """
    with opened(cli) as session:
        return session.act(owner, verb, then=then, dry_run=dry_run)


def look(cli: Cli, owner: Owner, verb: "Callable[[Tx, Actor], T]") -> T:
    """Return what the verb reads for that organization."""
    with opened(cli) as session:
        return session.look(owner, verb)


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

    with opened(cli) as session:
        return _read(session.database.write_once(lambda tx: work(tx, session.installation)))


def _done(tx: "Tx", installation: "Installation", organization: "Organization", verb: Verb) -> "tuple[Writes, Any]":
    """What is to be written, and what the verb gives."""
    from booking_core.db.writes import Writes

    pending = Writes()
    return pending, verb(tx, _actor(tx, installation, organization), pending)


def _actor(tx: "Tx", installation: "Installation", organization: "Organization") -> "Actor":
    from booking_core.context import Actor

    return Actor(installation=installation, organization=organization, at=tx.now())


def _read(shown: Any) -> Any:
    return json.loads(shown) if isinstance(shown, bytes) else shown
