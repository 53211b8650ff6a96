"""`booking experiences`: the catalogue, as the API shows it."""

from typing import Annotated

import typer

from booking_cli.client import api_client, pagination
from booking_cli.client.pagination import LIMIT, After, All, Limit, Order
from booking_cli.framework import context
from booking_cli.framework.arguments import identifier, instant
from booking_cli.framework.command import command, group

app = group("The catalogue: what can be booked.")

COLUMNS = ("id", "title", "is_published", "price_from", "duration", "slug", "updated_at")
CLIPPED = {"title": 28, "slug": 24}
ExperienceId = Annotated[
    str, typer.Argument(metavar="ID", parser=identifier, help="The id; `booking experiences list` shows it.")
]


@command(
    app,
    "list",
    "booking experiences list",
    "booking experiences list --published --fields id,title,price_tiers -o json",
    shape="experience",
)
def list_(
    ctx: typer.Context,
    published: Annotated[
        bool | None, typer.Option("--published/--unpublished", help="Only those; both unless said.")
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
    """Lists experiences, the newest first."""
    pagination.show(
        context.of(ctx),
        api_client.path("experiences"),
        COLUMNS,
        params={"published": published, "updated_since": updated_since, "order": order},
        limit=limit,
        everything=everything,
        starting_after=starting_after,
        clipped=CLIPPED,
        empty="There is no experience yet: booking catalog import",
    )


@command(app, "get", "booking experiences get 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 -o json", shape="experience")
def get(ctx: typer.Context, experience_id: ExperienceId) -> None:
    """Shows an experience with its price tiers."""
    cli = context.of(ctx)
    with api_client.client(cli) as client:
        found = api_client.ask(client, "GET", api_client.path("experiences", experience_id))
    cli.render.one(found.body)
