"""`booking audit`: list the changes by operator commands and API keys, in the database."""

from typing import Annotated

from booking_cli.framework.arguments import timestamp
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.formatting import Item
from booking_cli.framework.options import DEFAULT_LIMIT, Limit, OrgFilter, option
from booking_cli.framework.tables import Columns
from booking_cli.operator import storage

app = command_group("List the changes by operator commands and API keys (operator).")


@command(app, "list", shape="audit_entry")
def list_(
    cli: Cli,
    org: OrgFilter = None,
    since: Annotated[str | None, option("--since T", "Filter by time: 2h (ago) or ISO 8601.", parser=timestamp)] = None,
    action: Annotated[
        str | None, option("--action ACTION", "Filter by action, such as keys.revoke, or by its first word.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
) -> None:
    """List changes, newest first.

    \b
    operator   a command on a machine of the operator: USER@HOST
    api_key    a request with an API key: the prefix of the key

    A command that changes something, and each change of a webhook endpoint by an API key, has one entry. It has the ids
    of the changed objects, and no entered value. Bookings, customers and gift cards that API keys create or change have
    events instead; see `booking events list`.

    Examples:
        booking audit list --org fjord-tours --since 1d
        booking audit list --action keys
        booking audit list --action orgs.set -o json
    """
    with storage.open_database(cli) as database:
        from booking_core.base.clock import zone
        from booking_core.records import audit

        with database.reading() as tx:
            organization = storage.organization_filter(tx, org)
            local = organization.zone if organization else zone("UTC")
            earliest = local.parse(since) if since else 0
            owner = organization.id if organization else None
            rows = audit.find(tx, organization_id=owner, since=earliest, action=action or "", limit=limit + 1)
    cli.render.limited(rows, limit, COLUMNS)


def _summary(entry: Item) -> str:
    """Return the summary of an entry with a blank after each comma, where its line may end."""
    return str(entry["summary"]).replace(",", ", ")


COLUMNS = Columns(
    ("at", "actor", "action", "organization", "summary", "actor_kind"),
    empty="No change found.",
    terminal=("at", "actor", "action", "organization", "actor_kind"),
    truncated={"actor": 20},
    below=_summary,
)
