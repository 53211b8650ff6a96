# Generated from booking_sdk/resources/experiences.py by `make sync-client`. Do not edit.
"""The experiences of the organization's catalogue."""

from typing import Unpack
from uuid import UUID

from booking_core.models.experiences import Experience
from booking_sdk._lists import list_spec, page_iterator
from booking_sdk._parse import parser_for
from booking_sdk._sync._base_client import APIResource
from booking_sdk._sync.pagination import Page, Paginator, fetch_page
from booking_sdk._traceback_scrubbing import scrub_tracebacks
from booking_sdk.options import RequestOptions
from booking_sdk.params import IterateExperiences, ListExperiences
from booking_sdk.request import get, path_segment


@scrub_tracebacks
class Experiences(APIResource):
    """The experiences that guests can book, published or not. Needs the scope `experiences:read`."""

    def list(self, **arguments: Unpack[ListExperiences]) -> Page[Experience]:
        """List one page of experiences, by creation time.

        Args:
            **arguments: Filters and paging, see `ListExperiences`.
        """
        spec = list_spec(ListExperiences, "experiences", arguments=arguments)
        return fetch_page(self._client, spec, Experience, Page)

    def iterate(self, **arguments: Unpack[IterateExperiences]) -> Paginator[Experience]:
        """Iterate over all experiences, by creation time.

        Args:
            **arguments: Filters and paging, see `IterateExperiences`.
        """
        pages = page_iterator(IterateExperiences, "experiences", arguments=arguments)
        return Paginator(self._client, pages, Experience)

    def get(self, experience_id: str | UUID, *, options: RequestOptions | None = None) -> Experience:
        """Return one experience.

        Args:
            experience_id: The id of the experience.
            options: Settings for this call.

        Raises:
            NotFoundError: No experience has this id.
        """
        spec = get("experiences", path_segment("experience_id", experience_id), options=options)
        return self._client._execute(spec, parser_for(Experience))
