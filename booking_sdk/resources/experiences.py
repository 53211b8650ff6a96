"""The experiences of the organization's catalogue."""

from typing import Unpack
from uuid import UUID

from booking_core.models.experiences import Experience
from booking_sdk._resource import AsyncAPIResource
from booking_sdk._traceback_scrubbing import scrub_tracebacks
from booking_sdk.options import RequestOptions
from booking_sdk.pagination import AsyncPage, AsyncPaginator
from booking_sdk.params import IterateExperiences, ListExperiences
from booking_sdk.request import path_segment


@scrub_tracebacks
class AsyncExperiences(AsyncAPIResource):
    """The experiences that guests can book, published or not. Needs the scope `experiences:read`."""

    async def list(self, **arguments: Unpack[ListExperiences]) -> AsyncPage[Experience]:
        """List one page of experiences, by creation time.

        Args:
            **arguments: Filters and paging, see `ListExperiences`.
        """
        return await self._list(Experience, ListExperiences, "experiences", arguments=arguments)

    def iterate(self, **arguments: Unpack[IterateExperiences]) -> AsyncPaginator[Experience]:
        """Iterate over all experiences, by creation time.

        Args:
            **arguments: Filters and paging, see `IterateExperiences`.
        """
        return self._iterate(Experience, IterateExperiences, "experiences", arguments=arguments)

    async def get(self, experience_id: str | UUID, *, options: RequestOptions | None = None) -> Experience:
        """Return one experience.

        Args:
            experience_id: The id of the experience.
            options: Settings for this call.

        Raises:
            NotFoundError: No experience has this id.
        """
        return await self._get(Experience, "experiences", path_segment("experience_id", experience_id), options=options)
