"""`/api/v1/experiences`: the catalogue."""

from typing import Annotated

from fastapi import Query

from booking_core.catalogue import experiences
from booking_core.models.experiences import Experience
from booking_core.models.pages import Page
from booking_server.api.dependencies import ApiRouter, ExperiencesReader, Lane, ReadTx, runs_in
from booking_server.api.parameters import Flag, ListQuery, PathId, Timestamp

router = ApiRouter(prefix="/api/v1/experiences", tags=["Experiences"])


class ExperienceQuery(ListQuery):
    """The filters of the list of experiences."""

    published: Flag | None = None
    """Only published ones, or only unpublished ones."""
    updated_since: Timestamp | None = None
    """Only those changed at or after it."""


@router.get(
    "",
    summary="List experiences",
    response_model=Page[Experience],
    response_description="A page of experiences.",
)
@runs_in(Lane.LISTS, has_etag=True)
def list_experiences(caller: ExperiencesReader, tx: ReadTx, query: Annotated[ExperienceQuery, Query()]) -> object:
    """Unpublished experiences are listed too, unless `published` says otherwise."""
    since = query.instant("updated_since", caller)
    return experiences.find(tx, caller, query.page, published=query.published, updated_since=since)


@router.get(
    "/{id}",
    summary="Get an experience",
    response_model=Experience,
    response_description="The experience.",
)
@runs_in(Lane.LOOK_UPS, has_etag=True)
def get_experience(caller: ExperiencesReader, tx: ReadTx, experience_id: PathId) -> object:
    return experiences.get(tx, caller, experience_id)
