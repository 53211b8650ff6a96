"""`booking webhooks`: manage endpoints and deliveries over HTTP, and test a receiver.

Only the module of the command that is run is imported, since scripts call `sign` and `verify` for each delivery.
"""

from collections.abc import Mapping

from booking_cli.framework.command import LazyGroup

_SUMMARIES = (
    ("create", "endpoints", "Create an endpoint. Its secret is shown only once."),
    ("list", "endpoints", "List endpoints, newest first."),
    ("show", "endpoints", "Show an endpoint, without its secret."),
    ("update", "endpoints", "Update an endpoint."),
    ("delete", "endpoints", "Delete an endpoint and its delivery log permanently."),
    ("enable", "endpoints", "Enable a disabled endpoint."),
    ("rotate-secret", "endpoints", "Create a new secret for an endpoint. It is shown only once."),
    ("test", "endpoints", "Send a ping event to an endpoint."),
    ("recover", "endpoints", "Queue failed and dead deliveries of an endpoint again."),
    ("redeliver", "endpoints", "Queue any event for an endpoint again."),
    ("listen", "listen", "Forward events to an application on this machine."),
    ("trigger", "trigger", "Send a sample event, a past event or your own body to a receiver."),
    ("sign", "signing", "Sign a body, and print the headers of its delivery."),
    ("verify", "signing", "Verify the signature of a delivery."),
    ("deliveries", "deliveries", "List, show and retry deliveries; they are kept for 30 days."),
)
MODULES: Mapping[str, tuple[str, str]] = {
    name: (f"{__name__}.{module}", summary) for name, module, summary in _SUMMARIES
}
"""The module of each command, and the first line of its help."""

app = LazyGroup(
    MODULES,
    help="Manage webhook endpoints and deliveries, and test a receiver.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
