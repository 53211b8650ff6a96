"""Each operation that takes an Idempotency-Key is carried out once, and repeats its first answer byte for byte."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import httpx
import pytest
from support.api.api import Api, booking_body, error_of, fresh_key
from support.api.endpoints import taking_a_key
from support.world.checkouts import checkout_body
from support.world.world import DAY, World

AT_ONCE = 4


class Request(NamedTuple):
    """A request that succeeds, and a later change of its resource."""

    path: str
    body: dict[str, Any]
    other: dict[str, Any]
    """Another body that would succeed, too."""
    later: Callable[[], object] = lambda: None


def departure(api: Api, seats: int = 40) -> str:
    return api.world.departure(api.world.experience(), seats=seats)


def of_booking(api: Api, verb: str, body: dict[str, Any], other: dict[str, Any]) -> Request:
    booking_id = api.book(departure(api), count=2).json()["id"]
    return Request(f"/bookings/{booking_id}/{verb}", body, other, lambda: api.cancel(booking_id))


def create_booking(api: Api) -> Request:
    offered = departure(api)

    def cancel_all() -> None:
        for booking in api.get("/bookings", limit=100).json()["data"]:
            api.cancel(booking["id"])

    return Request("/bookings", booking_body(offered), booking_body(offered, count=2), cancel_all)


def create_hold(api: Api) -> Request:
    offered = departure(api)
    return Request("/holds", {"departure_id": offered, "seats": 2}, {"departure_id": offered, **party(2)})


def extend_hold(api: Api) -> Request:
    hold_id = api.post("/holds", {"experience_date_id": departure(api), "seats": 2}).json()["id"]
    path, body = f"/holds/{hold_id}/extend", {"expires_in_seconds": 900}
    return Request(path, body, {}, lambda: api.call("DELETE", f"/holds/{hold_id}"))


def create_checkout(api: Api) -> Request:
    offered = departure(api)

    def pay_all() -> None:
        for booking in api.get("/bookings", status="pending").json()["data"]:
            api.post(f"/sandbox/checkouts/{booking['id']}/pay", {"payment_method": "pm_card_visa"})

    return Request("/checkouts", checkout_body(offered), checkout_body(offered, 1), pay_all)


def pay_checkout(api: Api) -> Request:
    checkout = api.post("/checkouts", checkout_body(departure(api))).json()
    path, body = f"/sandbox/checkouts/{checkout['id']}/pay", {"payment_method": "pm_card_visa"}
    return Request(path, body, {"payment_method": "pm_card_chargeDeclined"}, lambda: api.cancel(checkout["id"]))


def reschedule(api: Api) -> Request:
    first, second = ({"departure_id": departure(api)} for _ in range(2))
    return of_booking(api, "reschedule", first, second)


def party(count: int) -> dict[str, Any]:
    return {"guests": [{"tier_id": "adult", "count": count}]}


ADA, GRACE = ({"email": f"{name}@example.com", "name": name} for name in ("ada", "grace"))
REQUESTS: dict[str, Callable[[Api], Request]] = {
    "create_booking": create_booking,
    "cancel_booking": lambda api: of_booking(api, "cancel", {"reason": "ill"}, {"refund": "none"}),
    "reschedule_booking": reschedule,
    "change_party": lambda api: of_booking(api, "party", party(1), party(3)),
    "change_guest": lambda api: of_booking(api, "guest", {"name": "Ada King"}, {"phone": ""}),
    "check_in_booking": lambda api: of_booking(api, "check-in", {}, {"undo": True}),
    "record_no_show": lambda api: of_booking(api, "no-show", {}, {"undo": True}),
    "create_hold": create_hold,
    "extend_hold": extend_hold,
    "create_checkout": create_checkout,
    "create_customer": lambda api: Request("/customers", ADA, GRACE),
    "advance_sandbox_clock": lambda api: Request("/sandbox/clock/advance", {"seconds": 60}, {"seconds": 61}),
    "pay_sandbox_checkout": pay_checkout,
}


EVENTS: dict[str, list[str]] = {
    "create_booking": ["customer.created", "booking.created", "booking.confirmed"],
    "cancel_booking": ["booking.cancelled"],
    "reschedule_booking": ["booking.rescheduled"],
    "change_party": ["booking.updated"],
    "change_guest": ["booking.updated"],
    "check_in_booking": ["booking.updated"],
    "record_no_show": ["booking.updated"],
    "create_hold": [],
    "extend_hold": [],
    "create_checkout": ["customer.created", "booking.created"],
    "create_customer": ["customer.created"],
    "advance_sandbox_clock": [],
    "pay_sandbox_checkout": ["booking.confirmed"],
}
"""The events of one execution of each request."""


def status_of(operation: str) -> int:
    """Return the status of a request that is carried out."""
    return 201 if operation.startswith("create_") else 200


IS_REQUIRED = {operation.id: is_required for operation, is_required in taking_a_key().items()}


def test_the_table_has_every_operation_that_takes_a_key() -> None:
    assert IS_REQUIRED.keys() == REQUESTS.keys()


@pytest.mark.one_database
@pytest.mark.parametrize("operation", REQUESTS)
def test_a_request_is_repeated_whatever_has_changed_and_another_one_is_refused(sandbox: Api, operation: str) -> None:
    request, key = REQUESTS[operation](sandbox), fresh_key()
    if IS_REQUIRED[operation]:
        without = sandbox.call("POST", request.path, json=request.body)
        assert error_of(without) == (400, "idempotency_key_required")
    first = sandbox.post(request.path, request.body, key=key)
    assert first.status_code == status_of(operation), first.text
    request.later()
    sandbox.world.clock.advance(29 * DAY)
    events = sandbox.event_types()
    again = sandbox.post(request.path, request.body, key=key)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["idempotent-replayed"] == "true"
    for path, body in ((request.path, request.other), ("/customers", {"email": "alan@example.com", "name": "Alan"})):
        assert error_of(sandbox.post(path, body, key=key)) == (422, "idempotency_key_reused")
    assert sandbox.event_types() == events


@pytest.mark.one_database
@pytest.mark.parametrize("operation", REQUESTS)
def test_a_key_of_another_organization_is_unused_here(
    sandbox: Api, new_world: Callable[..., World], operation: str
) -> None:
    key = fresh_key()
    for one in (sandbox, Api(sandbox.client, new_world(clock_offset=0))):
        request = REQUESTS[operation](one)
        answer = one.post(request.path, request.body, key=key)
        assert (answer.status_code, "idempotent-replayed" in answer.headers) == (status_of(operation), False)


@pytest.mark.parametrize("operation", REQUESTS)
def test_requests_that_come_together_are_carried_out_once(sandbox: Api, operation: str) -> None:
    request, key = REQUESTS[operation](sandbox), fresh_key()
    together, before = threading.Barrier(AT_ONCE), len(sandbox.event_types())

    def send() -> httpx.Response:
        together.wait(timeout=60)
        return sandbox.post(request.path, request.body, key=key)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = [future.result() for future in [pool.submit(send) for _ in range(AT_ONCE)]]
    executed = [answer for answer in answers if answer.status_code != 409]
    assert len({(answer.status_code, answer.content) for answer in executed}) == 1
    assert sum("idempotent-replayed" not in answer.headers for answer in executed) == 1
    assert {error_of(answer) for answer in answers if answer not in executed} <= {(409, "idempotency_in_progress")}
    assert sandbox.event_types()[before:] == EVENTS[operation]
