"""`booking customers`: the organization's customer records."""

from typing import Annotated, Any

import typer

from booking_cli.client import api_client, pagination
from booking_cli.client.pagination import LIMIT, After, All, Limit, Order
from booking_cli.framework import context
from booking_cli.framework.arguments import identifier
from booking_cli.framework.command import command, group
from booking_cli.framework.context import CliError
from booking_cli.framework.options import Key
from booking_cli.operator import storage, transactions

app = group("Customers: one record for each e-mail address.")

COLUMNS = ("id", "name", "email", "phone", "tags", "email_subscription", "created_at")
CLIPPED = {"name": 24, "email": 32, "tags": 16}
CustomerId = Annotated[
    str, typer.Argument(metavar="ID", parser=identifier, help="The id; `booking customers list` shows it.")
]


@command(app, "list", "booking customers list", "booking customers list --email ada@example.com", shape="customer")
def list_(
    ctx: typer.Context,
    email: Annotated[
        str | None, typer.Option("--email", metavar="EMAIL", help="Only the one with this address.")
    ] = None,
    limit: Limit = LIMIT,
    everything: All = False,
    order: Order = "desc",
    starting_after: After = None,
) -> None:
    """Lists customers, the newest first."""
    pagination.show(
        context.of(ctx),
        api_client.path("customers"),
        COLUMNS,
        params={"email": email, "order": order},
        limit=limit,
        everything=everything,
        starting_after=starting_after,
        clipped=CLIPPED,
        empty="There is no such customer." if email else "There is no customer yet.",
    )


@command(app, "get", "booking customers get 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 -o json", shape="customer")
def get(ctx: typer.Context, customer_id: CustomerId) -> None:
    """Shows a customer."""
    cli = context.of(ctx)
    with api_client.client(cli) as client:
        found = api_client.ask(client, "GET", api_client.path("customers", customer_id))
    cli.render.one(found.body)


@command(
    app,
    "create",
    "booking customers create --email ada@example.com --name 'Ada Lovelace'",
    "booking customers create --email ada@example.com --name 'Ada Lovelace' --subscribe",
    shape="customer",
    changes=True,
)
def create(
    ctx: typer.Context,
    email: Annotated[str, typer.Option("--email", metavar="EMAIL", help="Who it is: one record for each address.")],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="The full name.")],
    phone: Annotated[str | None, typer.Option("--phone", metavar="PHONE", help="A telephone number.")] = None,
    subscribe: Annotated[
        bool, typer.Option("--subscribe", help="They agreed to marketing e-mail; never assumed.")
    ] = False,
    idempotency_key: Key = None,
) -> None:
    """Creates a customer; one with this address already is shown unchanged."""
    cli = context.of(ctx)
    body: dict[str, Any] = {"email": email, "name": name}
    body |= {"phone": phone} if phone else {}
    body |= {"email_subscription": True} if subscribe else {}
    with api_client.client(cli) as client, api_client.once(cli, idempotency_key) as key:
        made = api_client.ask(client, "POST", api_client.path("customers"), body=body, idempotency_key=key)
    cli.render.one(made.body)
    if made.status == 200:
        cli.render.note("There was a customer with this address already; nothing was changed.")


@command(
    app,
    "update",
    "booking customers update 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --phone '+47 900 00 000'",
    "booking customers update 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --email ada@new.example.com",
    shape="customer",
    changes=True,
)
def update(
    ctx: typer.Context,
    customer_id: CustomerId,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="The full name.")] = None,
    email: Annotated[str | None, typer.Option("--email", metavar="EMAIL", help="The new address.")] = None,
    phone: Annotated[
        str | None, typer.Option("--phone", metavar="PHONE", help="The new number; '' takes it away.")
    ] = None,
    org: Annotated[
        str | None, typer.Option("--org", metavar="SLUG", help="Whose it is, when two organizations have that id.")
    ] = None,
) -> None:
    """Changes a customer's contact details, in the database that BOOKING_DATABASE_URL names.

    What guests gave at their bookings stays as it was.
    """
    cli = context.of(ctx)
    if name is None and email is None and phone is None:
        raise CliError("There is nothing to change.", hint="pass --name, --email or --phone")
    with storage.installed():
        from booking_core import customers

    changed = transactions.act_on(
        cli,
        lambda tx, actor, pending: customers.update(
            tx, actor, pending, transactions.stored_id(customer_id, "customer"), name=name, email=email, phone=phone
        ),
        noun="customer",
        org=org,
    )
    cli.render.one(changed)
