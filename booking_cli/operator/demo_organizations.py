"""The organizations of `booking demo`, their catalogues, and a booking to try."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.operator.catalog_import import read_document
from booking_core import organizations
from booking_core.base.context import Installation, Organization
from booking_core.catalogue import transfer
from booking_core.catalogue.transfer import ImportSummary
from booking_core.db.engine import Database, Tx
from booking_core.models.scopes import Scope
from booking_core.organizations import keys

HOST = "127.0.0.1"
EXAMPLES = Path(__file__).parents[2] / "examples"
"""The example catalogues of a clone. The package does not contain them."""
LEAD_DAYS = 7
WINDOW_DAYS = 30
"""Calls to try look at the departures of these days, beginning after LEAD_DAYS."""


class DemoOrganization(NamedTuple):
    """An organization and its catalogue."""

    slug: str
    name: str
    timezone: str
    currency: str
    catalogue: Path


ORGANIZATIONS = (
    DemoOrganization("fjord-tours", "Fjord Tours", "Europe/Oslo", "NOK", EXAMPLES / "fjord-tours.json"),
    DemoOrganization("isla-tours", "Isla Tours", "America/Santiago", "CLP", EXAMPLES / "isla-tours.json"),
)


def demo_organizations(catalogue: Path | None) -> tuple[DemoOrganization, ...]:
    """Return the organization of a catalogue file, or the organizations of the examples.

    Raises:
        CliError: the examples are missing.
    """
    if catalogue is not None:
        currency = next(_currencies(read_document(catalogue)), "EUR")
        return (DemoOrganization("demo", "Demo", "UTC", currency, catalogue),)
    missing = [organization.catalogue.name for organization in ORGANIZATIONS if not organization.catalogue.exists()]
    if missing:
        raise CliError(
            f"The example catalogues ({', '.join(missing)}) come with a clone of the project, not with the package.",
            code="no_examples",
            hint="booking demo --catalog FILE",
        )
    return ORGANIZATIONS


def _currencies(document: Any) -> Iterator[str]:
    """Yield every currency in the document, in its order."""
    if isinstance(document, dict):
        if isinstance(document.get("currency"), str):
            yield document["currency"]
        document = list(document.values())
    if isinstance(document, list):
        for item in document:
            yield from _currencies(item)


def create_with_catalogue(
    cli: Cli,
    database: Database,
    installation: Installation,
    demo: DemoOrganization,
    document: Any,
    *,
    is_sandbox: bool = False,
) -> tuple[Organization, ImportSummary]:
    """Create the organization and import the catalogue, in one transaction."""

    def work(tx: Tx) -> tuple[Organization, ImportSummary]:
        now = tx.now()
        names: dict[str, Any] = demo._asdict()
        del names["catalogue"]
        organization = organizations.create(tx, **names, now=now, is_sandbox=is_sandbox)
        plan = transfer.validate(document, organization=organization)
        summary = transfer.import_plan(tx, organization, installation, plan, now=now, progress=advance)
        return organization, summary

    with cli.render.progress(f"importing {demo.catalogue.name}") as advance:
        return database.write_once(work)


def create_key(database: Database, slug: str, name: str, *, lifetime: int | None = None) -> str:
    """Create a key of an organization with every scope, and return it.

    Args:
        lifetime: microseconds after which it expires.
    """

    def work(tx: Tx) -> str:
        organization, now = organizations.get(tx, slug=slug), tx.now()
        expires_at = None if lifetime is None else organization.instant(now) + lifetime
        return keys.create(tx, organization, name=name, scopes=list(Scope), expires_at=expires_at, now=now)[1]

    return database.write_once(work)


def booking_request(
    departures: Iterable[dict[str, Any]], experience_of: Callable[[str], dict[str, Any]]
) -> dict[str, Any] | None:
    """Return the body of a booking for one unit on the first departure with enough seats; None if there is none."""
    for departure in departures:
        experience = experience_of(departure["experience_id"])
        tiers = [tier for tier in experience["price_tiers"] if tier["seats_per_unit"] <= departure["seats_available"]]
        if departure["status"] == "open" and experience["is_published"] and tiers:
            return {
                "departure_id": departure["id"],
                "guests": [{"tier_id": tiers[0]["id"], "count": 1}],
                "customer": {"name": "Ada Lovelace", "email": "ada@example.com"},
                "payment": "pay_on_site",
            }
    return None
