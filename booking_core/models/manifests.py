"""The manifest of a departure: its guests, and the amounts to pay."""

from booking_core.models.base import Resource
from booking_core.models.bookings import BookedExperience, Booking
from booking_core.models.departures import Departure
from booking_core.models.money import Money


class BookingCounts(Resource):
    """The numbers of a departure's bookings by status."""

    pending: int
    confirmed: int
    cancelled: int


class ManifestDeparture(Departure):
    """A departure with its experience and its numbers of bookings."""

    experience: BookedExperience
    seats_sold: int
    """The seats of pending and confirmed bookings."""
    bookings: BookingCounts
    is_being_cancelled: bool
    """True while the bookings of a cancelled departure are still to be cancelled."""


class ManifestTotals(Resource):
    """The sums of the bookings of a manifest."""

    bookings: int
    checked_in: int
    """Bookings that are checked in."""
    no_shows: int
    """Bookings whose guests did not come."""
    guests: dict[str, int]
    """The number of guests by the label of their tier."""
    add_ons: dict[str, int]
    """The number of each add-on by its label."""
    unpaid: list[Money]
    """The amount to pay in each currency; empty when all is paid."""


class ManifestEntry(Booking):
    """A booking of a manifest. Its `manage_url` is always null."""

    unpaid: Money
    """The amount to pay."""


class Manifest(Resource):
    """The pending and confirmed bookings of a departure, by the name of the guest."""

    departure: ManifestDeparture
    totals: ManifestTotals
    data: list[ManifestEntry]
