"""`/api/v1/me`: the organization and the key of the call."""

from functools import lru_cache

from booking_core import organizations
from booking_core.base.context import CallerKey, Organization
from booking_core.base.packed_json import packed_json
from booking_core.models.organizations import Me
from booking_core.organizations import keys
from booking_server.api.dependencies import AnyCaller, ApiRouter, Lane, runs_in

router = ApiRouter(prefix="/api/v1/me", tags=["Me"])


@router.get(
    "",
    summary="The organization and the key of this call",
    response_model=Me,
    response_description="The organization and the key.",
)
@runs_in(Lane.LOOK_UPS)
def get_me(caller: AnyCaller) -> object:
    """Needs no scope: use it to test a key."""
    return _body(caller.organization, caller.key)


# Both are the same ones again and again, and nothing else is shown.
@lru_cache(maxsize=1024)
def _body(organization: Organization, key: CallerKey) -> bytes:
    return packed_json(
        {"organization": organizations.present(organization), "key": keys.present(key, organization.zone)}
    )
