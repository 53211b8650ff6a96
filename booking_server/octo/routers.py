"""`/octo`: the operations of the standard."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Path, Query, Security
from pydantic import PlainValidator

from booking_core.base import tokens
from booking_core.base.context import Caller
from booking_core.db.engine import Tx
from booking_core.models.base import is_id
from booking_core.models.scopes import Scope
from booking_core.records.idempotency import Answer
from booking_server.api.dependencies import AnyCaller, Lane, ReadTx, ServiceDep, authorize, runs_in
from booking_server.api.routers.bookings import BookingsReader, BookingsWriter
from booking_server.execution.reads import as_answer
from booking_server.execution.service import Service
from booking_server.fastapi_ext.requests import JsonBody
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

ExperiencesReader = Annotated[Caller, Security(authorize, scopes=[Scope.EXPERIENCES_READ])]
AvailabilityReader = Annotated[Caller, Security(authorize, scopes=[Scope.AVAILABILITY_READ])]


def _uuid(text: str) -> str:
    if not is_id(text):
        raise InvalidId("uuid", text)
    return text.lower()


Uuid = Annotated[str, Path(alias="uuid"), PlainValidator(_uuid)]
ProductId = Annotated[str, Path(alias="id")]


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
    caller: AvailabilityReader, tx: ReadTx, active: Capabilities, body: Annotated[AvailabilityBody, JsonBody()]
) -> object:
    return catalogue.find_availability(tx, caller, body, active)


@router.post("/availability/calendar", response_model=None)
@runs_in(Lane.LISTS)
def find_octo_calendar(
    caller: AvailabilityReader, tx: ReadTx, active: Capabilities, body: Annotated[CalendarBody, JsonBody()]
) -> object:
    return catalogue.find_calendar(tx, caller, body, active)


@router.get("/bookings", response_model=None)
@runs_in(Lane.LISTS)
def list_octo_bookings(
    caller: BookingsReader, tx: ReadTx, active: Capabilities, query: Annotated[BookingsQuery, Query()]
) -> object:
    return bookings.find(tx, caller, query, active)


@router.get("/bookings/{uuid}", response_model=None)
@runs_in(Lane.LISTS)
def get_octo_booking(caller: BookingsReader, tx: ReadTx, active: Capabilities, uuid: Uuid) -> object:
    return bookings.get(tx, caller, uuid, active)


async def _write(service: Service, caller: Caller, work: Callable[[Tx], object]) -> Answer:
    """Run the work in a transaction, which a refusal undoes as a whole: one request may be several changes.

    A second run after a lost connection finds the changes of the first one, by the id of the booking.
    """
    organization = caller.organization
    instant = caller.at if organization.clock_offset else None
    return await service.write(
        lambda tx: as_answer(work(tx)), organization_id=organization.id, is_once=False, instant=instant
    )


@router.post("/bookings", response_model=None)
async def reserve_octo_booking(
    caller: BookingsWriter, service: ServiceDep, active: Capabilities, body: Annotated[ReservationBody, JsonBody()]
) -> Answer:
    uuid = body.uuid or tokens.new_id()
    return await _write(service, caller, lambda tx: bookings.reserve(tx, caller, uuid, body, active))


@router.patch("/bookings/{uuid}", response_model=None)
async def update_octo_booking(
    caller: BookingsWriter,
    service: ServiceDep,
    active: Capabilities,
    uuid: Uuid,
    body: Annotated[UpdateBody, JsonBody()],
) -> Answer:
    return await _write(service, caller, lambda tx: bookings.update(tx, caller, uuid, body, active))


@router.post("/bookings/{uuid}/confirm", response_model=None)
async def confirm_octo_booking(
    caller: BookingsWriter,
    service: ServiceDep,
    active: Capabilities,
    uuid: Uuid,
    body: Annotated[ConfirmationBody, JsonBody()],
) -> Answer:
    return await _write(service, caller, lambda tx: bookings.confirm(tx, caller, uuid, body, active))


@router.post("/bookings/{uuid}/extend", response_model=None)
async def extend_octo_booking(
    caller: BookingsWriter,
    service: ServiceDep,
    active: Capabilities,
    uuid: Uuid,
    body: Annotated[ExtendBody, JsonBody(is_optional=True)] = ExtendBody(),  # noqa: B008 - frozen
) -> Answer:
    return await _write(service, caller, lambda tx: bookings.extend(tx, caller, uuid, body, active))


@router.post("/bookings/{uuid}/cancel", response_model=None)
async def cancel_octo_booking(
    caller: BookingsWriter,
    service: ServiceDep,
    active: Capabilities,
    uuid: Uuid,
    body: Annotated[CancellationBody, JsonBody(is_optional=True)] = CancellationBody(),  # noqa: B008 - frozen
) -> Answer:
    return await _write(service, caller, lambda tx: bookings.cancel(tx, caller, uuid, body, active))
