"""Run a function of booking_core for an operator command: in a transaction, for one organization, with valid input.

transactions.change(cli, by_slug(org), lambda tx, actor: departures.close(tx, actor, departure_id))
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

from booking_cli.framework.context import Cli, Question
from booking_cli.framework.errors import CliError
from booking_cli.operator import secret_keys, storage

if TYPE_CHECKING:
    from pydantic import ValidationError

    from booking_core.base.context import Actor, Installation, Organization
    from booking_core.base.errors import Malformed
    from booking_core.db.engine import Database, Tx

T = TypeVar("T")
FindOrganization = Callable[["Tx"], "Organization"]
QueryFunction = Callable[["Tx", "Actor"], T]
ChangeFunction = Callable[["Tx", "Actor"], Any]
ChangeOfId = Callable[["Tx", "Actor", str], Any]
Present = Callable[["Tx", "Actor", Any], Any]
"""Takes the result of a change after it is written, in the same transaction, and returns the command's output."""


def stored_id(text: str, noun: str = "thing") -> str:
    """Return an id as it is stored. PostgreSQL would fail on a text that is not a UUID.

    Raises:
        NotFound: the text is not a UUID.
    """
    from booking_core.base.errors import NotFound
    from booking_core.models.base import is_id

    if not is_id(text):
        raise NotFound.of(noun, text)
    return text.lower()


def by_slug(slug: str) -> FindOrganization:
    """Return a function that finds the organization by its slug."""
    from booking_core import organizations

    return lambda tx: organizations.get(tx, slug=slug)


def of_departure(departure_id: str, org: str | None) -> FindOrganization:
    """Return a function that finds the organization of a departure, unless the user named it."""
    from booking_core.base.errors import NotFound
    from booking_core.catalogue import departures

    def find_organization(tx: "Tx") -> "Organization":
        stored = stored_id(departure_id, "departure")
        organizations = departures.organizations_of(tx, stored)
        if not organizations:
            raise NotFound.of("departure", stored)
        if len(organizations) > 1:
            raise _ambiguous(f"the departure {stored}", organizations)
        return organizations[0]

    return by_slug(org) if org else find_organization


def _ambiguous(name: str, organizations: "Sequence[Organization]") -> CliError:
    slugs = ", ".join(organization.slug for organization in organizations)
    return CliError(f"Several organizations have {name}: {slugs}.", code="ambiguous", hint="pass --org")


@dataclass(frozen=True, slots=True)
class Session:
    """An open database for all transactions of a command."""

    cli: Cli
    database: "Database"
    installation: "Installation"

    def read(self, find_organization: FindOrganization, query: "QueryFunction[T]") -> T:
        """Return the result of a query for the organization."""
        return self.database.read(
            lambda tx: query(tx, _actor(tx, self.installation, self._noted(find_organization(tx))))
        )

    def change(
        self,
        find_organization: FindOrganization,
        change: ChangeFunction,
        *,
        present: Present | None = None,
        dry_run: bool = False,
    ) -> Any:
        """Make a change for the organization in a separate transaction, and return its result.

        A change that raises a `Question` is rolled back, and made again if the answer is yes.

        Args:
            dry_run: make every check, and roll the transaction back.

        Raises:
            BookingError: the change was refused, and nothing was written.
        """

        def work(tx: "Tx") -> Any:
            organization = self._noted(find_organization(tx))
            result = change(tx, _actor(tx, self.installation, organization))
            if present is None:
                return result
            return present(tx, _actor(tx, self.installation, organization), _decoded(result))

        run = self.database.dry_run if dry_run else self.database.write_once
        try:
            return _decoded(run(work))
        except Question as question:
            self.cli.confirm(str(question))
        return _decoded(run(work))

    def _noted(self, organization: "Organization") -> "Organization":
        storage.note_organization(self.cli, organization)
        return organization


@contextmanager
def open_session(cli: Cli) -> Iterator[Session]:
    """Open the database of the settings, with verified secret keys."""
    settings = secret_keys.settings_with_secret_key()
    with storage.open_database(cli, needs="an organization's bookings and data") as database:
        yield Session(cli, database, secret_keys.verified_installation(settings, database, cli.render.warn))


def change(
    cli: Cli,
    find_organization: FindOrganization,
    change: ChangeFunction,
    *,
    present: Present | None = None,
    dry_run: bool = False,
) -> Any:
    """Make one change; see `Session.change`."""
    with open_session(cli) as session:
        return session.change(find_organization, change, present=present, dry_run=dry_run)


def read(cli: Cli, find_organization: FindOrganization, query: "QueryFunction[T]") -> T:
    """Return the result of one query; see `Session.read`."""
    with open_session(cli) as session:
        return session.read(find_organization, query)


def change_by_id(cli: Cli, row_id: str, change: ChangeOfId, *, noun: str, org: str | None = None) -> Any:
    """Make a change to something that is named by its id, in the organization that has it.

    Args:
        change: takes the transaction, the actor and the id.
        noun: for error messages, as in "customer".

    Raises:
        CliError: several organizations have the id.
        NotFound: no organization has it.
        BookingError: the change was refused.
    """
    with open_session(cli) as session:
        result = session.database.write_once(lambda tx: _in_its_organization(tx, session, row_id, change, noun, org))
    return _decoded(result)


def read_by_id(cli: Cli, row_id: str, query: ChangeOfId, *, noun: str, org: str | None = None) -> Any:
    """Return the result of a query about something that is named by its id, as `change_by_id` finds it."""
    with open_session(cli) as session:
        return session.database.read(lambda tx: _in_its_organization(tx, session, row_id, query, noun, org))


def _in_its_organization(
    tx: "Tx", session: Session, row_id: str, function: ChangeOfId, noun: str, org: str | None
) -> Any:
    """Call the function for each organization, and return the result of the only organization that has the id.

    A catalogue file that was imported into two organizations gave both the same ids; then the user has to name the
    organization.
    """
    from booking_core import organizations
    from booking_core.base.errors import NotFound

    results: list[tuple[Organization, Any]] = []
    for organization in organizations.find(tx) if org is None else [organizations.get(tx, slug=org)]:
        with contextlib.suppress(NotFound):  # the id belongs to another organization; nothing was collected
            actor = _actor(tx, session.installation, organization)
            results.append((organization, function(tx, actor, stored_id(row_id, noun))))
    if not results:
        raise NotFound.of(noun)
    if len(results) > 1:
        raise _ambiguous("that id", [organization for organization, _ in results])
    storage.note_organization(session.cli, results[0][0])
    return results[0][1]


def _actor(tx: "Tx", installation: "Installation", organization: "Organization") -> "Actor":
    from booking_core import organizations
    from booking_core.base.context import Actor

    return Actor(installation=installation, organization=organization, at=organizations.now(tx, organization))


def _decoded(result: Any) -> Any:
    return json.loads(result) if isinstance(result, bytes) else result


# Input ---------------------------------------------------------------------------------------------------------------


def parse_request(kind: "type[T]", body: Mapping[str, Any]) -> "T":
    """Return the body of a request as a model, or as another type that pydantic can validate.

    Raises:
        Malformed: names each invalid field.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_json(json.dumps(body))
    except ValidationError as error:
        raise _malformed(error) from None


def _malformed(error: "ValidationError") -> "Malformed":
    from booking_core.base.errors import Malformed
    from booking_core.models.errors import ErrorDetail
    from booking_core.models.problems import describe, reason_of

    details = [
        ErrorDetail(
            field=".".join(map(str, problem["loc"])),
            reason=reason_of(problem),
            message=describe(problem),
        )
        for problem in error.errors()
    ]
    message = "; ".join(f"{detail.field} {detail.message}" for detail in details)
    return Malformed(message, details=details)


@overload
def parse_instant(organization: "Organization", option: str, text: str) -> int: ...


@overload
def parse_instant(organization: "Organization", option: str, text: str | None) -> int | None: ...


def parse_instant(organization: "Organization", option: str, text: str | None) -> int | None:
    """Return an instant in microseconds from an ISO 8601 timestamp; None stays None.

    A timestamp without an offset is in the organization's time zone.

    Raises:
        CliError: the text is not a timestamp; the message names the option.
    """
    if text is None:
        return None
    try:
        return organization.zone.parse(text)
    except ValueError as error:
        raise CliError(f"{option} {error}.", hint="write 2027-01-31T09:00:00 or 2027-01-31T09:00:00+01:00") from None
