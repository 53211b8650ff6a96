"""Methods, paths, headers and sizes, as a hostile client may send them (decisions R4, R5, R8, R9)."""

import itertools
import json
import re
import uuid

import pytest
from support.api.answers import ANSWERS
from support.api.api import Api, booking_body, fresh_key
from support.api.endpoints import OPERATIONS
from support.api.raw import call
from support.api.refusals import nothing_changes, refused

from booking_core.organizations import keys

pytestmark = pytest.mark.one_database


BODY_BYTES_MAX = 256 * 1024
CANARY = "canary-7f3a"
METHODS: dict[str, set[str]] = {"/api/v1/openapi.json": {"GET"}}
for _operation in OPERATIONS:
    METHODS.setdefault(_operation.path, set()).add(_operation.method)
PATHS = sorted(METHODS)
METHODS_ANY = {
    *("HEAD", "OPTIONS", "TRACE", "CONNECT", "GET", "POST", "PUT", "PATCH", "DELETE"),
    *("PROPFIND", "FOO", "get"),
}


def methods_of(path: str) -> set[str]:
    """Return the methods of all operations that a path leads to: `quote` in `/bookings/quote` may be an id too."""
    templates = {template: re.sub(r"\{\w+}", "[^/]+", template) for template in METHODS}
    return {method for template in METHODS if re.fullmatch(templates[template], path) for method in METHODS[template]}


def filled(path: str) -> str:
    return re.sub(r"\{\w+}", lambda _: str(uuid.uuid4()), path)


def booking(departure: str) -> bytes:
    return json.dumps(booking_body(departure)).encode()


def post_headers(**over: str) -> list[tuple[str, str]]:
    headers = {"content-type": "application/json", "idempotency-key": fresh_key(), **over}
    return list(headers.items())


@pytest.mark.parametrize("path", PATHS)
def test_a_method_that_a_path_does_not_take_is_refused_by_name(api: Api, path: str) -> None:
    allowed = methods_of(path)
    headers = [("x-canary", CANARY), ("origin", f"https://{CANARY}.example"), ("max-forwards", "0")]
    for method in METHODS_ANY - allowed:
        answer = call(api.client, method, filled(path), key=api.key, headers=headers, pieces=[CANARY.encode()])
        refused(answer, 405, "method_not_allowed")
        assert answer.headers["allow"] == ", ".join(sorted(allowed))
        assert CANARY not in repr(answer)
        assert not [name for name in answer.headers if name.startswith("access-control-")]


TARGETS_UNKNOWN = {
    "outside": ("", "*", "/docs/", "/redoc", "/openapi.json", "/api", "/api/v1", "/api/v1/", "/api/v2/me"),
    "slash-at-the-end": (
        *("/api/v1/me/", "/api/v1/openapi.json/", "/api/v1/bookings/"),
        *("/api/v1/bookings/{id}/", "/api/v1/bookings/{id}/cancel/"),
    ),
    "slashes": ("//api/v1/me", "/api//v1/me", "/api/v1//me", "\\api\\v1\\me"),
    "dots": ("/api/v1/../v1/me", "/api/v1/./me", "/api/v1/%2e%2e/v1/me", "/api/v1/x/..%2fme"),
    "capitals": ("/API/v1/me", "/api/V1/me", "/api/v1/Me"),
    "blanks": (
        *("/api/v1/me%0a", "/api/v1/me%0d", "/api/v1/me%20", "/api/v1/me%00"),
        *("/api/v1/customers%0a", "/api/v1/openapi.json%0a"),
    ),
    "more": ("/api/v1/me;v=1", "/api/v1/me.json", "/api/v1/bookings/{id}/move"),
    "any-bytes": ("/api/v1/%F0%9F%98%80", "/api/v1/%ff%fe", f"/api/v1/{'a' * 5_000}"),
}
IDS_MALFORMED = {
    "text": ("abc", "null", "1", "-1", "'%20OR%201=1--", "%F0%9F%98%80", "%ff%fe", "a" * 5_000),
    "path": ("%00", "..%2f", "..%2f..%2fme", "%2e%2e"),
    "blanks": ("{id}%0a", "%0a{id}", "{id}%00", "{id}%20"),
    "another-notation": ("%7B{id}%7D", "urn:uuid:{id}", "{hex}", "{id}0", "00000000-0000-0000-0000-00000000000g"),
}


@pytest.mark.parametrize("targets", TARGETS_UNKNOWN.values(), ids=TARGETS_UNKNOWN)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_path_is_exact_or_unknown_and_never_redirected(api: Api, targets: tuple[str, ...], method: str) -> None:
    for target in targets:
        answer = call(api.client, method, target.format(id=uuid.uuid4()), key=api.key)
        refused(answer, 404, "not_found")
        assert "location" not in answer.headers


@pytest.mark.parametrize("texts", IDS_MALFORMED.values(), ids=IDS_MALFORMED)
@pytest.mark.parametrize("path", [path for path in PATHS if path.endswith("/{id}")])
def test_an_id_that_is_no_canonical_uuid_is_not_found(api: Api, path: str, texts: tuple[str, ...]) -> None:
    some = uuid.uuid4()
    for text in texts:
        target = path.replace("{id}", text.format(id=some, hex=some.hex))
        refused(call(api.client, "GET", target, key=api.key), 404, "not_found")


def test_cancelling_a_malformed_id_is_not_found_and_stores_no_response(api: Api) -> None:
    with nothing_changes(api.world):
        for text in ("%00", "abc", f"{uuid.uuid4()}%0a", "a" * 5_000):
            target = f"/api/v1/bookings/{text}/cancel"
            answer = call(api.client, "POST", target, key=api.key, headers=post_headers(), pieces=[b"{}"])
            refused(answer, 404, "not_found")


HEADERS_IGNORED = [
    *((name, f"{CANARY}.example") for name in ("host", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-for")),
    *((name, f"https://{CANARY}.example") for name in ("referer", "origin")),
    *((name, f"/{CANARY}") for name in ("x-forwarded-prefix", "x-original-url", "x-rewrite-url")),
    *((name, "DELETE") for name in ("x-http-method-override", "x-method-override")),
    *(("forwarded", f"host={CANARY}.example"), ("te", "trailers"), ("range", "bytes=0-3"), ("if-none-match", "*")),
    *(("accept", "text/html"), ("accept-language", CANARY)),
]


@pytest.mark.parametrize("header", HEADERS_IGNORED, ids=lambda header: header[0])
def test_a_header_that_means_nothing_here_changes_nothing(api: Api, departure: str, header: tuple[str, str]) -> None:
    same = ("x-request-id", "same")
    plain = call(api.client, "GET", "/api/v1/me", key=api.key, headers=[same])
    assert call(api.client, "GET", "/api/v1/me", key=api.key, headers=[same, header]) == plain
    sent, body = [*post_headers(), header], booking(departure)
    created = call(api.client, "POST", "/api/v1/bookings", key=api.key, headers=sent, pieces=[body])
    assert created.status_code == 201
    assert CANARY not in repr(created)
    assert created.json()["manage_url"].startswith("http://127.0.0.1:8000/manage/")


def test_a_body_of_a_get_is_not_looked_at(api: Api) -> None:
    answer = call(api.client, "GET", "/api/v1/me", key=api.key, pieces=itertools.repeat(b"x" * 65_536))
    assert (answer.status_code, answer.pieces_taken) == (200, 0)


@pytest.mark.parametrize(
    ("sent", "is_kept"),
    [
        pytest.param(("abc", "A-z_0.9", "a" * 128), True, id="plain"),
        pytest.param(("", "a" * 129), False, id="length"),
        pytest.param(("with blank", "a\nb", "a\n", "\x00"), False, id="blanks"),
        pytest.param(("a/b", "<script>", "é"), False, id="characters"),
        pytest.param((None,), False, id="none"),
    ],
)
@pytest.mark.parametrize("target", ["/api/v1/me", "/api/v1/nothing"])
def test_a_plain_request_id_is_kept_and_any_other_replaced(
    api: Api, target: str, sent: tuple[str | None, ...], is_kept: bool
) -> None:
    for value, method in itertools.product(sent, ("GET", "DELETE")):
        headers = [] if value is None else [("x-request-id", value)]
        answer = call(api.client, method, target, key=api.key, headers=headers)
        request_id = answer.headers["x-request-id"]
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,128}", request_id)
        assert (request_id == value) == is_kept
        if answer.status_code != 200:
            assert answer.json()["request_id"] == request_id


def test_each_request_without_an_id_gets_one_of_its_own(api: Api) -> None:
    request_ids = [api.get("/me").headers["x-request-id"] for _ in range(20)]
    assert len(set(request_ids)) == 20


@pytest.mark.parametrize("piece", [BODY_BYTES_MAX + 1, 65_536, 1_000], ids=["whole", "64-KiB", "1000-bytes"])
def test_a_body_may_have_256_kib_and_not_one_byte_more(api: Api, departure: str, piece: int) -> None:
    for size, status in ((BODY_BYTES_MAX, 201), (BODY_BYTES_MAX + 1, 413)):
        body = booking(departure).ljust(size)  # JSON allows blanks
        pieces = [body[at : at + piece] for at in range(0, size, piece)]
        answer = call(api.client, "POST", "/api/v1/bookings", key=api.key, headers=post_headers(), pieces=pieces)
        assert answer.status_code == status
    refused(answer, 413, "payload_too_large")


@pytest.mark.parametrize("announced", [None, "10", "1073741824"], ids=["unannounced", "too-small", "honest"])
@pytest.mark.parametrize("path", ["/bookings", "/bookings/{}/cancel", "/customers"])
def test_an_endless_body_is_not_read_to_its_end(api: Api, path: str, announced: str | None) -> None:
    headers = post_headers(**({"content-length": announced} if announced else {"transfer-encoding": "chunked"}))
    target = f"/api/v1{path.format(uuid.uuid4())}"
    with nothing_changes(api.world):
        endless = itertools.repeat(b"[" * 65_536)
        answer = call(api.client, "POST", target, key=api.key, headers=headers, pieces=endless)
    refused(answer, 413, "payload_too_large")
    assert answer.headers["connection"] == "close"
    assert answer.pieces_taken == (0 if announced == "1073741824" else 5)


def test_the_api_key_is_checked_before_the_size_of_the_body(api: Api) -> None:
    endless = itertools.repeat(b"[" * 65_536)
    answer = call(api.client, "POST", "/api/v1/bookings", headers=post_headers(), pieces=endless)
    refused(answer, 401, "api_key_missing")


@pytest.mark.parametrize("arrived", [b"", b"{}", b'{"refund"'], ids=["nothing", "an-object", "a-part"])
def test_a_body_that_breaks_off_is_never_acted_on(api: Api, departure: str, arrived: bytes) -> None:
    """The client has gone before the last piece."""
    created = api.book(departure).json()
    target = f"/api/v1/bookings/{created['id']}/cancel"
    with nothing_changes(api.world):
        call(api.client, "POST", target, key=api.key, headers=post_headers(), pieces=[arrived, None])
    assert api.get(f"/bookings/{created['id']}").json()["status"] == "confirmed"


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_is_json_that_nothing_keeps_and_nothing_guesses(api: Api, departure: str, name: str) -> None:
    status, ask = ANSWERS[name]
    answer = ask(api, departure)
    headers = answer.headers
    assert answer.status_code == status
    assert headers["content-type"] == "application/json"
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-request-id"]
    assert int(headers["content-length"]) == len(answer.content)
    assert not {"server", "x-powered-by", "set-cookie", "access-control-allow-origin", "retry-after"} & set(headers)
    assert not [name for name in headers if name.startswith("x-ratelimit")], "this application has no limit"
    assert len(headers.multi_items()) == len(headers)


def test_an_internal_error_has_a_fixed_message(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError(f"SELECT {CANARY} FROM /etc/passwd")

    monkeypatch.setattr(keys, "present", fail)
    answer = api.get("/me")
    refused(answer, 500, "internal_error")
    assert CANARY not in answer.text
    assert "Traceback" not in answer.text
    assert answer.json()["request_id"] in caplog.text
    assert api.key not in caplog.text
