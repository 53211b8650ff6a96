"""`/api/v1/me`: who is calling, and for whom."""

from booking_core import keys, organizations
from booking_core.db.engine import Tx
from booking_core.models.organizations import Me
from booking_server.api.operations import Call, Operation


def _get(_: Tx, call: Call) -> object:
    organization = call.caller.organization
    return {
        "organization": organizations.present(organization),
        "key": keys.present(call.caller.key, organization.zone),
    }


OPERATIONS = (
    Operation(
        id="get_me",
        method="GET",
        path="/api/v1/me",
        tag="Me",
        summary="The organization and the key of this call",
        description="Needs no scope, and serves as the test of a key.",
        act=_get,
        answers={200: ("The organization and the key.", Me)},
    ),
)
