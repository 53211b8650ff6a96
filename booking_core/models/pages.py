"""The envelope of every list, and the order of a list."""

from enum import StrEnum
from typing import Generic, TypeVar

from pydantic import Field

from booking_core.models.base import Resource

T = TypeVar("T")


class Order(StrEnum):
    """By creation time: oldest or newest first."""

    ASC = "asc"
    DESC = "desc"


class Page(Resource, Generic[T]):
    """A page of a list."""

    data: list[T] = Field(description="The resources of this page, in the requested order.")
    has_more: bool = Field(description="True when more results follow.")
    next_cursor: str | None = Field(
        description="Pass it back unchanged as `starting_after`; null when `has_more` is false."
    )


class EventPage(Page[T], Generic[T]):
    """A page of the event feed, which can also be polled for new events."""

    resume_cursor: str = Field(
        description="Continues after the last event of this page, or of an earlier one if this page is empty. It is"
        " never null: a follower of a feed without events passes it, and receives the first one."
    )
