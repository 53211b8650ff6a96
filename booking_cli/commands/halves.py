"""Choose between the two halves of a command that works over HTTP and in the database."""

from booking_cli.client import connection
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.operator import storage


def require_org(cli: Cli, org: str | None) -> None:
    """Check that a command whose database half needs --org has it, or has an API key.

    Raises:
        CliError: it has neither, and a database is configured.
    """
    if org is None and uses_database(cli, None):
        raise CliError("The database is used with --org.", hint="pass --org SLUG; or run booking login to use the API")


def uses_database(cli: Cli, org: str | None, *, use_api: bool = False) -> bool:
    """Return whether a command works in the database: with --org, or if a database is configured and no API key.

    Args:
        org: the value of --org.
        use_api: --api, which chooses the API in any case.

    Raises:
        CliError: both options are given.
    """
    if use_api and org is not None:
        raise CliError("--api and --org exclude each other.", hint="the API key belongs to one organization")
    if use_api or org is not None:
        return not use_api
    return connection.resolve(cli).api_key.value is None and storage.is_configured()
