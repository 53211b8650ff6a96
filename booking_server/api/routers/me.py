"""`/api/v1/me`: the organization and the key of the call."""

from booking_core import keys, organizations
from booking_core.models.organizations import Me
from booking_server.api.dependencies import AnyCaller
from booking_server.api.routing import ApiRouter

router = ApiRouter(prefix="/api/v1/me", tags=["Me"])


@router.get(
    "",
    operation_id="get_me",
    summary="The organization and the key of this call",
    response_model=Me,
    response_description="The organization and the key.",
)
def get_me(caller: AnyCaller) -> object:
    """Needs no scope, and serves as the test of a key."""
    organization = caller.organization
    return {"organization": organizations.present(organization), "key": keys.present(caller.key, organization.zone)}
