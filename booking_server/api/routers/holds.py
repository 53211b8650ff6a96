"""`/api/v1/holds`: hold seats of a departure, look at a hold, extend or release it."""

from booking_core.base.errors import Conflict
from booking_core.bookings import storefront
from booking_core.models.holds import Hold, HoldCreate, HoldExtend
from booking_core.records.idempotency import Answer
from booking_server.api.commands import IdempotentCommand, OptionallyIdempotentCommand, PlainCommand
from booking_server.api.dependencies import ApiRouter, BookingsReader, BookingsWriter, Lane, ReadTx, runs_in
from booking_server.api.errors import SALE_REFUSALS, refusals
from booking_server.api.parameters import PathId

router = ApiRouter(prefix="/api/v1/holds", tags=["Holds"])


@router.post(
    "",
    summary="Hold seats",
    status_code=201,
    response_model=Hold,
    response_description="The hold.",
    responses=refusals(
        Conflict("hold_limit_reached", "The organization has 200 live holds, which is the limit."), *SALE_REFUSALS
    ),
)
async def create_hold(caller: BookingsWriter, command: IdempotentCommand, body: HoldCreate) -> Answer:
    """Keeps seats of a departure from being sold while a guest checks out, for ten minutes by default and half an hour
    at most: a number of `seats`, or those that the party in `guests` needs, with its price. Held seats are missing from
    `seats_available` everywhere. `POST /bookings` with `hold_id` takes them over, `POST /holds/{id}/extend` keeps them
    longer, `DELETE /holds/{id}` releases them, and from `expires_at` on they are available again, even if your process
    has crashed. `details` gives the reason of a `conflict`: `departure_cancelled`, `departure_closed`,
    `departure_started`, or `hold_limit_reached` with 200 live holds; and of a 422: `unknown_tier` or
    `amount_overflow`."""
    return await command.write(caller, lambda tx: storefront.create_hold(tx, caller, body))


@router.get(
    "/{id}",
    summary="Get a hold",
    response_model=Hold,
    response_description="The hold.",
)
@runs_in(Lane.LOOK_UPS, has_etag=True)
def get_hold(caller: BookingsReader, tx: ReadTx, hold_id: PathId) -> object:
    """Returns the hold with its present status. A hold is kept for 30 days after it ended."""
    return storefront.get_hold(tx, caller, hold_id)


@router.post(
    "/{id}/extend",
    summary="Extend a hold",
    response_model=Hold,
    response_description="The hold with its new end.",
    responses=refusals(Conflict("hold_expired", "The hold has expired.")),
)
async def extend_hold(
    caller: BookingsWriter,
    command: OptionallyIdempotentCommand,
    hold_id: PathId,
    body: HoldExtend = HoldExtend(),  # noqa: B008 - frozen
) -> Answer:
    """Lets the hold end later: `expires_in_seconds` from now, but half an hour after its beginning at the latest, and
    never earlier than before. The answer has the new `expires_at`. `details` gives the reason of a `conflict`:
    `hold_booked`, `hold_released`, `hold_expired`, `departure_cancelled`, `departure_closed` or `departure_started`."""
    for_s = body.expires_in_seconds
    return await command.write(caller, lambda tx: storefront.extend_hold(tx, caller, hold_id, for_s=for_s))


@router.delete(
    "/{id}",
    summary="Release a hold",
    status_code=204,
    response_model=None,
    response_description="The seats are available again.",
    responses=refusals(Conflict("hold_booked", "A booking has taken over the hold.")),
)
async def delete_hold(caller: BookingsWriter, command: PlainCommand, hold_id: PathId) -> Answer:
    """Releases the seats at once. A released or expired hold is answered in the same way, so a retry is always safe. A
    hold that a booking has taken over is a `conflict` with the reason `hold_booked`: cancel the booking."""
    return await command.write(caller, lambda tx: storefront.delete_hold(tx, caller, hold_id))
