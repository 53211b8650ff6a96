"""`/api/v1/holds`: hold seats of a departure, look at a hold, release it."""

from typing import Annotated

from booking_core.base.errors import Conflict, InsufficientCapacity, NotFound
from booking_core.bookings import storefront
from booking_core.db.engine import Tx
from booking_core.models.holds import Hold, HoldCreate
from booking_core.records.idempotency import Answer
from booking_server.api.commands import IdempotentCommand, PlainCommand
from booking_server.api.dependencies import ApiRouter, Lane, ReadTx, runs_in
from booking_server.api.errors import refusals
from booking_server.api.parameters import PathId
from booking_server.api.routers.bookings import BookingsReader, BookingsWriter
from booking_server.fastapi_ext.requests import JsonBody, example
from booking_server.fastapi_ext.routes import NOT_MODIFIED, tagged

router = ApiRouter(prefix="/api/v1/holds", tags=["Holds"])

_CREATE_EXAMPLE = {
    "departure_id": "0b1f6a52-6c1e-4d0a-9f0e-2b7a8f1f9c55",
    "seats": 2,
    "expires_in_seconds": 600,
}


@router.post(
    "",
    summary="Hold seats",
    status_code=201,
    response_model=Hold,
    response_description="The hold.",
    responses=refusals(
        NotFound,
        Conflict("hold_limit_reached", "The organization has 200 live holds, which is the limit."),
        InsufficientCapacity(1),
    ),
)
async def create_hold(
    caller: BookingsWriter,
    command: IdempotentCommand,
    body: Annotated[HoldCreate, JsonBody(), example(_CREATE_EXAMPLE)],
) -> Answer:
    """Keeps seats of a departure from being sold while a guest checks out, for ten minutes by default and half an hour
    at most. Held seats are missing from `seats_available` everywhere. `POST /bookings` with `hold_id` takes them over,
    `DELETE /holds/{id}` releases them, and from `expires_at` on they are available again, even if your process has
    crashed. `details` gives the reason of a `conflict`: `departure_cancelled`, `departure_closed`, `departure_started`,
    or `hold_limit_reached` with 200 live holds."""

    def work(tx: Tx) -> object:
        return storefront.create_hold(tx, caller, body.departure_id, body.seats, for_s=body.expires_in_seconds)

    return await command.write(caller, work, status=201)


@router.get(
    "/{id}",
    summary="Get a hold",
    response_model=Hold,
    response_description="The hold.",
    responses=NOT_MODIFIED | refusals(NotFound),
)
@runs_in(Lane.LOOK_UPS)
@tagged
def get_hold(caller: BookingsReader, tx: ReadTx, hold_id: PathId) -> object:
    """Returns the hold with its present status. A hold is kept for 30 days after it ended."""
    return storefront.get_hold(tx, caller, hold_id)


@router.delete(
    "/{id}",
    summary="Release a hold",
    status_code=204,
    response_model=None,
    response_description="The seats are available again.",
    responses=refusals(NotFound, Conflict("hold_booked", "A booking has taken over the hold.")),
)
async def delete_hold(caller: BookingsWriter, command: PlainCommand, hold_id: PathId) -> Answer:
    """Releases the seats at once. A released or expired hold is answered in the same way, so a retry is always safe. A
    hold that a booking has taken over is a `conflict` with the reason `hold_booked`: cancel the booking."""
    return await command.write(caller, lambda tx: storefront.delete_hold(tx, caller, hold_id), status=204)
