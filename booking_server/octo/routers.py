"""`/octo`: the operations of the standard."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from pydantic import PlainValidator

from booking_core.base import tokens
from booking_core.base.context import Caller
from booking_core.db.engine import Tx
from booking_core.models.base import is_id
from booking_core.records.idempotency import Answer
from booking_server.api.dependencies import (
    AnyCaller,
    AvailabilityReader,
    BookingsReader,
    BookingsWriter,
    ExperiencesReader,
    Lane,
    ReadTx,
    ServiceDep,
    runs_in,
)
from booking_server.execution.reads import as_answer
from booking_server.octo import bookings, capabilities, catalogue
from booking_server.octo.capabilities import Capabilities, OctoRoute
from booking_server.octo.errors import InvalidId
from booking_server.octo.models import (
    AvailabilityBody,
    BookingsQuery,
    CalendarBody,
    CancellationBody,
    ConfirmationBody,
    ExtendBody,
    ReservationBody,
    UpdateBody,
)

router = APIRouter(prefix="/octo", route_class=OctoRoute, include_in_schema=False)


def _uuid(text: str) -> str:
    if not is_id(text):
        raise InvalidId("uuid", text)
    return text.lower()


Uuid = Annotated[str, Path(alias="uuid"), PlainValidator(_uuid)]
ProductId = Annotated[str, Path(alias="id")]
Filters = Annotated[BookingsQuery, Query()]


@router.get("/capabilities", response_model=None)
@runs_in(Lane.LOOK_UPS)
def list_octo_capabilities(_: AnyCaller) -> object:
    return capabilities.listed()


@router.get("/supplier", response_model=None)
@runs_in(Lane.LOOK_UPS)
def get_octo_supplier(caller: AnyCaller, active: Capabilities) -> object:
    return catalogue.supplier(caller, active)


@router.get("/products", response_model=None)
@runs_in(Lane.LISTS)
def list_octo_products(caller: ExperiencesReader, tx: ReadTx, active: Capabilities) -> object:
    return catalogue.find_products(tx, caller, active)


@router.get("/products/{id}", response_model=None)
@runs_in(Lane.LISTS)
def get_octo_product(caller: ExperiencesReader, tx: ReadTx, active: Capabilities, product_id: ProductId) -> object:
    return catalogue.get_product(tx, caller, product_id, active)


@router.post("/availability", response_model=None)
@runs_in(Lane.LISTS)
def find_octo_availability(
    caller: AvailabilityReader, tx: ReadTx, active: Capabilities, body: AvailabilityBody
) -> object:
    return catalogue.find_availability(tx, caller, body, active)


@router.post("/availability/calendar", response_model=None)
@runs_in(Lane.LISTS)
def find_octo_calendar(caller: AvailabilityReader, tx: ReadTx, active: Capabilities, body: CalendarBody) -> object:
    return catalogue.find_calendar(tx, caller, body, active)


@router.get("/bookings", response_model=None)
@runs_in(Lane.LISTS)
def list_octo_bookings(caller: BookingsReader, tx: ReadTx, active: Capabilities, query: Filters) -> object:
    return bookings.find(tx, caller, query, active)


@router.get("/bookings/{uuid}", response_model=None)
@runs_in(Lane.LISTS)
def get_octo_booking(caller: BookingsReader, tx: ReadTx, active: Capabilities, uuid: Uuid) -> object:
    return bookings.get(tx, caller, uuid, active)


Verb = Callable[[Tx, Caller, str, Any, frozenset[str]], object]


def writer(caller: BookingsWriter, service: ServiceDep, active: Capabilities) -> Callable[..., Awaitable[Answer]]:
    """Return a function that runs a verb in a transaction. A refusal undoes all of it: it may be several changes.

    A second run after a lost connection finds the changes of the first one, by the id of the booking.
    """
    organization = caller.organization
    instant = caller.at if organization.clock_offset else None

    async def write(verb: Verb, uuid: str, body: object) -> Answer:
        def work(tx: Tx) -> Answer:
            return as_answer(verb(tx, caller, uuid, body, active))

        return await service.write(work, organization_id=organization.id, is_once=False, instant=instant)

    return write


Write = Annotated[Callable[..., Awaitable[Answer]], Depends(writer)]
EXTENSION, CANCELLATION = ExtendBody(), CancellationBody()


@router.post("/bookings", response_model=None)
async def reserve_octo_booking(write: Write, body: ReservationBody) -> Answer:
    return await write(bookings.reserve, body.uuid or tokens.new_id(), body)


@router.patch("/bookings/{uuid}", response_model=None)
async def update_octo_booking(write: Write, uuid: Uuid, body: UpdateBody) -> Answer:
    return await write(bookings.update, uuid, body)


@router.post("/bookings/{uuid}/confirm", response_model=None)
async def confirm_octo_booking(write: Write, uuid: Uuid, body: ConfirmationBody) -> Answer:
    return await write(bookings.confirm, uuid, body)


@router.post("/bookings/{uuid}/extend", response_model=None)
async def extend_octo_booking(write: Write, uuid: Uuid, body: ExtendBody = EXTENSION) -> Answer:
    return await write(bookings.extend, uuid, body)


@router.post("/bookings/{uuid}/cancel", response_model=None)
async def cancel_octo_booking(write: Write, uuid: Uuid, body: CancellationBody = CANCELLATION) -> Answer:
    return await write(bookings.cancel, uuid, body)
