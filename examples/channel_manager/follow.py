"""Mirrors bookings by reading the event feed: `python follow.py MIRROR`.

It wants BOOKING_API_KEY and BOOKING_BASE_URL. Stop it as you like, also with kill -9; started again it goes on where
the mirror stands.
"""

import sys

from mirror import Mirror

from booking_sdk import BookingClient

POLL_S = 1.0
"""The longest that a change stays unnoticed. With a receiver beside it, minutes would do."""


def follow(client: BookingClient, mirror: Mirror, poll_s: float | None = POLL_S) -> None:
    """Reads on from where the mirror stands, for ever, or with None to the end of what there is now."""
    if mirror.checkpoint is None:
        mirror.fill(client.bookings.iterate())
    feed = client.events.follow(after=mirror.checkpoint, types=["booking.*"], poll=poll_s)
    for event in feed:
        mirror.handle(event, feed.checkpoint)


if __name__ == "__main__":
    with BookingClient() as client:
        follow(client, Mirror(sys.argv[1]))
