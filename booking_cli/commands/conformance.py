"""`booking conformance`: check that a service keeps the contract of the API."""

from collections import Counter

from booking_cli.client import api_client
from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.tables import Columns

app = command_app()

TIMEOUT_S = 30.0


@command(app, "conformance", shape="conformance")
def conformance(cli: Cli) -> int:
    """Check that a service, or a proxy in front of it, keeps the contract of the API.

    It needs the key of a sandbox: it makes bookings, customers and an endpoint there, and cancels the bookings that it
    does not need. A check without the data or the scope that it needs is skipped. The exit code is 1 for a deviation.

    Examples:
        booking conformance
        booking conformance --base-url https://booking.example.com --profile sandbox
        booking conformance -o json > conformance.json
    """
    import httpx

    from booking_cli.client.conformance import Missing, examine

    base_url, api_key = api_client.login(cli)
    with httpx.Client(base_url=base_url, timeout=TIMEOUT_S, trust_env=False) as client:
        try:
            outcomes = [outcome._asdict() for outcome in examine(client, api_key)]
        except Missing as missing:
            hint = "it needs the key of a sandbox: booking sandbox serve, or booking orgs create --sandbox"
            raise CliError(f"{missing}.", code="not_a_sandbox", hint=hint) from None
        except httpx.TransportError as error:
            raise CliError(f"{base_url} cannot be reached: {error}.", ExitCode.NETWORK, code="network_error") from None
    cli.render.many(outcomes, Columns(tuple(outcomes[0]), wrapped=("check", "reason")))
    count = Counter(outcome["status"] for outcome in outcomes)
    cli.render.note(f"checks: {count['kept']} kept, {count['broken']} broken, {count['skipped']} skipped")
    return ExitCode.FAILED if count["broken"] else ExitCode.OK
