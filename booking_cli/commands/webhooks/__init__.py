"""`booking webhooks`: endpoints over HTTP, and everything for whoever writes a receiver.

Of its commands only the one that is used is loaded: `sign` and `verify` may be called for each delivery of a script.
"""

from collections.abc import Mapping

from booking_cli.framework.command import Listed

MODULES: Mapping[str, tuple[str, str]] = {
    "create": ("booking_cli.commands.webhooks.endpoints", "Creates an endpoint; its secret is shown this once."),
    "list": ("booking_cli.commands.webhooks.endpoints", "Lists every endpoint, the newest first."),
    "show": ("booking_cli.commands.webhooks.endpoints", "Shows an endpoint, without its secret."),
    "update": ("booking_cli.commands.webhooks.endpoints", "Changes what is given, and leaves the rest."),
    "delete": ("booking_cli.commands.webhooks.endpoints", "Deletes an endpoint for good, with its log."),
    "enable": ("booking_cli.commands.webhooks.endpoints", "Sends to a disabled endpoint again."),
    "rotate-secret": ("booking_cli.commands.webhooks.endpoints", "Makes a new secret, and shows it this once."),
    "test": ("booking_cli.commands.webhooks.endpoints", "Queues a ping for an endpoint, whatever it listens to."),
    "recover": ("booking_cli.commands.webhooks.endpoints", "Queues again what an endpoint did not get."),
    "listen": ("booking_cli.commands.webhooks.listen", "Forward events to an application on this machine."),
    "trigger": (
        "booking_cli.commands.webhooks.trigger",
        "Send an event to a receiver: a made-up one, a past one, or your own.",
    ),
    "sign": ("booking_cli.commands.webhooks.signing", "Signs a body as the service would."),
    "verify": ("booking_cli.commands.webhooks.signing", "Tells whether a delivery is authentic."),
    "deliveries": ("booking_cli.commands.webhooks.deliveries", "What was sent to an endpoint, for 30 days."),
}
"""Each command with its module and the first line of its help."""

app = Listed(
    MODULES,
    help="Webhook endpoints, their deliveries, and tools for whoever writes a receiver.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
