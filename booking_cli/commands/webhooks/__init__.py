"""`booking webhooks`: manage endpoints and deliveries over HTTP, and test a receiver.

Only the module of the command that is run is imported, since scripts call `sign` and `verify` for each delivery.
"""

from collections.abc import Mapping

from booking_cli.framework.command import LazyGroup

MODULES: Mapping[str, tuple[str, str]] = {
    "create": ("booking_cli.commands.webhooks.endpoints", "Create an endpoint. Its secret is shown only once."),
    "list": ("booking_cli.commands.webhooks.endpoints", "List endpoints, newest first."),
    "show": ("booking_cli.commands.webhooks.endpoints", "Show an endpoint, without its secret."),
    "update": ("booking_cli.commands.webhooks.endpoints", "Update an endpoint."),
    "delete": ("booking_cli.commands.webhooks.endpoints", "Delete an endpoint and its delivery log permanently."),
    "enable": ("booking_cli.commands.webhooks.endpoints", "Enable a disabled endpoint."),
    "rotate-secret": (
        "booking_cli.commands.webhooks.endpoints",
        "Create a new secret for an endpoint. It is shown only once.",
    ),
    "test": ("booking_cli.commands.webhooks.endpoints", "Send a ping event to an endpoint."),
    "recover": ("booking_cli.commands.webhooks.endpoints", "Queue failed and dead deliveries of an endpoint again."),
    "listen": ("booking_cli.commands.webhooks.listen", "Forward events to an application on this machine."),
    "trigger": (
        "booking_cli.commands.webhooks.trigger",
        "Send a sample event, a past event or your own body to a receiver.",
    ),
    "sign": (
        "booking_cli.commands.webhooks.signing",
        "Sign a body, and print the headers of its delivery.",
    ),
    "verify": ("booking_cli.commands.webhooks.signing", "Verify the signature of a delivery."),
    "deliveries": (
        "booking_cli.commands.webhooks.deliveries",
        "List, show and retry deliveries; they are kept for 30 days.",
    ),
}
"""The module of each command, and the first line of its help."""

app = LazyGroup(
    MODULES,
    help="Manage webhook endpoints and deliveries, and test a receiver.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
