"""The shared list parameters, as the doors take them."""

from booking_core.db.paging import PageRequest
from booking_server.api.operations import Call


def page_request(call: Call) -> PageRequest:
    return PageRequest(call.query["limit"], call.query["order"], call.query["starting_after"])
