"""`booking bookings`: seats sold to guests."""

from typing import Annotated, Any

import typer

from booking_cli import context, lists, operation, remote, storage
from booking_cli.arguments import counted, day, identifier, instant, one_of
from booking_cli.command import command, group
from booking_cli.context import Cli
from booking_cli.keyed import Key
from booking_cli.lists import LIMIT, After, All, Limit, Order

app = group("Bookings: seats sold to guests.")

COLUMNS = (
    "booking_number",
    "status",
    "departure.starts_at",
    "totals.total",
    "customer.name",
    "experience.title",
    "payment.status",
    "id",
)
CLIPPED = {"customer.name": 16, "experience.title": 24}
STATUSES = ("pending", "confirmed", "cancelled")
PAYMENTS = ("pay_on_site", "invoice", "external_paid")
REFUNDS = ("auto", "none")
BookingId = Annotated[
    str, typer.Argument(metavar="ID", parser=identifier, help="The id; `booking bookings list` shows it.")
]


@command(
    app,
    "list",
    "booking bookings list --status confirmed --departure-from today",
    "booking bookings list --updated-since 24h --all -o jsonl",
    shape="booking",
)
def list_(
    ctx: typer.Context,
    status: Annotated[
        str | None,
        typer.Option("--status", metavar="|".join(STATUSES), parser=one_of(*STATUSES), help="Only those."),
    ] = None,
    experience: Annotated[
        str | None, typer.Option("--experience", metavar="ID", parser=identifier, help="Only of this experience.")
    ] = None,
    departure_from: Annotated[
        str | None, typer.Option("--departure-from", metavar="DAY", parser=day, help="Departing then or later.")
    ] = None,
    departure_to: Annotated[
        str | None,
        typer.Option("--departure-to", metavar="DAY", parser=day, help="Or earlier, at most 92 days after the first."),
    ] = None,
    updated_since: Annotated[
        str | None,
        typer.Option("--updated-since", metavar="T", parser=instant, help="Changed since; 2h ago, or ISO 8601."),
    ] = None,
    limit: Limit = LIMIT,
    everything: All = False,
    order: Order = "desc",
    starting_after: After = None,
) -> None:
    """Lists bookings, the newest first."""
    lists.show(
        context.of(ctx),
        remote.path("bookings"),
        COLUMNS,
        params={
            "status": status,
            "experience_id": experience,
            "departure_from": departure_from,
            "departure_to": departure_to,
            "updated_since": updated_since,
            "order": order,
        },
        limit=limit,
        everything=everything,
        starting_after=starting_after,
        clipped=CLIPPED,
        empty="There is no such booking.",
    )


@command(app, "get", "booking bookings get 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 -o json", shape="booking")
def get(ctx: typer.Context, booking_id: BookingId) -> None:
    """Shows a booking. The guest's secret link is shown to a key with bookings:write."""
    cli = context.of(ctx)
    with remote.client(cli) as client:
        found = remote.ask(client, "GET", remote.path("bookings", booking_id))
    cli.render.one(found.body)


@command(
    app,
    "create",
    "booking bookings create --departure 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --guest adult=2 \\",
    "    --name 'Ada Lovelace' --email ada@example.com --payment pay_on_site",
    shape="booking",
    changes=True,
)
def create(
    ctx: typer.Context,
    departure: Annotated[
        str, typer.Option("--departure", metavar="ID", help="The departure; `booking availability` shows it.")
    ],
    guest: Annotated[
        list[str], typer.Option("--guest", metavar="TIER=COUNT", help="How many of which price tier; may be repeated.")
    ],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Who it is for.")],
    email: Annotated[str, typer.Option("--email", metavar="EMAIL", help="Where the confirmation goes.")],
    payment: Annotated[
        str, typer.Option("--payment", metavar="|".join(PAYMENTS), parser=one_of(*PAYMENTS), help="How it is paid.")
    ],
    phone: Annotated[str | None, typer.Option("--phone", metavar="PHONE", help="A telephone number.")] = None,
    add_on: Annotated[
        list[str] | None, typer.Option("--add-on", metavar="ID=COUNT", help="How many of an add-on; may be repeated.")
    ] = None,
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="For the staff.")] = None,
    no_email: Annotated[bool, typer.Option("--no-email", help="Send the guest no confirmation.")] = False,
    no_notify: Annotated[bool, typer.Option("--no-notify", help="Do not tell the staff.")] = False,
    idempotency_key: Key = None,
) -> None:
    """Books seats of a departure, confirmed at once. Prices are the service's own.

    Run again with the same --idempotency-key it books nothing more and shows the first answer; -v shows the key of
    this run.
    """
    cli = context.of(ctx)
    body: dict[str, Any] = {
        "experience_date_id": departure,
        "guests": counted(guest, "tier_id"),
        "customer": {"name": name, "email": email} | ({"phone": phone} if phone else {}),
        "payment": payment,
    }
    body |= {"add_ons": counted(add_on, "id")} if add_on else {}
    body |= {"note": note} if note else {}
    body |= {"send_confirmation_email": False} if no_email else {}
    body |= {"notify_staff": False} if no_notify else {}
    with remote.client(cli) as client, remote.once(cli, idempotency_key) as key:
        made = remote.ask(client, "POST", remote.path("bookings"), body=body, idempotency_key=key)
    cli.render.one(made.body)
    if made.is_replay:
        cli.render.note("This was booked before, with the same key; nothing was booked now.")


@command(
    app,
    "cancel",
    "booking bookings cancel 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --reason 'The guest is ill'",
    "booking bookings cancel 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --refund none --yes",
    shape="booking",
    changes=True,
)
def cancel(
    ctx: typer.Context,
    booking_id: BookingId,
    refund: Annotated[
        str,
        typer.Option(
            "--refund", metavar="|".join(REFUNDS), parser=one_of(*REFUNDS), help="auto: by the organization's policy."
        ),
    ] = "auto",
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="For the staff.")] = None,
    idempotency_key: Key = None,
) -> None:
    """Cancels a booking: its seats are free again, the guest is told, and a card payment may be refunded.

    One that is cancelled already is shown as it is.
    """
    cli = context.of(ctx)
    place = remote.path("bookings", booking_id)
    body = {"refund": refund} | ({"reason": reason} if reason else {})
    with remote.client(cli) as client:
        _confirm(cli, client, booking_id)
        with remote.once(cli, idempotency_key) as key:
            cancelled = remote.ask(client, "POST", f"{place}/cancel", body=body, idempotency_key=key)
    cli.render.one(cancelled.body)


def _confirm(cli: Cli, client: Any, booking_id: str) -> None:
    """Asks who sits there, about the booking as it is now."""
    what = f"the booking {booking_id}"
    if cli.can_ask and not cli.options.yes:
        found = remote.ask(client, "GET", remote.path("bookings", booking_id)).body
        what = (
            f"booking {found['booking_number']} of {found['customer']['name']}"
            f" ({found['experience']['title']}, {found['departure']['starts_at'][:16].replace('T', ' ')})"
        )
    cli.confirm(f"Cancel {what}? It cannot be undone.")


# The operator's --------------------------------------------------------------------------------------------------


@command(app, "confirm", "booking bookings confirm 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07", shape="booking", changes=True)
def confirm(ctx: typer.Context, booking_id: BookingId) -> None:
    """Confirms a pending booking, whether it was paid or not. Opens the database."""
    cli = context.of(ctx)
    with storage.installed():
        from booking_core import bookings

    confirmed = operation.act(
        cli,
        lambda tx: bookings.owner(tx, booking_id),
        lambda tx, actor, pending: bookings.confirm(tx, actor, pending, booking_id.lower()),
    )
    cli.render.one(confirmed)


@command(
    app,
    "reschedule",
    "booking bookings reschedule 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 \\",
    "    --departure 0190f3c2-8a10-7c55-b1d2-5a0c9e7f3d21",
    shape="booking",
    changes=True,
)
def reschedule(
    ctx: typer.Context,
    booking_id: BookingId,
    departure: Annotated[
        str,
        typer.Option("--departure", metavar="ID", parser=identifier, help="The departure that it moves to."),
    ],
) -> None:
    """Moves a booking to another departure; its price stays. Opens the database."""
    cli = context.of(ctx)
    with storage.installed():
        from booking_core import bookings

    moved = operation.act(
        cli,
        lambda tx: bookings.owner(tx, booking_id),
        lambda tx, actor, pending: bookings.reschedule(
            tx, actor, pending, booking_id.lower(), operation.stored_id(departure, "departure")
        ),
    )
    cli.render.one(moved)
