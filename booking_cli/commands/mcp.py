"""`booking mcp`: a server of the Model Context Protocol, for agents that sell with the key of this run."""

from typing import Annotated

from booking_cli.client import api_client
from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.options import option

app = command_app()


@command(app, "mcp")
def mcp(
    cli: Cli,
    port: Annotated[
        int | None, option("--port N", "Serve streamable HTTP on this port of this machine.", min=1, max=65_535)
    ] = None,
    read_only: Annotated[bool, option("--read-only", "Offer no tool that changes something.")] = False,
) -> None:
    """Let an agent sell: a server of the Model Context Protocol (MCP) on stdin and stdout, or on a port.

    The agent has the permissions of the key. A person confirms each call that moves money, except with --yes.
    It needs the extra `mcp`: pip install 'booking-cli[mcp]'.

    Examples:
        booking mcp
        booking mcp --read-only --profile shop
        booking mcp --port 8765
    """
    try:
        from booking_cli.client import mcp_server
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("mcp"):
            raise
        hint = "pip install 'booking-cli[mcp]'"
        raise CliError("The package mcp is not installed.", code="package_missing", hint=hint) from None
    with api_client.connect(cli) as client:
        me = client.me()
    if not mcp_server.tools_of(me, read_only=read_only):
        hint = "booking keys create --org SLUG --name Agent --all-read --scope bookings:write"
        raise CliError("The key has no scope of a tool.", ExitCode.FORBIDDEN, code="insufficient_scope", hint=hint)
    mcp_server.run(*api_client.login(cli), me, port=port, read_only=read_only, confirms=not cli.options.yes)
