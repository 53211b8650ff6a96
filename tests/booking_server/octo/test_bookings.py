"""OCTO's bookings: reserved, confirmed, changed, extended and cancelled, as the standard says."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import uuid4

import pytest
from support.api.octo import ADULT, CONTACT, UNKNOWN, JsonObject, Octo, refused
from support.api.refusals import nothing_changes
from support.world.guests import Guests
from support.world.world import DAY

from booking_core.base.clock import MINUTE
from booking_core.bookings import reservations
from booking_core.db import tables
from booking_core.models.limits import LIVE_HOLDS_PER_ORGANIZATION
from booking_core.records import idempotency


def test_a_reservation_holds_its_seats_until_it_is_booked(octo: Octo) -> None:
    reservation = octo.reserved(2, notes="By the door", resellerReference="R-1")
    assert octo.vacancies() == 3
    assert octo.api.event_types() == []
    assert octo.result("GET", f"/bookings/{reservation['uuid']}") == reservation
    same = {name: reservation[name] for name in ("status", "productId", "optionId", "availabilityId", "notes")}
    assert same == {
        "status": "ON_HOLD",
        "productId": octo.product,
        "optionId": "DEFAULT",
        "availabilityId": octo.ids[0],
        "notes": "By the door",
    }
    assert reservation["utcExpiresAt"] == "2026-11-21T12:10:00Z"
    booked = octo.result("POST", f"/bookings/{reservation['uuid']}/confirm", json={"contact": CONTACT})
    assert (booked["status"], booked["uuid"], booked["supplierReference"]) == ("CONFIRMED", reservation["uuid"], "1")
    assert [item["uuid"] for item in booked["unitItems"]] == [item["uuid"] for item in reservation["unitItems"]]
    (booking,) = octo.api.get("/bookings").json()["data"]
    assert (booking["source"], booking["external_reference"], booking["note"]) == ("agency", "R-1", "By the door")
    assert booking["payment"] == {"method": "external_paid", "source": "external", "status": "paid"}
    assert booked["voucher"]["deliveryOptions"] == [
        {"deliveryFormat": "QRCODE", "deliveryValue": booking["manage_url"]}
    ]
    assert octo.vacancies() == 3
    assert octo.world.examine() == []


# Repeated ------------------------------------------------------------------------------------------------------------


def test_the_same_uuid_is_the_same_booking_whatever_happened_since(octo: Octo) -> None:
    order = octo.order(2, uuid=str(uuid4()))
    reservation = octo.result("POST", "/bookings", json=order)
    octo.ops.close(octo.departures[0])
    assert octo.result("POST", "/bookings", json=order) == reservation
    other = octo.call("POST", "/bookings", json=order | {"unitItems": [ADULT]})
    assert (refused(other), other.json()["uuid"]) == ((400, "INVALID_BOOKING_UUID"), order["uuid"])
    octo.ops.reopen(octo.departures[0])
    booked = octo.result("POST", f"/bookings/{order['uuid']}/confirm", json={"contact": CONTACT})
    assert octo.result("POST", f"/bookings/{order['uuid']}/confirm", json={"contact": CONTACT}) == booked
    assert octo.result("POST", "/bookings", json=order) == booked
    assert octo.vacancies() == 3


def test_a_cancelled_reservation_or_booking_is_cancelled_once(octo: Octo) -> None:
    reservation, booked = octo.reserved(1), octo.confirmed(1)
    for booking, refund in ((reservation, "FULL"), (booked, "FULL")):
        answer = octo.result("POST", f"/bookings/{booking['uuid']}/cancel", json={"reason": "Ill"})
        assert (answer["status"], answer["cancellable"]) == ("CANCELLED", False)
        assert answer["cancellation"] == {"refund": refund, "reason": "Ill", "utcCancelledAt": "2026-11-21T12:00:00Z"}
        with nothing_changes(octo.world):
            assert octo.result("POST", f"/bookings/{booking['uuid']}/cancel", json={}) == answer
            again = octo.call("POST", f"/bookings/{booking['uuid']}/confirm", json={"contact": CONTACT})
            assert refused(again) == (400, "UNPROCESSABLE_ENTITY")
    assert octo.vacancies() == 5
    assert octo.world.examine() == []


@pytest.mark.one_database
@pytest.mark.parametrize(("percent", "refund"), [(50, "PARTIAL"), (0, "NONE")])
def test_a_late_cancellation_says_what_the_terms_return(octo: Octo, percent: int, refund: str) -> None:
    octo.world.change(tables.organizations, octo.world.org, refund_late_percent=percent)
    booking = octo.confirmed(1)
    octo.world.clock.advance(2 * DAY - MINUTE)
    assert octo.result("POST", f"/bookings/{booking['uuid']}/cancel")["cancellation"]["refund"] == refund


def test_a_reservation_that_expired_is_not_booked(octo: Octo) -> None:
    reservation = octo.reserved(5, expirationMinutes=1)
    octo.world.clock.advance(MINUTE)
    assert octo.result("GET", f"/bookings/{reservation['uuid']}")["status"] == "EXPIRED"
    assert octo.vacancies() == 5
    for path, body in (("confirm", {"contact": CONTACT}), ("extend", {})):
        answer = octo.call("POST", f"/bookings/{reservation['uuid']}/{path}", json=body)
        assert (refused(answer), answer.json()["uuid"]) == ((400, "INVALID_BOOKING_UUID"), reservation["uuid"])


@pytest.mark.one_database
def test_an_extension_ends_after_half_an_hour_in_all(octo: Octo) -> None:
    reservation = octo.reserved(1, expirationMinutes=5)
    assert reservation["utcExpiresAt"] == "2026-11-21T12:05:00Z"
    longer = [octo.result("POST", f"/bookings/{reservation['uuid']}/extend", json=body) for body in ({}, _minutes(31))]
    assert [reservation["utcExpiresAt"] for reservation in longer] == ["2026-11-21T12:10:00Z", "2026-11-21T12:30:00Z"]
    assert refused(octo.call("POST", f"/bookings/{octo.confirmed(1)['uuid']}/extend", json={})) == (
        400,
        "UNPROCESSABLE_ENTITY",
    )


def _minutes(count: int) -> JsonObject:
    return {"expirationMinutes": count}


@pytest.mark.parametrize(("before", "code"), [(1, None), (0, "INVALID_BOOKING_UUID")])
def test_a_confirmation_is_in_time_until_the_instant_of_expiry(octo: Octo, before: int, code: str | None) -> None:
    reservation = octo.reserved(1, expirationMinutes=1)
    octo.world.clock.advance(MINUTE - before)
    answer = octo.call("POST", f"/bookings/{reservation['uuid']}/confirm", json={"contact": CONTACT})
    assert answer.json().get("error") == code


ENDED: list[tuple[str, str, JsonObject]] = [
    ("PATCH", "", {}),
    ("PATCH", "", {"notes": "Late"}),
    ("PATCH", "", {"unitItems": [ADULT] * 2}),
    ("PATCH", "", {"expirationMinutes": 30}),
    ("PATCH", "", {"contact": {"country": "Norway"}}),
    ("POST", "/confirm", {"contact": CONTACT}),
    ("POST", "/confirm", {"contact": {}}),
    ("POST", "/confirm", {"contact": CONTACT, "unitItems": [ADULT] * 2}),
    ("POST", "/extend", {}),
]


@pytest.mark.one_database
@pytest.mark.parametrize(("method", "path", "body"), ENDED)
def test_what_has_ended_does_not_change(octo: Octo, method: str, path: str, body: JsonObject) -> None:
    released, cancelled, expired = octo.reserved(1), octo.confirmed(1), octo.reserved(1, expirationMinutes=1)
    for booking in (released, cancelled):
        octo.result("POST", f"/bookings/{booking['uuid']}/cancel")
    octo.world.clock.advance(MINUTE)
    with nothing_changes(octo.world):
        codes = [
            octo.call(method, f"/bookings/{one['uuid']}{path}", json=body) for one in (released, cancelled, expired)
        ]
    assert [refused(answer) for answer in codes] == [
        (400, "UNPROCESSABLE_ENTITY"),
        (400, "UNPROCESSABLE_ENTITY"),
        (400, "INVALID_BOOKING_UUID"),
    ]


@pytest.mark.one_database
def test_the_id_of_a_booking_of_another_channel_reserves_nothing(octo: Octo) -> None:
    native = octo.api.book(octo.departures[1]).json()["id"]
    with nothing_changes(octo.world):
        answer = octo.call("POST", "/bookings", json=octo.order(uuid=native))
    assert refused(answer) == (400, "INVALID_BOOKING_UUID")


@pytest.mark.one_database
def test_a_departure_with_a_fraction_of_a_second_is_reserved(octo: Octo) -> None:
    start = octo.world.clock() + 5 * DAY + 123_456
    departure = octo.world.departure(octo.product, seats=2, starts_at=start)
    starts_at = octo.api.get(f"/departures/{departure}").json()["starts_at"]
    assert octo.reserved(2, availabilityId=starts_at)["availabilityId"] == starts_at
    assert octo.api.get(f"/departures/{departure}").json()["seats_available"] == 0


# At once -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [[2] * 8, [1, 2] * 4], ids=["same", "other"])
def test_one_uuid_reserves_once_however_many_requests_have_it(octo: Octo, counts: list[int]) -> None:
    uuid = str(uuid4())
    orders = [octo.order(count, uuid=uuid) for count in counts]
    with ThreadPoolExecutor(len(orders)) as threads:
        answers = [*threads.map(lambda order: octo.call("POST", "/bookings", json=order), orders)]
    bookings = [answer.json() for answer in answers if answer.status_code == 200]
    refusals = {refused(answer) for answer in answers if answer.status_code != 200}
    assert bookings == [bookings[0]] * len(bookings)
    assert refusals <= {(409, "UNPROCESSABLE_ENTITY"), (400, "INVALID_BOOKING_UUID")}
    assert len(octo.world.rows(tables.holds)) == 1
    assert octo.vacancies() == 5 - len(bookings[0]["unitItems"])


def test_a_uuid_whose_request_still_runs_is_tried_again(octo: Octo, postgresql_only: None) -> None:
    order = octo.order(uuid=str(uuid4()))
    with octo.world.database.writing() as tx:
        assert idempotency.try_locks(tx, [(octo.world.org, f"reservation:{order['uuid']}")]) == [True]
        answer = octo.call("POST", "/bookings", json=order)
    assert (refused(answer), answer.headers["retry-after"]) == ((409, "UNPROCESSABLE_ENTITY"), "1")
    assert octo.result("POST", "/bookings", json=order)["status"] == "ON_HOLD"


def test_a_confirmation_and_a_cancellation_at_once_take_turns(octo: Octo) -> None:
    uuids = [octo.reserved(1)["uuid"] for _ in range(4)]
    calls = [(uuid, verb) for uuid in uuids for verb in ("confirm", "cancel", "confirm", "cancel")]
    with ThreadPoolExecutor(8) as threads:
        answers = [
            *threads.map(
                lambda call: octo.call("POST", "/bookings/{}/{}".format(*call), json={"contact": CONTACT}), calls
            )
        ]
    assert {answer.status_code for answer in answers} <= {200, 400}
    assert {octo.result("GET", f"/bookings/{uuid}")["status"] for uuid in uuids} == {"CANCELLED"}
    assert octo.vacancies() == 5
    assert octo.world.examine() == []


# Changed -------------------------------------------------------------------------------------------------------------


@pytest.mark.one_database
@pytest.mark.parametrize("stage", ["reserved", "confirmed"])
def test_an_update_changes_date_party_and_contact(octo: Octo, stage: str) -> None:
    booking = getattr(octo, stage)(2)
    family = {"fullName": "Grace Hopper", "emailAddress": "grace@example.com", "phoneNumber": "1", "locales": ["de"]}
    unit = {"uuid": booking["unitItems"][0]["uuid"], **ADULT}
    body = {
        "availabilityId": octo.ids[1],
        "unitItems": [unit, ADULT, ADULT],
        "contact": family,
        "notes": "Late",
    }
    changed = octo.result("PATCH", f"/bookings/{booking['uuid']}", json=body)
    assert (changed["availabilityId"], changed["notes"], len(changed["unitItems"])) == (octo.ids[1], "Late", 3)
    assert {name: changed["contact"][name] for name in family} == family
    assert changed["unitItems"][0]["uuid"] == unit["uuid"]
    assert len({item["uuid"] for item in changed["unitItems"]}) == 3
    assert (octo.vacancies(0), octo.vacancies(1)) == (5, 2)
    assert changed["pricing"]["retail"] == 3 * 89000
    assert octo.result("GET", f"/bookings/{booking['uuid']}") == changed
    assert octo.world.examine() == []


@pytest.mark.one_database
def test_a_reservation_changes_its_product(octo: Octo) -> None:
    reservation, other = octo.reserved(2), octo.world.experience()
    target = octo.world.departure(other, seats=2)
    start = octo.api.get(f"/departures/{target}").json()["starts_at"]
    body = {"productId": other, "optionId": "DEFAULT", "availabilityId": start, "resellerReference": "R-2"}
    changed = octo.result("PATCH", f"/bookings/{reservation['uuid']}", json=body)
    assert (changed["productId"], changed["resellerReference"], octo.vacancies()) == (other, "R-2", 5)
    body["unitItems"] = [ADULT] * 3
    assert refused(octo.call("PATCH", f"/bookings/{reservation['uuid']}", json=body)) == (400, "UNPROCESSABLE_ENTITY")
    assert octo.result("GET", f"/bookings/{reservation['uuid']}") == changed


def test_a_refused_part_of_an_update_undoes_all_of_it(octo: Octo) -> None:
    booking = octo.confirmed(2)
    body = {"availabilityId": octo.ids[1], "unitItems": [ADULT] * 6}
    with nothing_changes(octo.world):
        refused_answer = octo.call("PATCH", f"/bookings/{booking['uuid']}", json=body)
        assert refused(refused_answer) == (400, "UNPROCESSABLE_ENTITY")
        renamed = octo.call("PATCH", f"/bookings/{booking['uuid']}", json={"resellerReference": "R-9"})
        assert refused(renamed) == (400, "UNPROCESSABLE_ENTITY")


# Found ---------------------------------------------------------------------------------------------------------------


def test_bookings_of_every_channel_are_found_by_reference_and_day(octo: Octo) -> None:
    reseller_booking = octo.confirmed(1, resellerReference="R-1")
    native = octo.api.book(octo.departures[1], external_reference="R-2").json()
    day = octo.ids[1][:10]
    for params, uuids in (
        ({"resellerReference": "R-1"}, [reseller_booking["uuid"]]),
        ({"supplierReference": "2"}, [native["id"]]),
        ({"localDate": day}, [native["id"]]),
        ({"localDateStart": octo.ids[0][:10], "localDateEnd": day}, [native["id"], reseller_booking["uuid"]]),
        ({"localDate": day, "productId": octo.product, "optionId": "DEFAULT"}, [native["id"]]),
        ({"localDate": day, "productId": UNKNOWN}, []),
        ({"supplierReference": "none"}, []),
        ({"resellerReference": "R-3"}, []),
    ):
        assert [booking["uuid"] for booking in octo.result("GET", "/bookings", params=params)] == uuids
    assert octo.result("GET", f"/bookings/{native['id']}")["unitItems"][0]["unitId"] == "adult"
    octo.api.post(f"/bookings/{native['id']}/check-in", {})
    assert octo.result("GET", f"/bookings/{native['id']}")["status"] == "REDEEMED"
    assert octo.result("POST", f"/bookings/{native['id']}/cancel")["status"] == "CANCELLED"


@pytest.mark.one_database
def test_a_guest_without_an_address_gets_no_mail(octo: Octo) -> None:
    confirmed = octo.confirmed(1, contact={"firstName": "Ada", "lastName": "Lovelace", "notes": "Vegan"})
    assert (confirmed["contact"]["fullName"], confirmed["contact"]["notes"]) == ("Ada Lovelace", "Vegan")
    (booking,) = octo.api.get("/bookings").json()["data"]
    assert (booking["customer"]["name"], booking["customer"]["email"]) == ("Ada Lovelace", None)
    assert octo.world.examine() == []


@pytest.mark.one_database
@pytest.mark.parametrize("email_receipt", [True, False, None])
def test_a_receipt_is_sent_only_if_it_is_asked_for(octo: Octo, email_receipt: bool | None) -> None:
    octo.confirmed(1, emailReceipt=email_receipt)
    assert octo.ops.outbox_kinds().count("booking_confirmation_mail") == (email_receipt is True)


# Refused -------------------------------------------------------------------------------------------------------------

STARTS = ("2026-11-23T13:00:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00")
INVALID: dict[str, list[JsonObject]] = {
    "INVALID_PRODUCT_ID": [{"productId": value} for value in ("invalid", UNKNOWN, None)],
    "INVALID_OPTION_ID": [{"optionId": value} for value in ("invalid", None)],
    "INVALID_AVAILABILITY_ID": [{"availabilityId": value} for value in ("invalid", None, *STARTS)],
    "INVALID_UNIT_ID": [{"unitItems": [unit]} for unit in ({"unitId": "invalid"}, {})],
    "UNPROCESSABLE_ENTITY": [{"unitItems": units} for units in ([], None, [ADULT] * 6)],
    "BAD_REQUEST": [
        *({"unitItems": units} for units in ([ADULT] * 1001, "adult", [1], [{**ADULT, "uuid": UNKNOWN}] * 2)),
        *({"expirationMinutes": minutes} for minutes in (0, "5")),
        *({"contact": contact} for contact in ([], {"fullName": "a\nb"})),
        *({"uuid": "invalid"}, {"notes": "\x00"}),
    ],
}
"""Fields of an order by the code of their refusal."""


@pytest.mark.one_database
@pytest.mark.parametrize(("over", "code"), [(over, code) for code, rows in INVALID.items() for over in rows])
def test_a_wrong_field_of_an_order_has_the_code_of_the_standard(octo: Octo, over: JsonObject, code: str) -> None:
    with nothing_changes(octo.world):
        answer = octo.call("POST", "/bookings", json=octo.order(**over))
        assert refused(answer) == (400, code)
    if code.startswith("INVALID_"):
        (field,) = set(answer.json()) - {"error", "errorMessage"}
        assert code == f"INVALID_{field[:-2].upper()}_ID"


PATHS: list[tuple[str, str, JsonObject | None]] = [
    ("GET", "/bookings/{uuid}", None),
    ("PATCH", "/bookings/{uuid}", {}),
    ("POST", "/bookings/{uuid}/confirm", {"contact": CONTACT}),
    ("POST", "/bookings/{uuid}/extend", {}),
    ("POST", "/bookings/{uuid}/cancel", {}),
]


@pytest.mark.one_database
@pytest.mark.parametrize(("method", "path", "body"), PATHS)
def test_an_unknown_uuid_comes_back_with_its_code(octo: Octo, method: str, path: str, body: JsonObject | None) -> None:
    with nothing_changes(octo.world):
        for uuid in (UNKNOWN, "invalid", "a" * 300):
            answer = octo.call(method, path.format(uuid=uuid), **({} if body is None else {"json": body}))
            assert (refused(answer), answer.json()["uuid"]) == ((400, "INVALID_BOOKING_UUID"), uuid)


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("contact", "field"),
    [
        ({}, "contact.fullName"),
        ({"fullName": " "}, "contact.fullName"),
        ({"fullName": "Ada", "emailAddress": "ada"}, "contact.emailAddress"),
    ],
)
def test_a_contact_without_a_valid_guest_books_nothing(octo: Octo, contact: JsonObject, field: str) -> None:
    reservation = octo.reserved(1)
    with nothing_changes(octo.world):
        answer = octo.call("POST", f"/bookings/{reservation['uuid']}/confirm", json={"contact": contact})
        assert refused(answer) == (400, "BAD_REQUEST")
    assert answer.json()["errorMessage"].startswith(f"{field}: ")


@pytest.mark.one_database
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"productId": UNKNOWN},
        {"localDate": "2026-11-23", "localDateStart": "2026-11-23"},
        {"localDate": "2026-11-23", "localDateEnd": "2026-11-23"},
        {"localDate": "23.11.2026"},
        {"resellerReference": ""},
    ],
)
def test_a_list_needs_a_reference_or_a_day_or_a_window(octo: Octo, params: dict[str, str]) -> None:
    assert refused(octo.call("GET", "/bookings", params=params)) == (400, "BAD_REQUEST")


def test_as_many_reservations_are_held_as_holds_of_the_api(octo: Octo) -> None:
    order = octo.order(1, uuid=str(uuid4()))
    reservation = octo.result("POST", "/bookings", json=order)
    at = octo.world.clock()
    other = octo.world.departure(octo.product, seats=LIVE_HOLDS_PER_ORGANIZATION, starts_at=at + 5 * DAY)
    for _ in range(LIVE_HOLDS_PER_ORGANIZATION - 1):
        octo.world.insert(tables.holds, departure_id=other, seats=1, created_at=at, expires_at=at + MINUTE)
    with nothing_changes(octo.world):
        answer = octo.call("POST", "/bookings", json=octo.order(1))
        assert refused(answer) == (400, "UNPROCESSABLE_ENTITY")
    assert str(LIVE_HOLDS_PER_ORGANIZATION) in answer.json()["errorMessage"]
    assert octo.result("POST", "/bookings", json=order) == reservation
    octo.result("POST", f"/bookings/{reservation['uuid']}/confirm", json={"contact": CONTACT})
    assert octo.reserved(1)["status"] == "ON_HOLD"


# Kept ----------------------------------------------------------------------------------------------------------------


def test_a_reservation_that_was_not_booked_is_deleted_after_a_day(octo: Octo) -> None:
    reservation, booked = octo.reserved(1)["uuid"], octo.confirmed(1)["uuid"]

    def purge(before: int) -> int:
        verb = partial(reservations.UNBOOKED.purge, organization_id=octo.world.org, before=before, limit=10)
        return octo.world.database.write(verb)

    assert purge(octo.world.clock()) == 0
    assert purge(octo.world.clock() + 1) == 1
    assert refused(octo.call("GET", f"/bookings/{reservation}")) == (400, "INVALID_BOOKING_UUID")
    assert octo.result("GET", f"/bookings/{booked}")["status"] == "CONFIRMED"


def test_an_erasure_empties_the_words_of_the_reseller(octo: Octo, shared_database_url: str) -> None:
    booking = octo.confirmed(2)
    octo.world.clock.advance(4 * DAY)
    guests = Guests(octo.api, shared_database_url)
    guests.request(guests.customer_id("ada@example.com"))
    guests.erase()
    (row,) = octo.world.rows(tables.reservations)
    assert row["details"] is None
    anonymized = octo.result("GET", f"/bookings/{booking['uuid']}")
    assert (anonymized["contact"]["fullName"], anonymized["contact"]["emailAddress"]) == ("Anonymized", None)
    assert [item["unitId"] for item in anonymized["unitItems"]] == ["adult", "adult"]
    late = {"contact": {"country": "Norway"}}
    assert octo.result("PATCH", f"/bookings/{booking['uuid']}", json=late)["contact"]["country"] is None
    assert octo.world.examine() == []
