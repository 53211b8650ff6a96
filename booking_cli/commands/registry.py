"""The list of all commands, in the order of the help."""

from collections.abc import Mapping, Sequence

MODULES: Mapping[str, tuple[str, str]] = {
    "login": ("booking_cli.commands.login", "Log in with an API key."),
    "logout": ("booking_cli.commands.logout", "Log out and remove the stored API key."),
    "whoami": ("booking_cli.commands.whoami", "Show the organization and the scopes of the API key."),
    "config": ("booking_cli.commands.config", "Show and change profiles and client settings."),
    "experiences": ("booking_cli.commands.experiences", "List and show experiences."),
    "availability": ("booking_cli.commands.availability", "List departures with available seats."),
    "departures": ("booking_cli.commands.departures", "List, show, close, reopen and cancel departures."),
    "bookings": ("booking_cli.commands.bookings", "List, create, cancel, confirm and reschedule bookings."),
    "holds": ("booking_cli.commands.holds", "Hold seats of a departure for some minutes."),
    "checkouts": ("booking_cli.commands.checkouts", "Create and show checkouts that are paid by card."),
    "customers": ("booking_cli.commands.customers", "List, create and update customers."),
    "gift-cards": ("booking_cli.commands.gift_cards", "List, issue and deactivate gift cards."),
    "events": ("booking_cli.commands.events", "List and follow events."),
    "webhooks": ("booking_cli.commands.webhooks", "Manage webhook endpoints and deliveries, and test a receiver."),
    "sandbox": ("booking_cli.commands.sandbox", "Serve a sandbox for tests, move its clock, and read its mails."),
    "api": ("booking_cli.commands.api", "Send any request to the API."),
    "serve": ("booking_cli.commands.serve", "Serve the API."),
    "worker": ("booking_cli.commands.worker", "Run the delivery worker and periodic jobs."),
    "demo": ("booking_cli.commands.demo", "Serve two demo organizations with example catalogues."),
    "db": ("booking_cli.commands.db", "Create, upgrade, check and purge the database."),
    "cells": ("booking_cli.commands.cells", "List and create the cells of the installation."),
    "orgs": ("booking_cli.commands.orgs", "Create organizations and change their settings."),
    "keys": ("booking_cli.commands.keys", "Create, list, rotate, expire and revoke API keys."),
    "catalog": ("booking_cli.commands.catalog", "Import, export and validate catalogue files."),
    "storefront": ("booking_cli.commands.storefront", "Hold seats, check out and pay, as a guest does."),
    "payments": ("booking_cli.commands.payments", "Record payments made by hand, and list unpaid bookings."),
    "stripe": ("booking_cli.commands.stripe", "Set Stripe accounts, and list payments that wait for a person."),
    "refunds": ("booking_cli.commands.refunds", "List, retry and settle refunds."),
    "mails": ("booking_cli.commands.mails", "List mails, and retry failed ones."),
    "audit": ("booking_cli.commands.audit", "List the changes by operator commands and API keys."),
    "secrets": ("booking_cli.commands.secrets", "Rotate the secret keys of the installation."),
    "backup": ("booking_cli.commands.backup", "Write a backup of the database to a file."),
    "restore": ("booking_cli.commands.restore", "Restore the database from a backup."),
    "doctor": ("booking_cli.commands.doctor", "Check the integrity of the database."),
    "completion": ("booking_cli.commands.help", "Print a shell completion script."),
    "commands": ("booking_cli.commands.help", "List all commands."),
    "help": ("booking_cli.commands.help", "Show the help of a command or a topic."),
}
"""The module of each command, which is imported when the command is used, and its line in `booking --help`."""

_CLIENT = (
    *("login", "logout", "whoami", "config", "experiences", "availability", "departures", "bookings", "holds"),
    "checkouts",
    *("customers", "gift-cards"),
    *("events", "webhooks", "api"),
    "sandbox",
)
_ABOUT = ("completion", "commands", "help")
SECTIONS: Mapping[str, Sequence[str]] = {
    "Client commands": _CLIENT,
    "Operator commands": [name for name in MODULES if name not in (*_CLIENT, *_ABOUT)],
    "About the command": _ABOUT,
}
"""The sections of `booking --help`."""
