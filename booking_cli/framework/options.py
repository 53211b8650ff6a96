"""Options that several commands share, as Annotated types."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from booking_cli.framework.arguments import idempotency_key, identifier, one_of, timestamp

DEFAULT_LIMIT = 25


def choice(*names: str, choices: Sequence[str], help: str) -> Any:  # noqa: A002 - Typer's name
    """Return a Typer option that takes one of the choices."""
    return typer.Option(*names, metavar="|".join(choices), parser=one_of(*choices), help=help)


# Lists

Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="Maximum number of items to list.")]
AllPages = Annotated[bool, typer.Option("--all", help="List all items, on however many pages.")]
StartingAfter = Annotated[
    str | None, typer.Option("--starting-after", metavar="CURSOR", help="Continue after the next_cursor of a list.")
]
Order = Annotated[str, choice("--order", choices=("asc", "desc"), help="Sort by creation time.")]
UpdatedSince = Annotated[
    str | None,
    typer.Option("--updated-since", metavar="T", parser=timestamp, help="Filter by last change: 2h (ago) or ISO 8601."),
]
ExperienceFilter = Annotated[
    str | None, typer.Option("--experience", metavar="ID", parser=identifier, help="Filter by experience.")
]

# Organizations

Org = Annotated[str, typer.Option("--org", metavar="SLUG", help="The organization.")]
OrgFilter = Annotated[str | None, typer.Option("--org", metavar="SLUG", help="Filter by organization.")]
OrgOfId = Annotated[
    str | None,
    typer.Option("--org", metavar="SLUG", help="The organization; needed when several have this id."),
]
OrgOfBooking = Annotated[
    str | None, typer.Option("--org", metavar="SLUG", help="The organization; needed with a booking number.")
]

# Bookings

BookingRef = Annotated[
    str, typer.Argument(metavar="BOOKING", help="The booking's id, or its number together with --org.")
]
Guests = Annotated[
    list[str], typer.Option("--guest", metavar="TIER=COUNT", help="Number of guests of a price tier; repeatable.")
]
AddOns = Annotated[
    list[str] | None, typer.Option("--add-on", metavar="ID=COUNT", help="Number of an add-on; repeatable.")
]
GuestName = Annotated[str, typer.Option("--name", metavar="NAME", help="The guest's full name.")]
GuestEmail = Annotated[str, typer.Option("--email", metavar="EMAIL", help="The guest's e-mail address.")]
GuestPhone = Annotated[str | None, typer.Option("--phone", metavar="PHONE", help="The guest's phone number.")]
GuestLocale = Annotated[
    str | None,
    typer.Option("--locale", metavar="TAG", help="The guest's language for mails and page: de, fr-CH, ..."),
]
ExternalReference = Annotated[
    str | None,
    typer.Option("--external-reference", metavar="TEXT", help="The name of the booking in your own system."),
]
UniqueReference = Annotated[
    bool, typer.Option("--unique", help="Refuse it if a booking has this --external-reference already.")
]
Metadata = Annotated[
    list[str] | None, typer.Option("--metadata", metavar="NAME=TEXT", help="A text of yours; repeatable.")
]
ExternalReferenceFilter = Annotated[
    str | None, typer.Option("--external-reference", metavar="TEXT", help="Find by external reference.")
]
StaffNote = Annotated[str | None, typer.Option("--note", metavar="TEXT", help="A note for the staff.")]

# Changes

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, without doing it.")]
IdempotencyKey = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        metavar="KEY",
        parser=idempotency_key,
        help="Make the change once, however often the command is run with this key; default: a new key.",
    ),
]
