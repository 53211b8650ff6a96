"""`booking experiences`: list and show experiences over HTTP."""

from typing import Annotated

from booking_cli.client import api_client
from booking_cli.framework.arguments import identifier
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.options import FIRST_PAGE, Paging, UpdatedSince, argument, option
from booking_cli.framework.tables import Columns

app = command_group("List and show experiences.")

COLUMNS = Columns(
    ("id", "title", "is_published", "price_from", "duration", "slug", "updated_at"),
    empty="There is no experience yet: booking catalog import",
    truncated={"title": 28, "slug": 24},
)
ExperienceId = Annotated[str, argument("ID", "The experience's id; see `booking experiences list`.", parser=identifier)]


@command(app, "list", shape="experience")
def list_(
    cli: Cli,
    published: Annotated[bool | None, option("--published/--unpublished", "Filter by publication.")] = None,
    updated_since: UpdatedSince = None,
    paging: Paging = FIRST_PAGE,
) -> None:
    """List experiences, newest first.

    Examples:
        booking experiences list
        booking experiences list --published --fields id,title,price_tiers -o json
    """
    api_client.write_list(cli, paging, "experiences", COLUMNS, published=published, updated_since=updated_since)


@command(app, "get", shape="experience")
def get(cli: Cli, experience_id: ExperienceId) -> None:
    """Show an experience with its price tiers.

    Examples:
        booking experiences get 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 -o json
    """
    api_client.write_resource(cli, f"experiences/{experience_id}")
