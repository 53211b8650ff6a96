"""JSON and the fields of a body, one table for each kind of attack (decisions R2, R6, R7, R11)."""

import gzip
import itertools
import json
import time
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from support.api.api import Api, booking_body, fresh_key
from support.api.refusals import field_of, invalid_field, nothing_changes, reason_of, refused
from support.world.world import ADULT, DRYSUIT, World

from booking_core.db import tables

pytestmark = pytest.mark.one_database


JSON = {"Content-Type": "application/json"}
REST_OF_BOOKING = '"customer":{"name":"Ada","email":"ada@example.com"},"payment":"pay_on_site"'
CPU_S = 1.0
"""More than any request may cost; generous, because a busy machine counts the work of other threads too."""
BOMB = gzip.compress(b"{" + b" " * 10_000_000 + b"}")


def send(api: Api, body: bytes | str, path: str = "/bookings", **headers: str) -> httpx.Response:
    """Send a POST of exactly these bytes."""
    sent = {"Idempotency-Key": fresh_key(), **JSON, **headers}
    return api.call("POST", path, content=body.encode() if isinstance(body, str) else body, headers=sent)


def with_count(departure: str, count: str, tier: str = "adult") -> str:
    """Return a booking body with one line, whose count is this JSON text."""
    line = f'{{"tier_id":"{tier}","count":{count}}}'
    return f'{{"experience_date_id":"{departure}","guests":[{line}],{REST_OF_BOOKING}}}'


def with_field(departure: str, field: str, value: Any) -> dict[str, Any]:
    """Return a booking body with one field replaced; a dot separates nested names."""
    body = booking_body(departure)
    owner, _, name = field.rpartition(".")
    target = body["guests"][0] if owner == "guests.0" else body[owner] if owner else body
    target[name] = value
    return body


def assert_customer_refused(api: Api, departure: str, customer: dict[str, str], field: str) -> None:
    """Check that this field is refused in a booking and in a customer."""
    in_booking, alone = api.book(departure, customer=customer), api.post("/customers", customer)
    assert (customer, invalid_field(in_booking)) == (customer, f"customer.{field}")
    assert (customer, invalid_field(alone)) == (customer, field)


@pytest.mark.parametrize(
    "number",
    ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1" + "0" * 4299, "1" + "0" * 5000, "01", "+1", "0x1", "1_0"],
    ids=lambda text: text if len(text) < 20 else f"{len(text)}-digits",
)
def test_invalid_json_numbers_are_refused(api: Api, departure: str, number: str) -> None:
    with nothing_changes(api.world):
        for body in (with_count(departure, number), with_count(departure, f'1,"unknown":{number}')):
            refused(send(api, body), 400, "validation_failed")


COUNTS_MALFORMED = {
    "out-of-range": ("0", "-1", "-0", "2147483648", str(2**63), str(2**64)),
    "decimal": ("1.5", "1.0", "1e0"),
    "another-type": ('"1"', '""', "true", "null", "[]", "[1]", "{}"),
}


@pytest.mark.parametrize("counts", COUNTS_MALFORMED.values(), ids=COUNTS_MALFORMED)
def test_a_count_is_an_integer_from_1_to_2147483647(api: Api, departure: str, counts: tuple[str, ...]) -> None:
    for count in counts:
        with_add_on = f'{with_count(departure, "1")[:-1]},"add_ons":[{{"id":"drysuit","count":{count}}}]}}'
        for line, body in (("guests", with_count(departure, count)), ("add_ons", with_add_on)):
            assert (count, invalid_field(send(api, body))) == (count, f"{line}.0.count")


def test_a_count_beyond_the_capacity_is_insufficient_capacity(api: Api, departure: str) -> None:
    huge = {"tier_id": "adult", "count": 2_147_483_647}
    family = {"tier_id": "family", "count": 2_147_483_647}
    with nothing_changes(api.world, leaving_out={"idempotency"}):
        for lines in ([huge], [huge] * 3, [family], [family] * 3, [huge, family] * 50):
            answer = refused(api.book(departure, guests=lines), 409, "insufficient_capacity")
            assert answer["seats_available"] == 12


def test_two_lines_of_one_tier_are_summed_and_stay_separate(api: Api, departure: str) -> None:
    lines = [{"tier_id": "adult", "count": 5}, {"tier_id": "adult", "count": 7}]
    booking = api.book(departure, guests=lines).json()
    assert [(line["tier_id"], line["count"]) for line in booking["guests"]] == [("adult", 5), ("adult", 7)]
    assert refused(api.book(departure), 409, "insufficient_capacity")["seats_available"] == 0


@pytest.mark.parametrize("field", ["guests", "add_ons"])
def test_there_are_at_most_100_lines(api: Api, world: World, field: str) -> None:
    departure = world.departure(world.experience(), seats=1000)
    line = {"guests": {"tier_id": "adult", "count": 1}, "add_ons": {"id": "drysuit", "count": 1}}[field]
    assert api.book(departure, **{field: [line] * 100}).status_code == 201
    for count in (101, 1_001, 6_000):
        assert invalid_field(api.book(departure, **{field: [line] * count})) == field


def test_ten_thousand_lines_that_fit_in_a_body_are_refused_quickly(api: Api, departure: str) -> None:
    lines = ",".join(['{"tier_id":"a","count":1}'] * 9_900)
    started = time.process_time()
    answer = send(api, f'{{"experience_date_id":"{departure}","guests":[{lines}],{REST_OF_BOOKING}}}')
    refused(answer, 400, "validation_failed")
    assert time.process_time() - started < CPU_S


def test_amounts_are_exact_to_63_bits_and_refused_beyond(api: Api, world: World) -> None:
    price = 2**53 + 1
    tier = ADULT | {"price": {"amount_minor": price, "currency": "NOK"}}
    departure = world.departure(world.experience(price_tiers=json.dumps([tier])), seats=5_000)
    assert api.book(departure).json()["totals"]["total"]["amount_minor"] == price
    assert api.book(departure, count=1_023).json()["totals"]["total"]["amount_minor"] == 1_023 * price
    overflowing = api.book(departure, count=1_025)
    refused(overflowing, 422, "validation_failed")
    assert reason_of(overflowing) == "amount_overflow"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"note":"\\ud800",%s}', id="lone-surrogate-in-note"),
        pytest.param(b'{"note":"\\udc00\\ud800",%s}', id="surrogates-in-the-wrong-order"),
        pytest.param(b'{"\\ud800":1,%s}', id="lone-surrogate-in-a-name"),
        pytest.param(b'{"unknown":"\\ud800",%s}', id="lone-surrogate-in-an-unknown-field"),
        pytest.param(b'{"note":"\xed\xa0\x80",%s}', id="surrogate-in-utf-8"),
        pytest.param(b'{"note":"\xff\xfe",%s}', id="bytes-of-no-text"),
        pytest.param(b'{"note":"\xe2\x82",%s}', id="truncated-utf-8"),
        pytest.param(b'{"note":"\xc0\xaf",%s}', id="overlong-utf-8"),
        pytest.param(b'{"note":"\xf5\x80\x80\x80",%s}', id="beyond-unicode"),
        pytest.param(b'{"unknown":"\xff",%s}', id="bytes-of-no-text-in-an-unknown-field"),
        pytest.param(b'{"note":"\x01",%s}', id="bare-control-character"),
    ],
)
def test_text_that_is_no_unicode_is_refused(api: Api, departure: str, body: bytes) -> None:
    with nothing_changes(api.world):
        refused(send(api, body.replace(b"%s", with_count(departure, "1")[1:-1].encode())), 400, "validation_failed")


@pytest.mark.parametrize("control", ["\x00", "\x01", "\x08", "\x0b", "\x0c", "\x1b", "\x1f"], ids=ascii)
def test_control_characters_are_refused_in_every_field(api: Api, departure: str, control: str) -> None:
    for field in ("note", "guests.0.tier_id", "customer.name", "customer.email", "customer.phone"):
        body = with_field(departure, field, f"ad{control}ult@example.com")
        assert invalid_field(api.post("/bookings", body)) == field


@pytest.mark.parametrize("control", ["\x00", "\x07", "\n", "\x7f", "\x9f", "\u2028"], ids=ascii)
def test_control_characters_are_refused_in_the_other_bodies_too(api: Api, departure: str, control: str) -> None:
    booking = api.book(departure).json()
    assert invalid_field(api.cancel(booking["id"], reason=f"ill{control}")) == "reason"
    for path, field in itertools.product(
        ("/customers", f"/bookings/{booking['id']}/guest"), ("name", "email", "phone")
    ):
        body = {"name": "Ada", "email": "ada@example.com", "phone": "1", field: f"a{control}@example.com"}
        assert (path, invalid_field(api.post(path, body))) == (path, field)


def test_a_note_may_hold_tabs_and_line_breaks(api: Api, departure: str) -> None:
    note = "one\ttwo\r\nthree\u2028four\u0085"
    assert api.book(departure, note=note).json()["note"] == note


@pytest.mark.parametrize("separator", ["\r", "\n", "\t", "\v", "\x85", "\u2028", "\u2029", "\x1b"], ids=ascii)
def test_a_name_is_one_line(api: Api, departure: str, separator: str) -> None:
    for name in (f"Ada{separator}Lovelace", f"{separator}Ada", f"Ada{separator}"):
        assert_customer_refused(api, departure, {"name": name, "email": "ada@example.com"}, "name")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" * 100_000, id="100000-open-brackets"),
        pytest.param(b'{"a":' * 50_000, id="50000-open-objects"),
        pytest.param(b"[" * 5_000 + b"]" * 5_000, id="5000-arrays"),
        pytest.param(b'{"note":' * 5_000 + b"1" + b"}" * 5_000, id="5000-objects"),
        pytest.param(b'{"unknown":' + b"[" * 300 + b"]" * 300 + b",%s}", id="300-arrays-in-an-unknown-field"),
        pytest.param(b'{"unknown":' + b'{"a":' * 300 + b"1" + b"}" * 301, id="300-objects-in-an-unknown-field"),
    ],
)
def test_deep_nesting_is_refused_quickly(api: Api, departure: str, body: bytes) -> None:
    started = time.process_time()
    refused(send(api, body.replace(b"%s", with_count(departure, "1")[1:-1].encode())), 400, "validation_failed")
    assert time.process_time() - started < CPU_S


BODIES_MALFORMED = {
    "no-json": ("", " ", "{", '{"a":1}{"b":2}', '{"a":1,}', "{'a':1}", "// x\n{}"),
    "no-object": ("null", "[]", "[{}]", '"x"', "1", "true"),
    "without-fields": ("{}", '{"guests":[]}'),
}


@pytest.mark.parametrize("bodies", BODIES_MALFORMED.values(), ids=BODIES_MALFORMED)
@pytest.mark.parametrize("path", ["/bookings", "/customers"])
def test_invalid_bodies_are_refused(api: Api, path: str, bodies: tuple[str, ...]) -> None:
    with nothing_changes(api.world):
        for body in bodies:
            refused(send(api, body, path), 400, "validation_failed")


@pytest.mark.parametrize("path", ["/bookings", "/customers"])
def test_an_absent_body_is_refused_with_any_content_type(api: Api, path: str) -> None:
    for headers in ({}, {"Content-Type": "text/plain"}, {"Content-Encoding": "gzip"}):
        refused(api.call("POST", path, headers={"Idempotency-Key": fresh_key(), **headers}), 400, "validation_failed")


def test_a_body_that_may_be_absent_is_not_something_else(api: Api, departure: str) -> None:
    booking = api.book(departure).json()
    for body in ("null", "[]", '"x"', "0", "{", " "):
        refused(send(api, body, f"/bookings/{booking['id']}/cancel"), 400, "validation_failed")


def test_of_a_name_that_comes_twice_the_last_counts(api: Api, departure: str) -> None:
    body = with_count(departure, "1")
    last_good = body.replace('"payment":"pay_on_site"', '"payment":"card","payment":"invoice"')
    assert send(api, last_good).json()["payment"]["method"] == "invoice"
    last_bad = body.replace('"payment":"pay_on_site"', '"payment":"invoice","payment":"card"')
    refused(send(api, last_bad), 400, "validation_failed")
    nested = body.replace('"count":1', '"count":9,"count":2')
    assert send(api, nested).json()["guests"][0]["count"] == 2


def test_a_body_is_utf_8_without_a_mark(api: Api, departure: str) -> None:
    text = json.dumps({**booking_body(departure), "note": "é"}, ensure_ascii=False)
    for encoding in ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"):
        refused(send(api, text.encode(encoding)), 400, "validation_failed")


MEDIA_TYPES_REFUSED: dict[str, tuple[str | None, ...]] = {
    "none": (None, ""),
    "text": ("text/plain", "text/json", "*/*"),
    "form": ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x"),
    "application": ("application/octet-stream", "application/jsonp", "application/json, text/plain"),
    "another-charset": ("application/json; charset=utf-16", "application/json; charset=latin-1"),
}


@pytest.mark.parametrize("media_types", MEDIA_TYPES_REFUSED.values(), ids=MEDIA_TYPES_REFUSED)
def test_a_body_not_said_to_be_json_is_refused(api: Api, departure: str, media_types: tuple[str | None, ...]) -> None:
    with nothing_changes(api.world):
        for media_type in media_types:
            headers = {"Idempotency-Key": fresh_key()} | ({} if media_type is None else {"Content-Type": media_type})
            answer = api.call("POST", "/bookings", content=json.dumps(booking_body(departure)), headers=headers)
            refused(answer, 415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Content-Type", "application/json"),
        ("Content-Type", "APPLICATION/JSON"),
        ("Content-Type", "application/json;charset=utf-8"),
        ("Content-Type", 'application/json; charset="UTF-8"'),
        ("Content-Type", "application/vnd.api+json"),
        ("Content-Encoding", "identity"),
    ],
)
def test_uncompressed_json_is_accepted_in_any_spelling(api: Api, departure: str, header: str, value: str) -> None:
    assert send(api, json.dumps(booking_body(departure)), **{header: value}).status_code == 201


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, identity", "x"])
def test_a_compressed_body_is_refused_and_not_inflated(api: Api, departure: str, encoding: str) -> None:
    started = time.process_time()
    refused(send(api, BOMB, **{"Content-Encoding": encoding}), 415, "unsupported_media_type")
    assert time.process_time() - started < CPU_S


@pytest.mark.parametrize("name", ["", " ", "   ", "\u3000\u00a0", "  " + "é" * 201])
def test_a_blank_name_or_a_name_too_long_when_stripped_is_refused(api: Api, departure: str, name: str) -> None:
    assert_customer_refused(api, departure, {"name": name, "email": "ada@example.com"}, "name")


@pytest.mark.parametrize("name", ["n", "Ada Lovelace", "é" * 200], ids=["shortest", "two-words", "longest"])
def test_blanks_around_a_name_do_not_count(api: Api, departure: str, name: str) -> None:
    for padded in (f"  {name}  ", f"{name}   ", f"   {name}", f"\u00a0{name}\u3000"):
        customer = {"name": padded, "email": "ada@example.com"}
        assert api.book(departure, customer=customer).json()["customer"]["name"] == name


ADDRESSES_REFUSED = {
    "incomplete": ("", "@", "a", "a@", "@b.co", "a@b"),
    "dots": ("a@b..c", "a@.b.c", "a@b.c.", ".a@b.co", "a.@b.co", "a..b@c.de"),
    "several": ("a@b.c,d@e.f", "a@b.c;d@e.f", "a@b.c d@e.f", "a@@b.co", "a@b@c.de"),
    "quotes-and-names": ('"x\r\nBcc: y"@e.f', '"x"@e.fg', "<a@b.c>", "Ada <a@b.co>", "a@b.co (Ada)"),
    "blanks": ("a b@c.de", " a@b.co", "a@b.co ", "a@b.co\n", "a@b\u00a0c.de", "a@b.c\u2003de"),
    "invisible-or-wide": ("a@b\u200bc.de", "a@b\uff0ca.c\uff20d.ef", "a\u202e@b.co", "a@b\u202ec.de"),
    "no-host-name": ("a@-b.co", "a@b-.co", "a@b_c.de", "a@[127.0.0.1]", "a@b.c/d"),
    "escaped-or-link": ("a\\@b.co", "mailto:a@b.co?bcc=c@d.ef"),
}
ADDRESSES_TAKEN = {
    "ascii": ("a@b.co", "a.b+c@d-e.f.gh", "o'hara@example.ie", "a@xn--bcher-kva.example", "!#$%&'*+-/=?^_`{|}~@b.co"),
    "unicode": ("ä.ö@bücher.example", "用户@例子.广告"),
}


@pytest.mark.parametrize("addresses", ADDRESSES_REFUSED.values(), ids=ADDRESSES_REFUSED)
def test_an_address_is_one_plain_mailbox(api: Api, departure: str, addresses: tuple[str, ...]) -> None:
    for email in addresses:
        assert_customer_refused(api, departure, {"name": "Ada", "email": email}, "email")


@pytest.mark.parametrize("addresses", ADDRESSES_TAKEN.values(), ids=ADDRESSES_TAKEN)
def test_addresses_that_exist_are_taken(api: Api, departure: str, addresses: tuple[str, ...]) -> None:
    for email in addresses:
        booking = api.book(departure, customer={"name": "Ada", "email": email})
        assert booking.status_code == 201, booking.text
        assert booking.json()["customer"]["email"] == email


LITERAL = {
    "template": ("{{7*7}}", "${7*7}", "{% raise %}", "#{7*7}", "%s%n%x", "{0.__class__}"),
    "code": ("<script>alert(1)</script>", "=cmd|' /C calc'!A0", "'; DROP TABLE bookings; --", "null", "\\u0000"),
    "unicode": (
        "\u202eevil",
        "a\u200b\u200d\ufeffb",
        "e" + "\u0301" * 150,
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    ),
}


@pytest.mark.parametrize("texts", LITERAL.values(), ids=LITERAL)
def test_text_is_stored_unchanged(api: Api, departure: str, texts: tuple[str, ...]) -> None:
    for number, text in enumerate(texts):
        email = f"ada-{number}@example.com"
        created = api.book(departure, note=text, customer={"name": text, "email": email, "phone": text}).json()
        assert (created["note"], created["customer"]["name"], created["customer"]["phone"]) == (text, text, text)
        assert api.get(f"/bookings/{created['id']}").json() == created
        assert [customer["name"] for customer in api.get("/customers", email=email).json()["data"]] == [text]


def test_a_thousand_combining_marks_are_kept(api: Api, departure: str) -> None:
    note = "e" + "\u0301" * 1_000
    assert api.book(departure, note=note).json()["note"] == note


def test_an_id_in_a_body_is_a_canonical_uuid(api: Api, departure: str) -> None:
    malformed: list[object] = [
        *(f"{{{departure}}}", f"urn:uuid:{departure}", f" {departure}", f"{departure}\n"),
        *(departure.replace("-", ""), departure.replace("-", "_")),
        *(departure[:-1], f"{departure}0", f"{departure[:-1]}g", f"{departure[:-1]}１"),
        *("", None, 1, [departure]),
    ]
    for value in malformed:
        refusal = refused(
            api.post("/bookings", with_field(departure, "experience_date_id", value)), 400, "validation_failed"
        )
        assert (value, field_of(refusal)) == (value, "experience_date_id")
        assert "^" not in refusal["error"], "no regular expression"


def test_an_id_may_be_written_in_capitals(api: Api, departure: str) -> None:
    booking = api.book(departure.upper()).json()
    assert booking["departure"]["id"] == departure
    assert api.get(f"/bookings/{booking['id'].upper()}").json() == booking
    assert api.cancel(booking["id"].upper()).json()["id"] == booking["id"]


WRONG: Mapping[str, tuple[object, ...]] = {
    "payment": ("card", "PAY_ON_SITE", "pay_on_site ", "", None, 1, ["invoice"], True),
    "send_confirmation_email": ("true", 1, 0, "", [], {}),
    "notify_staff": ("false", 1, []),
    "locale": ("", "d", "deutsch", "de_DE", "de-", "de--AT", "de-AT\n", "a" * 36, 1, True, []),
    "note": (1, True, [], {}),
    "guests": (None, {}, "adult", 1, []),
    "add_ons": ({}, "drysuit", 1),
    "customer": (None, [], "Ada", 1),
    "customer.name": (None, 1, True, []),
    "customer.email": (None, 1, []),
    "customer.phone": (1, True, []),
    "guests.0.tier_id": (None, 1, "", "a" * 201, []),
}


@pytest.mark.parametrize(("field", "values"), WRONG.items(), ids=WRONG)
def test_a_wrong_type_or_value_is_named(api: Api, departure: str, field: str, values: tuple[object, ...]) -> None:
    for value in values:
        answer = api.post("/bookings", with_field(departure, field, value))
        assert (value, invalid_field(answer)) == (value, field)


def test_a_refund_mode_is_one_of_two(api: Api, departure: str) -> None:
    booking = api.book(departure).json()
    for value in ("AUTO", "full", "", 1, True, []):
        assert (value, invalid_field(api.cancel(booking["id"], refund=value))) == (value, "refund")
    assert api.get(f"/bookings/{booking['id']}").json()["status"] == "confirmed"


def test_consent_is_a_boolean(api: Api) -> None:
    for value in ("yes", "true", 1, 0, []):
        body = {"name": "Ada", "email": "ada@example.com", "email_subscription": value}
        assert (value, invalid_field(api.post("/customers", body))) == (value, "email_subscription")


@pytest.mark.parametrize("field", ["experience_date_id", "guests", "customer", "payment"])
def test_a_field_that_is_missing_is_named(api: Api, departure: str, field: str) -> None:
    body = {name: value for name, value in booking_body(departure).items() if name != field}
    assert invalid_field(api.post("/bookings", body)) == field


def test_null_is_the_same_as_absent_where_a_field_may_be_absent(api: Api, departure: str) -> None:
    optional = dict.fromkeys(("note", "add_ons", "send_confirmation_email", "notify_staff", "locale"))
    booking = api.book(departure, **optional, customer={"name": "Ada", "email": "ada@example.com", "phone": None})
    assert booking.status_code == 201
    assert len(api.world.rows(tables.effects)) == 2
    assert api.cancel(booking.json()["id"], refund=None, reason=None).status_code == 200
    customer = {"name": "Eve", "email": "eve@example.com", "phone": None, "email_subscription": None}
    assert api.post("/customers", customer).json()["email_subscription"] is False


def test_unknown_fields_are_ignored_at_every_depth(api: Api, departure: str) -> None:
    body = with_field(departure, "customer.nickname", {"deep": [1, None]})
    body["guests"][0]["colour"] = "red"
    body |= {"gift_card": "X", "$ref": "x", "__proto__": {"admin": True}, "": 0}
    assert api.post("/bookings", body).status_code == 201


@pytest.mark.parametrize(
    ("app", "add_ons", "status"),
    [
        (True, [{"id": "drysuit", "count": 1}], 201),
        (True, [{"id": "yacht", "count": 1}], 422),
        (True, [], 201),
        (False, [{"id": "drysuit", "count": 1}], 422),
        (False, [], 201),
        (False, None, 201),
    ],
    ids=["sold", "unknown", "none", "app-off", "app-off-none", "app-off-null"],
)
def test_add_ons_are_sold_with_their_app(api: Api, departure: str, app: bool, add_ons: Any, status: int) -> None:
    api.world.change(tables.organizations, api.world.org, add_ons_app=app)
    answer = api.book(departure, add_ons=add_ons)
    assert answer.status_code == status
    if status == 422:
        refused(answer, 422, "validation_failed")
        assert reason_of(answer) == ("unknown_add_on" if app else "add_ons_app_disabled")


LONG = 100_000
ENDLESS = {
    "customer.email": (
        *("a" * LONG, "@" * LONG, "a@a" + "-" * LONG),
        *("a@" + "a." * (LONG // 2), "a." * (LONG // 2) + "@b.co"),
    ),
    "customer.name": ("a" * LONG, " " * LONG, "a " * (LONG // 2)),
    "customer.phone": ("1" * LONG, "+" * LONG),
    "note": ("a" * LONG, "\n" * LONG),
    "guests.0.tier_id": ("a" * LONG,),
    "experience_date_id": ("a" * LONG, "0" * LONG, "-" * LONG),
    "payment": ("a" * LONG,),
}


@pytest.mark.parametrize(
    ("field", "text"),
    [(field, text) for field, texts in ENDLESS.items() for text in texts],
    ids=lambda text: text[:10],
)
def test_a_long_text_is_refused_quickly(api: Api, departure: str, field: str, text: str) -> None:
    body = with_field(departure, field, text)
    started = time.process_time()
    answer = api.post("/bookings", body)
    assert time.process_time() - started < CPU_S
    assert invalid_field(answer) == field
    assert len(answer.content) < 1_000


def test_a_refusal_names_at_most_twenty_fields(api: Api, departure: str) -> None:
    body = {**booking_body(departure), "guests": [{"tier_id": 1, "count": 0}] * 100}
    assert len(refused(api.post("/bookings", body), 400, "validation_failed")["details"]) == 20


def test_prices_are_never_taken_from_a_body(api: Api, departure: str) -> None:
    add_on = {"id": DRYSUIT["id"], "count": 1, "unit_price": {"amount_minor": 1, "currency": "NOK"}, "price": 1}
    total = api.book(departure, add_ons=[add_on]).json()["totals"]["total"]
    assert total == {"amount_minor": 89000 + 15000, "currency": "NOK"}
