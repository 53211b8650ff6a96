"""Bookings: queries, and the verbs create, confirm, pay, reschedule, cancel and record a payment."""

from booking_core.bookings.batch import CreateRequest, CreateResult, Deferred, LockWait, create_many
from booking_core.bookings.by_guest import (
    Move,
    cancel_by_guest,
    find_moves,
    guest_may_cancel,
    guest_may_move,
    move,
    refundable_now,
)
from booking_core.bookings.cancel import cancel
from booking_core.bookings.cancel_batches import (
    CANCELLING,
    CLOSED,
    EXPIRED,
    CancelledBatch,
    abandon,
    cancel_departure_batch,
    cancel_next_batch,
    cancel_under_minimum,
)
from booking_core.bookings.changes import LockedBooking, lock, lock_for_changes
from booking_core.bookings.create import create, create_once
from booking_core.bookings.departure_bookings import (
    count_live_bookings,
    find_departures,
    get_departure,
    live_bookings,
    manifest,
    render_manifest,
)
from booking_core.bookings.drafts import BookingRequest
from booking_core.bookings.guest import change_guest
from booking_core.bookings.party import Party, change_party, preview_party
from booking_core.bookings.queries import BookingConditions, find, get, get_refundable, organization_of
from booking_core.bookings.quotes import quote
from booking_core.bookings.refunds import record_elsewhere, record_refund, settle_refund, settle_refunds
from booking_core.bookings.reports import get_report
from booking_core.bookings.reschedule import apply_reschedule, preview_reschedule, reschedule
from booking_core.bookings.search import Search, parse_number, resolve_id, search
from booking_core.bookings.status import check_in, confirm, pay, record_no_show, record_payment, void_payment
from booking_core.bookings.terms import Refundable
