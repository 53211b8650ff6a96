"""Which URLs are read at all, and when an endpoint that fails is warned of and switched off."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.world.world import HOUR, NOON

from booking_core.base.errors import Unprocessable
from booking_core.models.reasons import Fault
from booking_core.models.webhook_urls import split_url
from booking_core.webhooks import rules
from booking_core.webhooks.rules import EndpointHealth, EndpointRow, LeasedDelivery

ROW = EndpointRow(
    id="e",
    url="https://receiver.example/hook",
    description=None,
    enabled_at=NOON,
    created_at=NOON,
    updated_at=NOON,
    event_types="booking.created,booking.cancelled",
    consecutive_failures=6,
)
DELIVERY = LeasedDelivery("o", "d", "e", "v", "ping", "token", NOON, 0)
WAITS = (60, 300, 1800, 7200, 28800)
AFTER = 72 * 3600


# URLs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "https://receiver.example",
        "https://receiver.example/",
        "HTTPS://Receiver.Example/Hook?x=1&y=%20",
        "https://receiver.example.:8443/hook",
        "https://re_ceiver.example/hook",
        "https://xn--bcher-kva.example/hook",
        "https://bücher.example/hök",
        "https://93.184.216.34/hook",
        "https://127.0.0.1/",  # well-formed; whether it is public is not a question of syntax
        "https://localhost/",
        "https://[2606:2800:220:1:248:1893:25c8:1946]:443/",
        "https://[::1]/",
        f"https://{'a.' * 126}a/",  # 253 characters
    ],
)
def test_a_plain_url_is_read(url: str) -> None:
    split_url(url, allow_http=False)


UNREADABLE = [
    f"https://{'a.' * 126}aa/",
    # No https.
    *("http://receiver.example/", "ftp://receiver.example/", "file:///etc/passwd", "gopher://receiver.example/"),
    *("//receiver.example/", "https:/receiver.example", "https:receiver.example", "https:\\\\receiver.example", ""),
    *("receiver.example", "https://", "https:///hook", "https://?x", "https://:443/", "javascript:alert(1)"),
    # An address in another notation than the usual one.
    *("https://2130706433/", "https://0x7f000001/", "https://0177.0.0.1/", "https://017700000001/", "https://127.1/"),
    *("https://127.0.1/", "https://0x7f.1/", "https://127.0.0.1./", "https://①②⑦.⓪.⓪.①/", "https://127。0。0。1/"),
    *("https://%31%32%37.0.0.1/", "https://1.2.3.4.5/", "https://256.1.1.1/", "https://receiver.123/"),
    *("https://[::1%25eth0]/", "https://[fe80::1%eth0]/", "https://[127.0.0.1]/", "https://[::1/", "https://::1/"),
    # More than a host.
    *("https://good.example@127.0.0.1/", "https://127.0.0.1#@good.example/", "https://good.example:443@evil.example/"),
    *("https://user:secret@receiver.example/", "https://@receiver.example/", "https://good.example\\@127.0.0.1"),
    *("https://receiver.example/#part", "https://receiver.example/#", "https://receiver.example/a b"),
    *("https://receiver.example/a\tb", "https://receiver.example/\r\nHost: x", "https://receiver\u3000.example/"),
    *("https://receiver.example/\0", "https://receiver.example/\x7f", "https://receiver.example/\ufeff"),
    *("https://receiver.example/\x85", "https://receiver.example/\u2028", "https://receiver.example/\ud800"),
    *(" https://receiver.example/", "https://receiver.example/ ", "https://receiver%2eexample/"),
    # No host, no port.
    *("https://./", "https://[]/", "https://[::1]a/", "https://*.example/", "https://a,b.example/", "https://a.1/"),
    *("https://receiver..example/", "https://-receiver.example/", "https://receiver-.example/", "https://a!b.example/"),
    *(f"https://{'a' * 64}.example/", f"https://{'a.' * 127}example/", "https://receiver.example:0/"),
    *("https://receiver.example:65536/", "https://receiver.example:abc/", "https://receiver.example:/"),
]


@pytest.mark.parametrize("url", UNREADABLE)
def test_a_url_that_could_be_read_in_two_ways_is_refused(url: str) -> None:
    with pytest.raises(Fault):
        split_url(url, allow_http=False)


ALLOWED_PORTS = (443, 1024, 3000, 8000, 8080, 8443, 49151, 65535)
REFUSED_PORTS = (
    *(1, 21, 22, 23, 25, 53, 80, 110, 143, 389, 442, 444, 445, 465, 587, 636, 873, 993, 1023),
    *(1433, 1521, 1719, 1720, 1723, 2049, 2375, 2376, 2379, 2380, 3306, 3389, 3659, 4045, 4190, 5060, 5061, 5432),
    *(5672, 5900, 6000, 6379, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 9042, 9200, 9300, 10080, 11211, 27017),
)


def check_port(url: str) -> None:
    rules.check_port(split_url(url, allow_http=True))


@pytest.mark.parametrize("scheme", ["https", "HTTPS", "http"])
def test_webhooks_go_to_port_443_or_one_from_1024(scheme: str) -> None:
    for port in ALLOWED_PORTS:
        check_port(f"{scheme}://receiver.example:{port}/hook")
    for port in set(REFUSED_PORTS) - ({80} if scheme == "http" else set()):
        with pytest.raises(Unprocessable) as refused:
            check_port(f"{scheme}://receiver.example:{port}/hook")
        assert [(detail.field, detail.reason) for detail in refused.value.details] == [("url", "port_not_allowed")]


@pytest.mark.parametrize(
    "url",
    [
        *("https://receiver.example", "https://receiver.example?a=b:22", "https://receiver.example/:22"),
        *("https://[2606:4700::22]/", "https://[2606:4700::22]:8443/", "https://bücher.example:8443/"),
        "http://a.example/",
    ],
)
def test_a_url_without_a_port_has_that_of_its_scheme(url: str) -> None:
    check_port(url)


# Failing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hours", "minutes", "columns", "expected"),
    [
        (71, 59, {"consecutive_failures": 20, "warned_hours": 48}, EndpointHealth.HEALTHY),
        (72, 0, {"consecutive_failures": 5}, EndpointHealth.HEALTHY),
        (72, 0, {"consecutive_failures": 6}, EndpointHealth.FAILED),
        (72, 0, {"consecutive_failures": 6, "last_success_at": NOON + HOUR}, EndpointHealth.FAILING),
        (72, 0, {"consecutive_failures": 6, "last_success_at": NOON - HOUR}, EndpointHealth.FAILED),
        (72, 0, {"consecutive_failures": 6, "enabled_at": NOON + 60 * HOUR}, EndpointHealth.FAILING),
        (72, 0, {"consecutive_failures": 6, "enabled_at": NOON + 60 * HOUR, "warned_hours": 1}, EndpointHealth.HEALTHY),
        (500, 0, {"consecutive_failures": 600, "status": "disabled"}, EndpointHealth.HEALTHY),
        (0, 59, {}, EndpointHealth.HEALTHY),
        (1, 0, {}, EndpointHealth.FAILING),
        (1, 0, {"consecutive_failures": 5}, EndpointHealth.HEALTHY),
        (23, 59, {"warned_hours": 1}, EndpointHealth.HEALTHY),
        (24, 0, {"warned_hours": 1}, EndpointHealth.FAILING),
        (24, 0, {"consecutive_failures": 5}, EndpointHealth.HEALTHY),
        (47, 59, {"warned_hours": 24}, EndpointHealth.HEALTHY),
        (48, 0, {"warned_hours": 24}, EndpointHealth.FAILING),
        (71, 59, {"warned_hours": 0}, EndpointHealth.FAILING),
    ],
)
def test_an_endpoint_is_judged_by_time_and_failures(
    hours: int, minutes: int, columns: dict[str, Any], expected: EndpointHealth
) -> None:
    at = NOON + hours * HOUR + minutes * HOUR // 60
    assert rules.assess(ROW._replace(**columns), at, AFTER)[0] is expected


@pytest.mark.parametrize(("hours", "warned"), [(24, 24), (47, 24), (48, 48), (71, 48), (72, 72)])
def test_a_warning_names_the_hour_that_was_reached(hours: int, warned: int) -> None:
    assert rules.assess(ROW, NOON + hours * HOUR, AFTER)[1] == warned


def test_warnings_come_at_thirds_of_whatever_time_is_allowed() -> None:
    second = 1_000_000
    verdicts = [rules.assess(ROW, NOON + seconds * second, 9) for seconds in (2, 3, 6, 9)]
    assert verdicts == [
        (EndpointHealth.FAILING, 1),
        (EndpointHealth.FAILING, 24),
        (EndpointHealth.FAILING, 48),
        (EndpointHealth.FAILED, 72),
    ]


@given(st.integers(0, 4), st.floats(0, 1))
def test_every_wait_exceeds_the_table_by_at_most_a_twentieth(failed: int, jitter: float) -> None:
    outcome = rules.after_failure(DELIVERY._replace(attempt_count=failed), NOON, WAITS, jitter)
    assert outcome.next_attempt_at is not None
    wait, tabled = outcome.next_attempt_at - NOON, (60, 300, 1800, 7200, 28800)[failed] * 1_000_000
    assert tabled <= wait <= 1.05 * tabled


def test_a_delivery_that_starts_over_waits_like_a_new_one() -> None:
    waits = []
    for attempt_count in range(4, 9):
        outcome = rules.after_failure(DELIVERY._replace(attempt_count=attempt_count, max_attempts=10), NOON, WAITS, 0.0)
        assert outcome.next_attempt_at is not None
        waits.append((outcome.next_attempt_at - NOON) // 1_000_000)
    assert tuple(waits) == WAITS
    last = rules.after_failure(DELIVERY._replace(attempt_count=9, max_attempts=10), NOON, WAITS, 0.0)
    assert last.status == "dead"


@pytest.mark.parametrize(
    ("text", "excerpt"),
    [(None, None), ("", ""), ("a" * 2000, "a" * 1024), ("a\0b", "ab"), ("a\ud800b", "a?b"), ("ø" * 1025, "ø" * 1024)],
)
def test_an_excerpt_holds_nothing_that_a_database_could_not(text: str | None, excerpt: str | None) -> None:
    assert rules.excerpt(text) == excerpt


def test_a_delivery_has_the_same_id_in_every_release() -> None:
    event_id, endpoint_id = "01900000-1234-7abc-8def-0123456789ab", "01900000-5678-7abc-9def-ba9876543210"
    assert rules.delivery_id(event_id, endpoint_id) == "01900000-1234-8283-a1fd-2f980e1090ed"
