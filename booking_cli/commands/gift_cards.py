"""`booking gift-cards`: prepaid amounts."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from booking_cli.client import api_client, pagination
from booking_cli.client.pagination import LIMIT, After, All, Limit, Order
from booking_cli.framework import context, secret_files
from booking_cli.framework.amounts import parse_amount
from booking_cli.framework.arguments import identifier, instant, one_of
from booking_cli.framework.command import command, group
from booking_cli.framework.context import CliError
from booking_cli.framework.output import money
from booking_cli.operator import storage, transactions

app = group("Gift cards: prepaid amounts, redeemed with a code.")

COLUMNS = ("id", "code_last4", "status", "balance", "expires_at", "recipient.email", "initial_amount")
STATUSES = ("active", "expired", "inactive")
CLIPPED = {"recipient.email": 24}
CardId = Annotated[
    str, typer.Argument(metavar="ID", parser=identifier, help="The id; `booking gift-cards list` shows it.")
]
Whose = Annotated[
    str | None, typer.Option("--org", metavar="SLUG", help="Whose it is, when two organizations have that id.")
]


@command(
    app,
    "list",
    "booking gift-cards list --status active",
    "booking gift-cards list --all --fields id,balance",
    shape="gift_card",
)
def list_(
    ctx: typer.Context,
    status: Annotated[
        str | None,
        typer.Option("--status", metavar="|".join(STATUSES), parser=one_of(*STATUSES), help="Only those."),
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
    """Lists gift cards, the newest first, without their codes."""
    pagination.show(
        context.of(ctx),
        api_client.path("gift-cards"),
        COLUMNS,
        params={"status": status, "updated_since": updated_since, "order": order},
        limit=limit,
        everything=everything,
        starting_after=starting_after,
        clipped=CLIPPED,
        empty="There is no gift card.",
    )


@command(
    app,
    "get",
    "booking gift-cards get 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07",
    "booking gift-cards get 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 --include-code --fields code",
    shape="gift_card",
)
def get(
    ctx: typer.Context,
    card_id: CardId,
    include_code: Annotated[
        bool, typer.Option("--include-code", help="Also the code, which is money: whoever reads it can spend it.")
    ] = False,
) -> None:
    """Shows a gift card."""
    cli = context.of(ctx)
    params = {"include": "code"} if include_code else None
    with api_client.client(cli) as client:
        found = api_client.ask(client, "GET", api_client.path("gift-cards", card_id), params=params)
    cli.render.one(found.body)


# The operator's --------------------------------------------------------------------------------------------------


@command(
    app,
    "issue",
    "booking gift-cards issue --org fjord-tours --amount 500.00 --recipient-email ada@example.com",
    "booking gift-cards issue --org fjord-tours --amount 50000 --expires-at 2027-12-31 --secret-file card.code",
    shape="new_gift_card",
    changes=True,
)
def issue(
    ctx: typer.Context,
    org: Annotated[str, typer.Option("--org", metavar="SLUG", help="The organization.")],
    amount: Annotated[
        str,
        typer.Option("--amount", metavar="AMOUNT", help="500.00, or in minor units without a point: 50000."),
    ],
    currency: Annotated[
        str | None, typer.Option("--currency", metavar="CODE", help="ISO 4217; the organization's own unless said.")
    ] = None,
    code: Annotated[
        str | None, typer.Option("--code", metavar="CODE", help="The code that redeems it; made unless given.")
    ] = None,
    valid_from: Annotated[
        str | None, typer.Option("--valid-from", metavar="T", help="ISO 8601; at once unless said.")
    ] = None,
    expires_at: Annotated[
        str | None,
        typer.Option("--expires-at", metavar="T", help="ISO 8601, without an offset local time; else never."),
    ] = None,
    purchaser_name: Annotated[str | None, typer.Option("--purchaser-name", metavar="NAME", help="Who paid.")] = None,
    purchaser_email: Annotated[
        str | None, typer.Option("--purchaser-email", metavar="EMAIL", help="Their address.")
    ] = None,
    recipient_name: Annotated[str | None, typer.Option("--recipient-name", metavar="NAME", help="Who gets it.")] = None,
    recipient_email: Annotated[
        str | None, typer.Option("--recipient-email", metavar="EMAIL", help="Their address.")
    ] = None,
    secret_file: Annotated[
        Path | None,
        typer.Option("--secret-file", metavar="FILE", help="Write the code to this new file (0600) instead."),
    ] = None,
) -> None:
    """Issues a gift card that was paid for, and shows its code. Opens the database."""
    cli = context.of(ctx)
    with storage.installed():
        from booking_core import gift_cards, organizations
        from booking_core.gift_cards import GiftCardIssue

    def verb(tx: Any, actor: Any, pending: Any) -> Any:
        request = GiftCardIssue(
            amount_minor=parse_amount(amount, currency or actor.organization.default_currency),
            currency=currency,
            code=code,
            valid_from=_instant(actor, "--valid-from", valid_from),
            expires_at=_instant(actor, "--expires-at", expires_at),
            purchaser_name=purchaser_name,
            purchaser_email=purchaser_email,
            recipient_name=recipient_name,
            recipient_email=recipient_email,
        )
        return gift_cards.issue(tx, actor, pending, request)

    with secret_files.kept(secret_file) as keeper:
        card, made_code = transactions.act(cli, lambda tx: organizations.get(tx, slug=org), verb)
        shown = json.loads(card)
        cli.render.note(f"Issued a gift card of {money(shown['initial_amount'])}.")
        keeper.hand_over(
            cli,
            shown | {"code": made_code},
            "code",
            lost=f"The gift card {shown['id']} was issued, and its code could not be handed over",
            hint=f"booking gift-cards get {shown['id']} --include-code",
            note="The code is money: give it to its recipient and to nobody else.",
        )


def _instant(actor: Any, option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        found: int = actor.organization.zone.parse(text)
    except ValueError as error:
        raise CliError(f"{option} {error}.", hint="write 2027-12-31T00:00:00 or 2027-12-31T00:00:00+01:00") from None
    return found


def _stored(card_id: str) -> str:
    return transactions.stored_id(card_id, "gift card")


@command(
    app,
    "deactivate",
    "booking gift-cards deactivate 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07",
    shape="gift_card",
    changes=True,
)
def deactivate(ctx: typer.Context, card_id: CardId, org: Whose = None) -> None:
    """Stops a gift card from paying for anything; `reactivate` undoes it. Opens the database."""
    cli = context.of(ctx)
    with storage.installed():
        from booking_core import gift_cards

    cli.render.one(
        transactions.act_on(
            cli,
            lambda tx, actor, pending: gift_cards.deactivate(
                tx, actor, pending, transactions.stored_id(card_id, "gift card")
            ),
            noun="gift card",
            org=org,
        )
    )


@command(
    app,
    "reactivate",
    "booking gift-cards reactivate 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07",
    shape="gift_card",
    changes=True,
)
def reactivate(ctx: typer.Context, card_id: CardId, org: Whose = None) -> None:
    """Lets a deactivated gift card pay again, as far as its validity and balance go. Opens the database."""
    cli = context.of(ctx)
    with storage.installed():
        from booking_core import gift_cards

    cli.render.one(
        transactions.act_on(
            cli,
            lambda tx, actor, pending: gift_cards.reactivate(
                tx, actor, pending, transactions.stored_id(card_id, "gift card")
            ),
            noun="gift card",
            org=org,
        )
    )
