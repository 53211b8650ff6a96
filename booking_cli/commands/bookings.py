"""`booking bookings`: list, show and change bookings.

Most commands have two halves: over HTTP with an API key (`client.api_bookings`), or in the database
(`operator.staff_bookings`). `halves` chooses between them; `list` and `create` need --org to use the database.
"""

from typing import Annotated

from booking_cli.client import api_bookings, api_client
from booking_cli.commands.halves import require_org, uses_database
from booking_cli.framework import arguments, options
from booking_cli.framework.arguments import day, identifier
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.options import Departure, argument, option
from booking_cli.framework.tables import Columns
from booking_cli.operator import staff_bookings
from booking_cli.operator.staff_bookings import note_dry_run

app = command_group(
    "Manage bookings. With an API key, commands use the API; with --org, or if only a database is configured, they use"
    " the database."
)

COLUMNS = Columns(
    "booking_number status departure.starts_at totals.total customer.name experience.title payment.status id".split(),
    empty="No booking found.",
    truncated={"customer.name": 16, "experience.title": 24},
)
STATUSES = ("pending", "confirmed", "cancelled")
PAYMENTS = ("pay_on_site", "invoice", "external_paid")
SOURCES = ("admin", "agency", "ai")
REASON_CODES = ("admin", "agent")
REFUNDS = ("auto", "none", "full")

BookingId = Annotated[str, argument("ID", "The booking's id or number.", parser=identifier)]
Status = Annotated[str | None, options.choice("--status", choices=STATUSES, help="Filter by status.")]
DepartureFrom = Annotated[str | None, option("--departure-from DAY", "Filter by departure: first day.", parser=day)]
Today = Annotated[bool, option("--today", "Filter by departure: today.")]
DepartureTo = Annotated[
    str | None, option("--departure-to DAY", "Filter by departure: last day, at most 92 days later.", parser=day)
]
Number = Annotated[int | None, option("--number N", "Find by booking number.", min=1)]
EmailFilter = Annotated[str | None, option("--email EMAIL", "Find by the guest's e-mail.")]
NameFilter = Annotated[str | None, option("--name TEXT", "Find by words of the guest's name.")]
DepartureFilter = Annotated[str | None, option("--departure ID", "Find by departure.", parser=identifier)]
TargetDeparture = Annotated[str, option("--departure ID", "The new departure.", parser=identifier)]
HoldOption = Annotated[
    str | None, option("--hold HOLD", "The hold whose seats are booked; see `booking holds`.", parser=identifier)
]
Payment = Annotated[str, options.choice("--payment", choices=PAYMENTS, help="The payment method.")]
NoEmail = Annotated[bool, option("--no-email", "Do not send the confirmation e-mail.")]
NoNotify = Annotated[bool, option("--no-notify", "Do not notify the staff.")]
Source = Annotated[
    str | None, options.choice("--source", choices=SOURCES, help="The source of the booking; needs --org.")
]
Refund = Annotated[
    str,
    options.choice(
        "--refund", choices=REFUNDS, help="auto: by the organization's policy; none; full: everything, needs --org."
    ),
]
NewName = Annotated[str | None, option("--name NAME", "The guest's new name.")]
NewEmail = Annotated[str | None, option("--email EMAIL", "The guest's new e-mail address.")]
NewPhone = Annotated[str | None, option("--phone PHONE", "The guest's new phone number; '' removes it.")]
NewNote = Annotated[str | None, option("--note TEXT", "The new note for the staff; '' removes it.")]
Undo = Annotated[bool, option("--undo", "Take it back.")]
Reason = Annotated[str | None, option("--reason TEXT", "A reason, for the staff.")]
ReasonCode = Annotated[
    str | None,
    options.choice(
        "--reason-code", choices=REASON_CODES, help="Use the database, with this reason (operator); default: admin."
    ),
]


@command(app, "list", shape="booking")
def list_(
    cli: Cli,
    status: Status = None,
    experience: options.ExperienceFilter = None,
    today: Today = False,
    departure_from: DepartureFrom = None,
    departure_to: DepartureTo = None,
    updated_since: options.UpdatedSince = None,
    number: Number = None,
    email: EmailFilter = None,
    name: NameFilter = None,
    departure: DepartureFilter = None,
    external_reference: options.ExternalReferenceFilter = None,
    org: options.OrgOfDatabase = None,
    paging: options.Paging = options.FIRST_PAGE,
) -> None:
    """List bookings, newest first.

    \b
    Over HTTP, --email finds the bookings of the customer with that address.
    The API has no filter for --name: the newest 5,000 bookings are
    searched, or all with --all.

    With --org, the database is searched. --email finds the bookings of the
    customer with that address, or else of guests who gave it.

    Examples:
        booking bookings list --today
        booking bookings list --status confirmed --departure-from today
        booking bookings list --updated-since 24h --all -o jsonl
        booking bookings list --number 1017
        booking bookings list --org fjord-tours --name lovelace     (in the database)
    """
    require_org(cli, org)
    if today:
        if departure_from or departure_to:
            raise CliError("--today excludes --departure-from and --departure-to.")
        departure_from = departure_to = day("today")
    filters = {"status": status, "experience_id": experience, "updated_since": updated_since}
    filters |= {"departure_from": departure_from, "departure_to": departure_to, "departure_id": departure}
    filters |= {"external_reference": external_reference}
    if org is not None:
        conditions = {**filters, "number": number, "email": email, "name": name}
        staff_bookings.write_list(cli, org, paging, conditions, COLUMNS)
        return
    params = {**filters, "booking_number": number, "email": email}
    if name is not None:
        api_bookings.write_search(cli, paging, params, name, COLUMNS)
        return
    api_client.write_list(cli, paging, "bookings", COLUMNS, **params)


@command(app, "get", shape="booking")
def get(cli: Cli, booking_id: BookingId, org: options.OrgOfDatabase = None) -> None:
    """Show a booking. The guest's secret link is included for a key with bookings:write.

    Examples:
        booking bookings get 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 -o json
        booking bookings get 1017 --org fjord-tours     (in the database)
    """
    if uses_database(cli, org):
        staff_bookings.get(cli, booking_id, org=org)
    else:
        api_bookings.get(cli, booking_id)


@command(app, "create", shape="booking", changes=True)
def create(
    cli: Cli,
    departure: Departure,
    payment: Payment,
    basket: options.Basket,
    no_email: NoEmail = False,
    no_notify: NoNotify = False,
    hold_id: HoldOption = None,
    org: options.OrgOfDatabase = None,
    source: Source = None,
    dry_run: options.DryRun = False,
    idempotency_key: options.IdempotencyKey = None,
) -> None:
    """Create a confirmed booking. Prices are calculated by the service.

    Over HTTP, the booking's source is `api`. With --org and --source, the booking is created in the database for staff
    (admin), an agency or an assistant (ai).

    With --unique, the booking is refused if another one has its --external-reference.

    --dry-run shows the price and each reason why it would be refused, as `quote` does. With --org it makes every check
    in the database and rolls back.

    Running the command again with the same --idempotency-key books nothing more and shows the first result; -v prints
    the key of this run.

    Examples:
        booking bookings create --departure 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --guest adult=2 \\
            --name 'Ada Lovelace' --email ada@example.com --payment pay_on_site
        booking bookings create --org fjord-tours --source admin --departure ID --guest adult=2 \\
            --name 'Ada Lovelace' --email ada@example.com --payment invoice     (in the database)
    """
    if (org is None) != (source is None):
        raise CliError("--org and --source go together: they use the database.", hint="leave out both to use HTTP")
    require_org(cli, org)
    body = {"departure_id": departure, "payment": payment} | basket.fields(hold_id=hold_id)
    body |= {"send_confirmation_email": False} if no_email else {}
    body |= {"notify_staff": False} if no_notify else {}
    if org is not None and source is not None:
        if hold_id:
            raise CliError("--hold works over HTTP only.", hint="leave out --org and --source")
        booking, is_replay = staff_bookings.create(cli, org, source, body, idempotency_key, dry_run=dry_run)
    elif dry_run:
        api_bookings.preview(cli, body, idempotency_key)
        return
    else:
        booking, is_replay = api_bookings.create(cli, body, idempotency_key)
    cli.render.one(booking)
    if is_replay:
        cli.render.note("This booking was created before with the same key; nothing was booked now.")
    note_dry_run(cli, dry_run)


@command(app, "quote", shape="quote")
def quote(
    cli: Cli,
    departure: Departure,
    guest: options.Guests,
    add_on: options.AddOns = None,
    hold: HoldOption = None,
    idempotency_key: Annotated[
        str | None,
        option(
            "--idempotency-key KEY",
            "The key of the order, also if it is booked already.",
            parser=arguments.idempotency_key,
        ),
    ] = None,
) -> None:
    """Show the price of a booking, and each reason why it would be refused. Nothing is booked or held.

    Examples:
        booking bookings quote --departure 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --guest adult=2 --guest child=1
        booking bookings quote --departure ID --guest adult=2 -o json
    """
    body = {"departure_id": departure} | options.party(guest, add_on) | ({"hold_id": hold} if hold else {})
    api_client.write_resource(cli, "bookings/quote", "POST", body=body, idempotency_key=idempotency_key)


@command(app, "cancel", shape="booking", changes=True)
def cancel(
    cli: Cli,
    booking_id: BookingId,
    refund: Refund = "auto",
    reason: Reason = None,
    org: options.OrgOfDatabase = None,
    reason_code: ReasonCode = None,
    dry_run: options.DryRun = False,
    idempotency_key: options.IdempotencyKey = None,
) -> None:
    """Cancel a booking, free its seats, notify the guest and refund a card payment.

    Over HTTP, the reason of the event is `api`. --dry-run shows the booking and the request.

    In the database, as with --org or --reason-code, the reason is `admin` or `agent`, and the refund is shown.
    --dry-run does all of it and rolls back. --idempotency-key is not needed there, since a booking is cancelled once.

    A cancelled booking is shown unchanged.

    Examples:
        booking bookings cancel 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --reason 'The guest is ill'
        booking bookings cancel 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --refund none --yes
        booking bookings cancel 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --dry-run
        booking bookings cancel 1017 --org fjord-tours --refund full     (in the database)
    """
    if reason_code is not None or uses_database(cli, org):
        code = reason_code or "admin"
        staff_bookings.cancel(cli, booking_id, org=org, reason_code=code, refund=refund, reason=reason, dry_run=dry_run)
    else:
        api_bookings.cancel(cli, booking_id, refund=refund, reason=reason, dry_run=dry_run, key_option=idempotency_key)


@command(app, "set-guest", shape="booking", changes=True)
def set_guest(
    cli: Cli,
    booking_id: BookingId,
    name: NewName = None,
    email: NewEmail = None,
    phone: NewPhone = None,
    note: NewNote = None,
    org: options.OrgOfDatabase = None,
    idempotency_key: options.IdempotencyKey = None,
) -> None:
    """Change the guest of a booking: name, e-mail, phone number, note.

    The other fields stay as they are, and so does the customer's record. A new address gets the confirmation, and
    the guest's former link ends.

    Examples:
        booking bookings set-guest 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --name 'Ada King'
        booking bookings set-guest 1017 --email ada.king@example.com --phone ''
        booking bookings set-guest 1017 --org fjord-tours --note 'Arrives late'     (in the database)
    """
    texts = {"name": name, "email": email, "phone": phone, "note": note}
    body = {field: text for field, text in texts.items() if text is not None}
    if not body:
        raise CliError("There is nothing to change.", hint="pass --name, --email, --phone or --note")
    if uses_database(cli, org):
        staff_bookings.set_guest(cli, booking_id, body, org=org)
    else:
        api_bookings.change(cli, booking_id, "guest", body, key_option=idempotency_key)


def _attend(cli: Cli, booking_id: str, verb: str, undo: bool, org: str | None, key_option: str | None) -> None:
    """Record the attendance of a booking; `verb` is the end of the API's path."""
    if uses_database(cli, org):
        staff_bookings.attend(cli, booking_id, verb, org=org, undo=undo)
    else:
        api_bookings.change(cli, booking_id, verb, {"undo": True} if undo else {}, key_option=key_option)


@command(app, "check-in", shape="booking", changes=True)
def check_in(
    cli: Cli,
    booking_id: BookingId,
    undo: Undo = False,
    org: options.OrgOfDatabase = None,
    idempotency_key: options.IdempotencyKey = None,
) -> None:
    """Check in the guests of a booking.

    A booking that is checked in is shown unchanged.

    Examples:
        booking bookings check-in 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
        booking bookings check-in 1017 --undo
        booking bookings check-in 1017 --org fjord-tours     (in the database)
    """
    _attend(cli, booking_id, "check-in", undo, org, idempotency_key)


@command(app, "no-show", shape="booking", changes=True)
def no_show(
    cli: Cli,
    booking_id: BookingId,
    undo: Undo = False,
    org: options.OrgOfDatabase = None,
    idempotency_key: options.IdempotencyKey = None,
) -> None:
    """Record that the guests of a booking did not come.

    Seats and money stay as they are; `cancel` is another decision.

    Examples:
        booking bookings no-show 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
        booking bookings no-show 1017 --undo
        booking bookings no-show 1017 --org fjord-tours     (in the database)
    """
    _attend(cli, booking_id, "no-show", undo, org, idempotency_key)


@command(app, "confirm", shape="booking", changes=True)
def confirm(cli: Cli, booking_id: BookingId, org: options.OrgOfBooking = None) -> None:
    """Confirm a pending booking, paid or not (operator).

    Examples:
        booking bookings confirm 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07
    """
    staff_bookings.confirm(cli, booking_id, org=org)


@command(app, "reschedule", shape="booking", changes=True)
def reschedule(
    cli: Cli,
    booking_id: BookingId,
    departure: TargetDeparture,
    org: options.OrgOfDatabase = None,
    use_api: options.UseApi = False,
    dry_run: options.DryRun = False,
    idempotency_key: options.IdempotencyKey = None,
) -> None:
    """Move a booking to another departure at the same price.

    --dry-run shows the booking as it would be, or why it would not move, and changes nothing.

    Examples:
        booking bookings reschedule 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 \\
            --departure 0190f3c2-8a10-7c55-b1d2-5a0c9e7f3d21
        booking bookings reschedule 1017 --departure ID --dry-run
        booking bookings reschedule 1017 --org fjord-tours --departure ID --dry-run     (in the database)
    """
    if uses_database(cli, org, use_api=use_api):
        staff_bookings.reschedule(cli, booking_id, departure, org=org, dry_run=dry_run)
    else:
        api_bookings.reschedule(cli, booking_id, departure, dry_run=dry_run, key_option=idempotency_key)


@command(app, "change-party", shape="booking", changes=True)
def change_party(
    cli: Cli,
    booking_id: BookingId,
    guest: options.Guests,
    add_on: options.AddOns = None,
    refund: Refund = "auto",
    org: options.OrgOfDatabase = None,
    dry_run: options.DryRun = False,
    idempotency_key: options.IdempotencyKey = None,
) -> None:
    """Change the party of a booking: all guests who come, and not only those who join.

    Guests who stay keep their price, and additional guests pay today's price. Payments for guests who leave are
    refunded by the terms of a cancellation. Add-ons are unchanged unless --add-on is given. --dry-run shows the booking
    as it would be, or why it would not change.

    Examples:
        booking bookings change-party 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --guest adult=3 --dry-run
        booking bookings change-party 1017 --guest adult=1 --guest child=2 --add-on drysuit=1
        booking bookings change-party 1017 --org fjord-tours --guest adult=1 --refund full     (in the database)
    """
    body = options.party(guest, add_on)
    if uses_database(cli, org):
        staff_bookings.change_party(cli, booking_id, body, org=org, refund=refund, dry_run=dry_run)
    else:
        api_bookings.change_party(cli, booking_id, body, refund=refund, dry_run=dry_run, key_option=idempotency_key)
