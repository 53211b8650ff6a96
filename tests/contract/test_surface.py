"""Every operation of the OpenAPI document has its command and its place in the tables of the contract tests.

The SDK is compared with the document in `tests/booking_sdk/test_operations.py`, the keys and scopes of
every operation in `test_keys_and_scopes.py`, and the resources of other organizations in `test_tenants.py`: these take
their cases from the document itself.
"""

import pytest
from support.api.api import Api
from support.api.endpoints import DOCUMENT, OPERATIONS, Operation
from support.serving.commands import leaves
from support.world.resources import LISTINGS, Listing
from support.world.world import NOON

from booking_sdk import BookingClient, NotFoundError

COMMANDS = {
    "get_me": "whoami",
    "list_availability": "availability",
    "get_departure_manifest": "departures manifest",
    "quote_booking": "bookings quote",
    "check_in_booking": "bookings check-in",
    "record_no_show": "bookings no-show",
    "preview_reschedule": "bookings reschedule",
    "change_guest": "bookings set-guest",
    "change_party": "bookings change-party",
    "preview_party": "bookings change-party",
    "list_gift_card_transactions": "gift-cards transactions",
    "get_sandbox_clock": "sandbox clock",
    "advance_sandbox_clock": "sandbox advance",
    "list_sandbox_mails": "sandbox mails",
    "pay_sandbox_checkout": "sandbox pay",
    "get_webhook": "webhooks show",
    "change_webhook": "webhooks update",
    "rotate_webhook_secret": "webhooks rotate-secret",
    "test_webhook": "webhooks test",
    "recover_webhook": "webhooks recover",
    "redeliver_webhook": "webhooks redeliver",
    "list_deliveries": "webhooks deliveries list",
    "get_delivery": "webhooks deliveries show",
    "retry_delivery": "webhooks deliveries retry",
}
"""The command of each operation whose words differ from `RESOURCE list|get|create|cancel|delete`."""

OTHER_LISTS = {
    "list_availability": "a window of days, in one page: test_params.py",
    "list_departures": "a day, in one page: test_departures.py",
    "list_gift_card_transactions": "the list below a gift card: test_gift_card_transactions.py",
    "list_webhooks": "at most a few endpoints, in one page: test_webhooks.py",
    "list_deliveries": "the list below an endpoint: test_webhooks.py",
    "list_sandbox_mails": "captured mails, of sandboxes alone: test_sandbox.py",
}
"""Lists that have no entry in `support.world.resources`, with the reason and the tests that they have."""

each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)


def command_of(operation: Operation) -> str:
    """Return the words of the command that sends an operation."""
    verb = operation.id.partition("_")[0]
    return COMMANDS.get(operation.id, f"{operation.path.split('/')[3]} {verb}")


@pytest.fixture(scope="module")
def commands() -> set[str]:
    return {" ".join(leaf.words) for leaf in leaves()}


@each_operation
def test_operation_has_a_command(operation: Operation, commands: set[str]) -> None:
    assert command_of(operation) in commands


def test_every_list_is_in_the_table_of_lists() -> None:
    listed = {operation.path.removeprefix("/api/v1") for operation in OPERATIONS if operation.id.startswith("list_")}
    others = {operation.path.removeprefix("/api/v1") for operation in OPERATIONS if operation.id in OTHER_LISTS}
    assert listed == {listing.path for listing in LISTINGS} | others


@each_operation
def test_operation_that_returns_a_page_is_called_a_list(operation: Operation) -> None:
    responses = DOCUMENT["paths"][operation.path][operation.method.lower()]["responses"]
    schemas = [
        response["content"]["application/json"]["schema"]["$ref"]
        for status, response in responses.items()
        if status.startswith("2") and "content" in response
    ]
    assert any(schema.endswith("Page") for schema in schemas) == operation.id.startswith("list_")


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: listing.name)
def test_sdk_lists_and_gets_the_rows_of_the_table(api: Api, shared_database_url: str, listing: Listing) -> None:
    ids = listing.filled(api.world, shared_database_url, [NOON, NOON + 1])
    client = BookingClient(api.key, base_url="http://testserver", http_client=api.client)
    resource = getattr(client, listing.name)
    assert [row.id for row in resource.list(order="asc").data] == ids
    assert [row.id for row in resource.iterate(order="asc", page_size=1)] == ids
    assert resource.get(ids[0]).id == ids[0]
    with pytest.raises(NotFoundError):
        resource.get(api.world.org)
