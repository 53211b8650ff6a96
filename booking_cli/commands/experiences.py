"""`booking experiences`: list and show experiences over HTTP."""

from typing import Annotated

import typer

from booking_cli.client import api_client, pagination
from booking_cli.framework.arguments import identifier
from booking_cli.framework.command import command, command_group
from booking_cli.framework.options import (
    DEFAULT_LIMIT,
    AllPages,
    Limit,
    Order,
    StartingAfter,
    UpdatedSince,
    argument,
    option,
)

app = command_group("List and show experiences.")

COLUMNS = ("id", "title", "is_published", "price_from", "duration", "slug", "updated_at")
TRUNCATED = {"title": 28, "slug": 24}
ExperienceId = Annotated[str, argument("ID", "The experience's id; see `booking experiences list`.", parser=identifier)]


@command(
    app,
    "list",
    "booking experiences list",
    "booking experiences list --published --fields id,title,price_tiers -o json",
    shape="experience",
)
def list_(
    ctx: typer.Context,
    published: Annotated[bool | None, option("--published/--unpublished", "Filter by publication.")] = None,
    updated_since: UpdatedSince = None,
    limit: Limit = DEFAULT_LIMIT,
    all_pages: AllPages = False,
    order: Order = "desc",
    starting_after: StartingAfter = None,
) -> None:
    """List experiences, newest first."""
    pagination.write_list(
        ctx,
        api_client.path("experiences"),
        COLUMNS,
        params={"published": published, "updated_since": updated_since},
        truncated=TRUNCATED,
        empty="There is no experience yet: booking catalog import",
    )


@command(app, "get", "booking experiences get 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 -o json", shape="experience")
def get(ctx: typer.Context, experience_id: ExperienceId) -> None:
    """Show an experience with its price tiers."""
    api_client.write_resource(ctx.obj, "experiences", experience_id)
