"""The list of all commands, in the order of `booking commands`, and the map of `booking --help`."""

from collections.abc import Mapping, Sequence

MODULES: Mapping[str, tuple[str, str]] = {
    "demo": ("booking_cli.commands.demo", "Try it: two shops, a key, and calls to copy."),
    "serve": ("booking_cli.commands.serve", "Start the service."),
    "login": ("booking_cli.commands.login", "Log in with an API key."),
    "logout": ("booking_cli.commands.login", "Log out and remove the stored key."),
    "whoami": ("booking_cli.commands.login", "See whose key is in use, and its scopes."),
    "config": ("booking_cli.commands.config", "See and change profiles and client settings."),
    "experiences": ("booking_cli.commands.experiences", "See the experiences on sale."),
    "availability": ("booking_cli.commands.availability", "Find departures with free seats."),
    "departures": ("booking_cli.commands.departures", "See how full departures are; close or cancel them."),
    "bookings": ("booking_cli.commands.bookings", "Book, find, move and cancel."),
    "report": ("booking_cli.commands.report", "See sales, occupancy and deliveries at a glance."),
    "holds": ("booking_cli.commands.holds", "Hold seats of a departure for some minutes."),
    "checkouts": ("booking_cli.commands.checkouts", "Create checkouts that a guest pays by card."),
    "customers": ("booking_cli.commands.customers", "Find guests, correct them, or delete their data."),
    "gift-cards": ("booking_cli.commands.gift_cards", "Issue gift cards, and see their balance."),
    "events": ("booking_cli.commands.events", "Follow changes as they happen."),
    "webhooks": ("booking_cli.commands.webhooks", "Send each change to your own systems."),
    "mcp": ("booking_cli.commands.mcp", "Let an AI agent sell with your key."),
    "conformance": ("booking_cli.commands.conformance", "Check that a service keeps the contract of the API."),
    "sandbox": ("booking_cli.commands.sandbox", "Test without mail and money, on your own clock."),
    "api": ("booking_cli.commands.api", "Send any request to the API."),
    "worker": ("booking_cli.commands.serve", "Deliver webhooks and mail in a separate process."),
    "db": ("booking_cli.commands.db", "Create, upgrade and check the database."),
    "cells": ("booking_cli.commands.cells", "List and create the cells of the installation."),
    "orgs": ("booking_cli.commands.orgs", "Create organizations and change their settings."),
    "keys": ("booking_cli.commands.keys", "Create, rotate and revoke API keys."),
    "catalog": ("booking_cli.commands.catalog", "Load experiences and departures from a file."),
    "storefront": ("booking_cli.commands.storefront", "Hold seats, check out and pay, as a guest does."),
    "payments": ("booking_cli.commands.payments", "Record payments, and see who has not paid."),
    "stripe": ("booking_cli.commands.stripe", "Connect Stripe accounts, and see open payments."),
    "refunds": ("booking_cli.commands.refunds", "See refunds, and settle those that are stuck."),
    "mails": ("booking_cli.commands.mails", "See mails, and send failed ones again."),
    "audit": ("booking_cli.commands.audit", "See who changed what."),
    "secrets": ("booking_cli.commands.secrets", "Rotate the secret keys of the installation."),
    "backup": ("booking_cli.commands.backup", "Save the database to a file."),
    "restore": ("booking_cli.commands.backup", "Bring a backup back."),
    "doctor": ("booking_cli.commands.doctor", "Check that everything in the database is right."),
    "completion": ("booking_cli.commands.help", "Print a script for completion by Tab."),
    "commands": ("booking_cli.commands.help", "List all commands."),
    "help": ("booking_cli.commands.help", "Show the help of a command or a topic."),
}
"""The module of each command, which is imported when the command is used, and its line in lists of commands."""

SECTIONS: Mapping[str, Sequence[str]] = {
    "Start here": ("demo", "serve", "login", "whoami"),
    "Sell": (
        "experiences",
        "availability",
        "departures",
        "bookings",
        "gift-cards",
        "catalog",
        "report",
    ),
    "Webhooks": ("webhooks", "events", "sandbox"),
    "People and money": ("customers", "payments", "refunds", "mails"),
    "Operate": ("orgs", "keys", "worker", "db", "backup", "restore", "doctor"),
}
"""The map of `booking --help`. Commands that are rarely used are only in `booking commands`."""
