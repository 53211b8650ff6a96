"""`booking api`: any request, to the running service on both databases, and to a server with prepared answers."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.api.api import booking_body
from support.api.endpoints import OPERATIONS, taking_a_key
from support.serving.commands import Booking
from support.world.world import World

from booking_cli.framework.exit_codes import ExitCode


def body_sent(canned: Any, booking: Booking, *argv: str) -> Any:
    assert booking("api", "POST", "webhooks", *argv).code == 0
    return canned.bodies[-1]


def test_an_answer_is_written_as_it_came(booking: Booking, shop: World) -> None:
    for path in ("me", "/me", "/api/v1/me", "me/"):
        assert booking("api", "GET", path).json["organization"]["slug"] == shop.organization.slug
    chosen = booking("api", "get", "me", "--fields", "organization.slug", "-o", "jsonl").json
    assert chosen == {"organization": {"slug": shop.organization.slug}}


def test_data_are_parameters_of_a_get(booking: Booking, shop: World) -> None:
    ids = [shop.experience() for _ in range(3)]
    for argv in (("experiences", "-d", "limit=1", "-d", "order=asc"), ("experiences?limit=1&order=asc",)):
        page = booking("api", "GET", *argv).json
        assert (len(page["data"]), page["has_more"]) == (1, True)
    assert booking("api", "GET", "experiences", "-d", "limit:=2").json["data"][0]["id"] in ids


def test_every_page_can_be_walked(booking: Booking, shop: World) -> None:
    ids = {shop.experience() for _ in range(5)}
    whole = booking("api", "GET", "experiences?limit=2", "--paginate", "--fields", "id").json
    assert {entry["id"] for entry in whole["data"]} == ids
    assert (whole["has_more"], whole["next_cursor"]) == (False, None)
    lines = booking("api", "GET", "experiences?limit=2", "--paginate", "-o", "jsonl").out.splitlines()
    assert {json.loads(line)["id"] for line in lines} == ids


def test_a_booking_is_made_once_also_this_way(booking: Booking, shop: World, tmp_path: Path) -> None:
    file = tmp_path / "booking.json"
    file.write_text(json.dumps(booking_body(shop.departure(shop.experience()))))
    argv = ("api", "POST", "bookings", "--input", str(file))
    first = booking(*argv, "--idempotency-key", "order-1017")
    assert first.json["status"] == "confirmed"
    assert booking(*argv, "-H", "Idempotency-Key: order-1017").json == first.json
    assert booking(*argv).json["id"] != first.json["id"]


def test_a_refusal_is_reported_like_any_other(booking: Booking, shop: World) -> None:
    refused = booking("api", "POST", "customers", "-d", "email=nobody", "-d", "name=Ada")
    assert (refused.code, refused.out) == (ExitCode.INVALID, "")
    assert refused.err.startswith("error: ")
    assert booking("api", "GET", "nothing/here").code == ExitCode.NOT_FOUND


def test_fields_are_text_or_json_and_nest(booking: Booking, canned: Any) -> None:
    argv = ("-d", "a=1", "-d", "b:=1", "-d", "c.d=x=y", "-d", "c.e:=[null, true]", "-d", "f=")
    assert body_sent(canned, booking, *argv) == {"a": "1", "b": 1, "c": {"d": "x=y", "e": [None, True]}, "f": ""}


def test_a_header_is_sent(booking: Booking, canned: Any) -> None:
    booking("api", "GET", "me", "-H", "X-Trace: 7")
    assert canned.requests[-1][2]["x-trace"] == "7"


def test_only_what_takes_a_key_gets_one(booking: Booking, canned: Any) -> None:
    posts = [operation for operation in OPERATIONS if operation.method == "POST" and operation.id != "quote_booking"]
    for operation in posts:
        booking("api", "POST", re.sub(r"{\w+}", "one", operation.path))
    received = [headers for _, _, headers in canned.requests]
    sent = {operation for operation, headers in zip(posts, received, strict=True) if "idempotency-key" in headers}
    assert sent == taking_a_key().keys()


def test_an_answer_without_a_body_writes_nothing(booking: Booking, canned: Any) -> None:
    canned.answers = [(204, b"")]
    result = booking("api", "DELETE", "webhooks/one")
    assert (result.code, result.out, result.err) == (0, "", "Done; the response is empty.\n")


def test_a_list_at_the_top_is_json_too(booking: Booking, canned: Any) -> None:
    canned.answers = [(200, b"[1, 2]")]
    assert booking("api", "GET", "me").json == [1, 2]


@pytest.mark.parametrize(
    "argv",
    [
        ("FETCH", "me"),
        *(("GET", path) for path in ("../me", "a//b", "a%2fb", "")),
        *(("POST", "customers", "-d", field) for field in ("email", "=x", "a:=nope")),
        ("POST", "customers", "-d", "a=1", "-d", "a.b=2"),
        ("POST", "customers", "-d", "a=1", "--input", "file"),
        ("POST", "customers", "--input", "no-such-file"),
        ("POST", "customers", "--paginate"),
        *(("GET", "me", "-H", header) for header in ("nonsense", "Authorization: Bearer svc_x", "X Trace: 7")),
        ("POST", "customers", "-d", "a=1", "-H", "Idempotency-Key: short"),
    ],
)
def test_what_makes_no_sense_is_not_sent(booking: Booking, canned: Any, argv: tuple[str, ...]) -> None:
    refused = booking("api", *argv, "-o", "json")
    assert (refused.code, refused.error["exit_code"]) == (2, 2)
    assert canned.requests == []


def test_stdin_cannot_be_the_key_and_the_body(booking: Booking, canned: Any) -> None:
    assert booking("api", "POST", "customers", "--input", "-", "--api-key-stdin").code == ExitCode.USAGE


def test_the_body_is_read_from_stdin(booking: Booking, canned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"a": 1}')))
    assert body_sent(canned, booking, "--input", "-") == {"a": 1}
