"""The bodies and the queries of OCTO's requests. Ids are texts: a wrong one is answered with the code of its field."""

from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from booking_core.base.clock import parse_date
from booking_core.models import limits
from booking_core.models.base import Count, InputId, Note, Request, ShortText
from booking_core.models.bookings import CancellationNote
from booking_core.models.reasons import Fault
from booking_core.models.references import ExternalReference
from booking_server.api.parameters import Day, QueryParameters, Text

UNITS_MAX = 1_000
"""Unit items of a booking, each a ticket."""


class OctoRequest(Request):
    """A body of a request: names in camel case, unknown ones ignored."""

    model_config = ConfigDict(alias_generator=to_camel)


class OctoContact(OctoRequest):
    full_name: ShortText | None = Field(default=None, repr=False)
    first_name: ShortText | None = Field(default=None, repr=False)
    last_name: ShortText | None = Field(default=None, repr=False)
    email_address: ShortText | None = Field(default=None, repr=False)
    phone_number: ShortText | None = Field(default=None, repr=False)
    locales: Annotated[list[ShortText], Field(max_length=limits.LINES_MAX)] | None = None
    postal_code: ShortText | None = Field(default=None, repr=False)
    country: ShortText | None = Field(default=None, repr=False)
    notes: Note | None = Field(default=None, repr=False)


class UnitItem(OctoRequest):
    uuid: InputId | None = None
    unit_id: ShortText | None = None
    reseller_reference: ShortText | None = Field(default=None, repr=False)
    contact: OctoContact | None = None


def _distinct(items: list[UnitItem]) -> list[UnitItem]:
    uuids = [item.uuid for item in items if item.uuid]
    if len(uuids) != len(set(uuids)):
        raise Fault("repeated", "has a uuid twice")
    return items


UnitItems = Annotated[list[UnitItem], Field(max_length=UNITS_MAX), AfterValidator(_distinct)]
Minutes = Annotated[int, Field(ge=1, le=limits.COUNT_MAX)]


class Unit(OctoRequest):
    """A number of units, to ask for availability."""

    id: ShortText
    quantity: Count


class ProductBody(OctoRequest):
    """A request about an option of a product."""

    product_id: ShortText | None = None
    option_id: ShortText | None = None


def _day_text(text: str) -> str:
    parse_date(text)
    return text


DayText = Annotated[ShortText, AfterValidator(_day_text)]


class CalendarBody(ProductBody):
    local_date_start: DayText | None = None
    local_date_end: DayText | None = None
    units: Annotated[list[Unit], Field(max_length=limits.LINES_MAX)] | None = None


class AvailabilityBody(CalendarBody):
    availability_ids: Annotated[list[ShortText], Field(max_length=UNITS_MAX)] | None = None


class OrderBody(ProductBody):
    """The fields of an order that a reservation sets and an update changes."""

    availability_id: ShortText | None = None
    expiration_minutes: Minutes | None = None
    notes: Note | None = Field(default=None, repr=False)
    unit_items: UnitItems | None = None
    reseller_reference: ExternalReference | None = Field(default=None, repr=False)
    contact: OctoContact | None = None

    @property
    def names_departure(self) -> bool:
        return bool(self.product_id or self.option_id or self.availability_id)


class ReservationBody(OrderBody):
    uuid: InputId | None = None


class UpdateBody(OrderBody):
    email_receipt: bool | None = None


class ConfirmationBody(OctoRequest):
    email_receipt: bool | None = None
    reseller_reference: ExternalReference | None = Field(default=None, repr=False)
    contact: OctoContact | None = None
    unit_items: UnitItems | None = None


class ExtendBody(OctoRequest):
    expiration_minutes: Minutes | None = None


class CancellationBody(OctoRequest):
    reason: CancellationNote | None = None


class BookingsQuery(QueryParameters):
    """The filters of the list of bookings. It needs one of them."""

    resellerReference: Text | None = None  # noqa: N815 - the standard's name
    supplierReference: Text | None = None  # noqa: N815
    localDate: Day | None = None  # noqa: N815
    localDateStart: Day | None = None  # noqa: N815
    localDateEnd: Day | None = None  # noqa: N815
    productId: Text | None = None  # noqa: N815
    optionId: Text | None = None  # noqa: N815
