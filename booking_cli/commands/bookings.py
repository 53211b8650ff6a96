"""`booking bookings`: seats sold to guests.

Some of these commands have two modes: over HTTP with an API key, or in the database for the operator
(`staff_bookings`). `--org` chooses the second.
"""

from typing import Annotated, Any

import typer

from booking_cli.client import api_client, booking_search, pagination, refund_notes
from booking_cli.client.pagination import LIMIT, After, All, Limit, Order
from booking_cli.framework import context
from booking_cli.framework.arguments import counted, day, identifier, instant, one_of
from booking_cli.framework.command import command, group
from booking_cli.framework.context import Cli, CliError
from booking_cli.framework.options import Key
from booking_cli.operator import staff_bookings
from booking_cli.operator.staff_bookings import REASON_CODES, REFUNDS, SOURCES

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
BookingId = Annotated[
    str,
    typer.Argument(metavar="ID", parser=identifier, help="The id or the number; `booking bookings list` shows both."),
]
Org = Annotated[
    str | None,
    typer.Option("--org", metavar="SLUG", help="Operator: whose it is; opens the database.", show_default=False),
]
Whose = Annotated[
    str | None, typer.Option("--org", metavar="SLUG", help="Whose it is; needed for a number.", show_default=False)
]


@command(
    app,
    "list",
    "booking bookings list --status confirmed --departure-from today",
    "booking bookings list --updated-since 24h --all -o jsonl",
    "booking bookings list --number 1017",
    "booking bookings list --org fjord-tours --name lovelace     (in the database)",
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
    number: Annotated[int | None, typer.Option("--number", metavar="N", min=1, help="The one of this number.")] = None,
    email: Annotated[
        str | None, typer.Option("--email", metavar="EMAIL", help="Only of the guest with this address.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="TEXT", help="Only of guests whose name has these words.")
    ] = None,
    departure: Annotated[
        str | None, typer.Option("--departure", metavar="ID", parser=identifier, help="Only of this departure.")
    ] = None,
    org: Org = None,
    limit: Limit = LIMIT,
    everything: All = False,
    order: Order = "desc",
    starting_after: After = None,
) -> None:
    """Lists bookings, the newest first.

    \b
    over HTTP     with the API key of `booking login`. The API has no filter
                  for --number, --email, --name and --departure: the newest
                  5,000 bookings are looked through, with --all all of them.
    with --org    in the database, where they are looked up at once. --email
                  finds what was booked by the customer who has the address
                  now, or else by guests who gave it.
    """
    cli = context.of(ctx)
    wanted = None if everything else limit
    if org is not None:
        conditions: dict[str, Any] = {"number": number, "email": email, "name": name, "departure_id": departure}
        conditions |= {"status": status, "experience_id": experience, "updated_since": updated_since}
        conditions |= {"departure_from": departure_from, "departure_to": departure_to}
        staff_bookings.list_(
            cli, org, conditions, COLUMNS, clipped=CLIPPED, order=order, limit=wanted, starting_after=starting_after
        )
        return
    params = {
        "status": status,
        "experience_id": experience,
        "departure_from": departure_from,
        "departure_to": departure_to,
        "updated_since": updated_since,
        "order": order,
    }
    matches = booking_search.matcher(number=number, email=email, name=name, departure=departure)
    if matches is not None:
        asked = params | {"starting_after": starting_after}
        _find(cli, asked, matches, number=number, wanted=wanted, everything=everything)
        return
    pagination.show(
        cli,
        api_client.path("bookings"),
        COLUMNS,
        params=params,
        limit=limit,
        everything=everything,
        starting_after=starting_after,
        clipped=CLIPPED,
        empty="There is no such booking.",
    )


def _find(
    cli: Cli,
    params: dict[str, Any],
    matches: booking_search.Matches,
    *,
    number: int | None,
    wanted: int | None,
    everything: bool,
) -> None:
    """Look through the API's list for what it cannot be asked for."""
    with api_client.client(cli) as client:
        found = booking_search.pages(cli, client, params, matches, number=number, wanted=wanted, everything=everything)
        last = pagination.show_pages(cli, found, COLUMNS, clipped=CLIPPED, empty="There is no such booking.")
    if last.get("bound"):
        raise booking_search.bounded(last["next_cursor"])


@command(
    app,
    "get",
    "booking bookings get 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 -o json",
    "booking bookings get 1017 --org fjord-tours     (in the database)",
    shape="booking",
)
def get(ctx: typer.Context, booking_id: BookingId, org: Org = None) -> None:
    """Shows a booking. The guest's secret link is shown to a key with bookings:write.

    \b
    over HTTP     with the API key of `booking login`; a number is looked for in the API's list
    with --org    in the database, by number or id
    """
    cli = context.of(ctx)
    if org is not None:
        staff_bookings.get(cli, org, booking_id)
        return
    with api_client.client(cli) as client:
        booking_id = booking_search.id_of(cli, client, booking_id)
        found = api_client.ask(client, "GET", api_client.path("bookings", booking_id))
    cli.render.one(found.body)


@command(
    app,
    "create",
    "booking bookings create --departure 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --guest adult=2 \\",
    "    --name 'Ada Lovelace' --email ada@example.com --payment pay_on_site",
    "booking bookings create --org fjord-tours --source admin --departure ID --guest adult=2 \\",
    "    --name 'Ada Lovelace' --email ada@example.com --payment invoice     (in the database)",
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
    org: Org = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="|".join(SOURCES),
            parser=one_of(*SOURCES),
            help="Operator, with --org: who books.",
            show_default=False,
        ),
    ] = None,
    idempotency_key: Key = None,
) -> None:
    """Books seats of a departure, confirmed at once. Prices are the service's own.

    \b
    over HTTP                  with the API key of `booking login`; its source
                               is `api`
    with --org and --source    in the database, for staff (admin), an agency
                               or an assistant (ai)

    All other options are the same in both. Run again with the same --idempotency-key it books nothing more and shows
    the first answer; -v shows the key of this run.
    """
    cli = context.of(ctx)
    if (org is None) != (source is None):
        raise CliError("--org and --source go together: they book in the database.", hint="leave both away for HTTP")
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
    if org is not None and source is not None:
        staff_bookings.create(cli, org, source, body, idempotency_key)
        return
    with api_client.client(cli) as client, api_client.once(cli, idempotency_key) as key:
        made = api_client.ask(client, "POST", api_client.path("bookings"), body=body, idempotency_key=key)
    cli.render.one(made.body)
    if made.is_replay:
        cli.render.note("This was booked before, with the same key; nothing was booked now.")


@command(
    app,
    "cancel",
    "booking bookings cancel 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --reason 'The guest is ill'",
    "booking bookings cancel 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --refund none --yes",
    "booking bookings cancel 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --dry-run",
    "booking bookings cancel 1017 --org fjord-tours --refund full     (in the database)",
    shape="booking",
    changes=True,
)
def cancel(
    ctx: typer.Context,
    booking_id: BookingId,
    refund: Annotated[
        str,
        typer.Option(
            "--refund",
            metavar="|".join(REFUNDS),
            parser=one_of(*REFUNDS),
            help="auto: by the organization's policy; none: keep the money; full, operator: all of it.",
        ),
    ] = "auto",
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="For the staff.")] = None,
    org: Org = None,
    reason_code: Annotated[
        str | None,
        typer.Option(
            "--reason-code",
            metavar="|".join(REASON_CODES),
            parser=one_of(*REASON_CODES),
            help="Operator: who cancels; admin unless said. Opens the database.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    idempotency_key: Key = None,
) -> None:
    """Cancels a booking: its seats are free again, the guest is told, and a card payment may be refunded.

    \b
    over HTTP       with the API key of `booking login`; the reason of the
                    event is `api`. --dry-run shows the booking and the
                    request.
    with --org or   in the database; the reason is `admin` or `agent`. What
    --reason-code   happens to the money is told. --dry-run does all of it,
                    tells, and undoes it. A booking is cancelled once, so
                    --idempotency-key is not needed.

    One that is cancelled already is shown as it is.
    """
    cli = context.of(ctx)
    if org is not None or reason_code is not None:
        staff_bookings.cancel(
            cli,
            booking_id,
            org=org,
            reason_code=reason_code or "admin",
            refund=refund,
            reason=reason,
            dry_run=dry_run,
        )
        return
    if refund == "full":
        raise CliError(
            "The API refunds by the organization's policy: --refund full is the operator's.", hint="add --org"
        )
    body = {"refund": refund} | ({"reason": reason} if reason else {})
    with api_client.client(cli) as client:
        booking_id = booking_search.id_of(cli, client, booking_id)
        place = f"{api_client.path('bookings', booking_id)}/cancel"
        if dry_run:
            _show_request(cli, client, booking_id, {"method": "POST", "path": place, "body": body})
            return
        _confirm(cli, client, booking_id)
        with api_client.once(cli, idempotency_key) as key:
            cancelled = api_client.ask(client, "POST", place, body=body, idempotency_key=key)
    cli.render.one(cancelled.body)
    cli.render.note(refund_notes.after_cancelling(cancelled.body, refund))


def _show_request(cli: Cli, client: Any, booking_id: str, request: dict[str, Any]) -> None:
    """Show the booking as it is, and what would be asked of the service."""
    booking = api_client.ask(client, "GET", api_client.path("bookings", booking_id)).body
    cli.render.one({**booking, "dry_run": True, "request": request})
    if booking["status"] == "cancelled":
        cli.render.note("It is cancelled already: the service would answer it unchanged.")
    else:
        cli.render.note(f"It would be cancelled (refund: {request['body']['refund']}). Nothing was asked (--dry-run).")


def _confirm(cli: Cli, client: Any, booking_id: str) -> None:
    """Asks who sits there, about the booking as it is now."""
    what = f"the booking {booking_id}"
    if cli.can_ask and not cli.options.yes:
        what = staff_bookings.name_of(api_client.ask(client, "GET", api_client.path("bookings", booking_id)).body)
    cli.confirm(f"Cancel {what}? It cannot be undone.")


# The operator's --------------------------------------------------------------------------------------------------


@command(app, "confirm", "booking bookings confirm 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07", shape="booking", changes=True)
def confirm(ctx: typer.Context, booking_id: BookingId, org: Whose = None) -> None:
    """Confirms a pending booking, whether it was paid or not. Opens the database."""
    staff_bookings.confirm(context.of(ctx), booking_id, org=org)


@command(
    app,
    "reschedule",
    "booking bookings reschedule 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 \\",
    "    --departure 0190f3c2-8a10-7c55-b1d2-5a0c9e7f3d21",
    "booking bookings reschedule 1017 --org fjord-tours --departure ID --dry-run",
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
    org: Whose = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check, and only show what would be done.")] = False,
) -> None:
    """Moves a booking to another departure; its price stays. Opens the database."""
    staff_bookings.reschedule(context.of(ctx), booking_id, departure, org=org, dry_run=dry_run)
