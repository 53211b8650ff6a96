"""`booking customers`: list, show and create customers over HTTP; update, export and anonymize them in the
database."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from booking_cli.client import api_client
from booking_cli.framework import options
from booking_cli.framework.arguments import identifier
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.formatting import counted
from booking_cli.framework.options import argument, option
from booking_cli.framework.tables import Columns
from booking_cli.operator import transactions
from booking_cli.operator.staff_bookings import note_dry_run

if TYPE_CHECKING:
    from booking_core.base.context import Actor
    from booking_core.db.engine import Tx

app = command_group("Manage customers. A customer is identified by the e-mail address.")

COLUMNS = Columns(
    ("id", "name", "email", "phone", "tags", "email_subscription", "created_at"),
    empty="No customer found.",
    truncated={"name": 24, "email": 32, "tags": 16},
)

CustomerId = Annotated[str, argument("ID", "The customer's id; see `booking customers list`.", parser=identifier)]
Email = Annotated[str, option("--email EMAIL", "The e-mail address.")]
Name = Annotated[str, option("--name NAME", "The full name.")]
Phone = Annotated[str | None, option("--phone PHONE", "The phone number.")]


@command(app, "list", shape="customer")
def list_(
    cli: Cli,
    email: Annotated[str | None, option("--email EMAIL", "Filter by e-mail address.")] = None,
    paging: options.Paging = options.FIRST_PAGE,
) -> None:
    """List customers, newest first.

    Examples:
        booking customers list
        booking customers list --email ada@example.com
    """
    api_client.write_list(cli, paging, "customers", COLUMNS, email=email)


@command(app, "get", shape="customer")
def get(cli: Cli, customer_id: CustomerId) -> None:
    """Show a customer.

    Examples:
        booking customers get 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 -o json
    """
    api_client.write_resource(cli, f"customers/{customer_id}")


@command(app, "create", shape="customer", changes=True)
def create(
    cli: Cli,
    email: Email,
    name: Name,
    phone: Phone = None,
    subscribe: Annotated[bool, option("--subscribe", "The customer agreed to marketing e-mail.")] = False,
    idempotency_key: options.IdempotencyKey = None,
) -> None:
    """Create a customer. An existing customer with the same e-mail address is shown unchanged.

    Examples:
        booking customers create --email ada@example.com --name 'Ada Lovelace'
        booking customers create --email ada@example.com --name 'Ada Lovelace' --subscribe
    """
    body: dict[str, Any] = {"email": email, "name": name}
    body |= {"phone": phone} if phone else {}
    body |= {"email_subscription": True} if subscribe else {}
    if api_client.write_posted(cli, "customers", body=body, key_option=idempotency_key).status == 200:
        cli.render.note("A customer with this address exists already; nothing was changed.")


@command(app, "update", shape="customer", changes=True)
def update(
    cli: Cli,
    customer_id: CustomerId,
    name: Annotated[str | None, option("--name NAME", "The new full name.")] = None,
    email: Annotated[str | None, option("--email EMAIL", "The new e-mail address.")] = None,
    phone: Annotated[str | None, option("--phone PHONE", "The new phone number; '' removes it.")] = None,
    org: options.OrgOfId = None,
) -> None:
    """Update a customer's contact details (operator).

    The contact details in existing bookings stay unchanged.

    Examples:
        booking customers update 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --phone '+47 900 00 000'
        booking customers update 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --email ada@new.example.com
    """
    if name is None and email is None and phone is None:
        raise CliError("There is nothing to change.", hint="pass --name, --email or --phone")
    from booking_core import customers

    updated = transactions.change_by_id(
        cli, customer_id, partial(customers.update, name=name, email=email, phone=phone), noun="customer", org=org
    )
    cli.render.one(updated)


@command(app, "export")
def export(cli: Cli, customer_id: CustomerId, org: options.OrgOfId = None) -> None:
    """Write everything that is kept about a customer, as JSON (operator).

    \b
    customer, bookings   with notes, and reasons of cancellations
    gift_cards           bought by or for the customer's address
    payments, payment_records, refunds, gift_card_entries
    timeline, events     with the bodies that receivers get
    deliveries           with the excerpts of responses, by attempt
    mails                recipient and status; their text is not kept

    Codes, keys and guests' links are omitted. Rows that were deleted after their retention are missing.

    Examples:
        booking customers export 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 > guest.json
        booking customers export 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --org fjord-tours
    """
    from booking_core.customers import guest_data

    exported = transactions.read_by_id(cli, customer_id, guest_data.export, noun="customer", org=org)
    cli.render.document(exported)


@command(app, "anonymize", shape="erasure", changes=True)
def anonymize(cli: Cli, customer_id: CustomerId, org: options.OrgOfId = None, dry_run: options.DryRun = False) -> None:
    """Replace a guest's personal data everywhere, for good (operator).

    Bookings keep their numbers, seats and money. The customer is replaced at once and receivers get `customer.updated`.
    A worker then replaces the data in bookings, events, stored answers, mails, the delivery log, the timeline and gift
    cards, usually within minutes. Guests' links end. Run the command again to see how far it is.

    It is refused while the guest has a future booking or a pending refund.

    Examples:
        booking customers anonymize 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --dry-run
        booking customers anonymize 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --yes
    """
    from booking_core import customers
    from booking_core.customers import erasures

    def preview(tx: "Tx", actor: "Actor", stored: str) -> dict[str, Any]:
        return erasures.preview(tx, actor, stored) | {"customer": customers.get(tx, actor, stored)}

    state = transactions.read_by_id(cli, customer_id, preview, noun="customer", org=org)
    customer = state.pop("customer")
    if state["status"] == "not_requested" and not dry_run:
        cli.confirm(_question(customer, state))
        state = transactions.change_by_id(cli, customer_id, erasures.request, noun="customer", org=org)
    cli.render.one(state | {"dry_run": dry_run})
    cli.render.note(_PROGRESS[state["status"]])
    note_dry_run(cli, dry_run)


_PROGRESS = {
    "not_requested": "The guest's data would be replaced.",
    "in_progress": "The customer is anonymized, and a worker replaces the data elsewhere.",
    "finished": "The guest's data is replaced.",
}


def _question(customer: dict[str, Any], state: dict[str, Any]) -> str:
    count = counted(state["bookings"], "booking")
    return f"Anonymize {customer['name']} <{customer['email']}> with {count}? This cannot be undone."
