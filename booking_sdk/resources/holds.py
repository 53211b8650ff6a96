"""Holds: seats that are kept for some minutes while a guest checks out."""

from collections.abc import Sequence
from uuid import UUID

from booking_core.models.bookings import GuestLineInput
from booking_core.models.holds import Hold
from booking_sdk._resource import AsyncAPIResource
from booking_sdk._traceback_scrubbing import scrub_tracebacks
from booking_sdk.options import RequestOptions
from booking_sdk.params import GuestLineParam
from booking_sdk.request import (
    body_lines,
    one_departure_id,
    path_segment,
    without_none,
)


@scrub_tracebacks
class AsyncHolds(AsyncAPIResource):
    """Holds of seats. Reading needs `bookings:read`, changing `bookings:write`."""

    async def create(
        self,
        *,
        departure_id: str | UUID | None = None,
        experience_date_id: str | UUID | None = None,
        seats: int | None = None,
        guests: Sequence[GuestLineInput | GuestLineParam] | None = None,
        expires_in_seconds: int | None = None,
        idempotency_key: str | None = None,
        options: RequestOptions | None = None,
    ) -> Hold:
        """Hold seats of one departure: nobody else can book them until the hold ends.

            hold = await client.holds.create(departure_id=departure.id, seats=2)
            booking = await client.bookings.create(departure_id=departure.id, hold_id=hold.id, ...)

        Args:
            departure_id: The id of the departure, from `availability`.
            experience_date_id: Another name of `departure_id`; a call has one of the two.
            seats: The number of seats. A call has either `seats` or `guests`.
            guests: The number of guests per price tier. The hold then has their price in `totals`.
            expires_in_seconds: The duration, 600 by default and 1,800 at most.
            idempotency_key: Your key, see `idempotency_key()`; generated when omitted.
            options: Settings for this call.

        Raises:
            InsufficientCapacityError: Not enough seats; `seats_available` is the number that is left.
            ConflictError: The departure is closed, cancelled or has left, or there are 200 live holds; `details` names
                the reason.
            NotFoundError: No departure has this id.
            UnprocessableEntityError: The experience does not have this tier.
            APIConnectionError: No response. If `maybe_executed`, repeat the call with the error's `idempotency_key`.
        """
        body = without_none(
            departure_id=one_departure_id(departure_id, experience_date_id),
            seats=seats,
            guests=None if guests is None else body_lines("guests", guests),
            expires_in_seconds=expires_in_seconds,
        )
        return await self._post(Hold, "holds", body=body, key=idempotency_key, options=options)

    async def get(self, hold_id: str | UUID, *, options: RequestOptions | None = None) -> Hold:
        """Return one hold with its present status.

        Args:
            hold_id: The id of the hold.
            options: Settings for this call.

        Raises:
            NotFoundError: No hold has this id.
        """
        return await self._get(Hold, "holds", path_segment("hold_id", hold_id), options=options)

    async def extend(
        self,
        hold_id: str | UUID,
        *,
        expires_in_seconds: int | None = None,
        idempotency_key: str | None = None,
        options: RequestOptions | None = None,
    ) -> Hold:
        """Let a hold end later, but half an hour after its beginning at the latest.

            hold = await client.holds.extend(hold.id, expires_in_seconds=900)
            print(hold.expires_at)

        Args:
            hold_id: The id of the hold.
            expires_in_seconds: The duration from now on, 600 by default.
            idempotency_key: Your key, see `idempotency_key()`; generated when omitted.
            options: Settings for this call.

        Raises:
            NotFoundError: No hold has this id.
            ConflictError: The hold has expired, was released or booked, or its departure is closed; `details` names the
                reason.
        """
        path = ("holds", path_segment("hold_id", hold_id), "extend")
        body = without_none(expires_in_seconds=expires_in_seconds)
        return await self._post(Hold, *path, body=body, key=idempotency_key, options=options)

    async def delete(self, hold_id: str | UUID, *, options: RequestOptions | None = None) -> None:
        """Release the seats of a hold. A hold that was released or has expired stays unchanged.

        Args:
            hold_id: The id of the hold.
            options: Settings for this call.

        Raises:
            NotFoundError: No hold has this id.
            ConflictError: A booking has taken over the hold.
        """
        segment = path_segment("hold_id", hold_id)
        await self._delete("holds", segment, options=options)
