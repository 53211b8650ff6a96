"""URLs with several hosts, in SQLAlchemy's spellings and in libpq's."""

import pytest
from sqlalchemy.exc import ArgumentError

from booking_core.base import database_urls
from booking_core.base.settings import SettingError, Settings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql:///booking", (None, None, None)),
        ("postgresql://one/booking", ("one", None, None)),
        ("postgresql://[::1]:5433/booking", ("::1", None, "5433")),
        ("postgresql://u:p@one,two/booking", ("one,two", None, None)),
        ("postgresql://u:p@one:1,two:2/booking", ("one,two", None, "1,2")),
        ("postgresql://one:1,two/booking", ("one,two", None, "1,")),
        ("postgresql://[::1]:1,[::2]:2/booking", ("::1,::2", None, "1,2")),
        ("postgresql://one:1,two:2?dbname=booking", ("one,two", None, "1,2")),
        ("postgresql:///booking?host=one,two&port=1,2", ("one,two", None, "1,2")),
        ("postgresql:///booking?host=one,two&port=1", ("one,two", None, "1")),
        ("postgresql:///booking?host=one:1&host=two:2", ("one,two", None, "1,2")),
        ("postgresql:///booking?host=one&host=two", ("one,two", None, None)),
        ("postgresql:///booking?host=/run/a,/run/b", ("/run/a,/run/b", None, None)),
        ("postgresql:///booking?hostaddr=127.0.0.1,127.0.0.2", (None, "127.0.0.1,127.0.0.2", None)),
        ("postgresql://one,two/booking?hostaddr=127.0.0.1,127.0.0.2", ("one,two", "127.0.0.1,127.0.0.2", None)),
    ],
)
def test_several_hosts_are_understood_in_every_spelling(
    text: str, expected: tuple[str | None, str | None, str | None]
) -> None:
    named = database_urls.parameters(database_urls.parse(text))
    assert (named.get("host"), named.get("hostaddr"), named.get("port")) == expected
    assert named["dbname"] == "booking"


def test_several_hosts_are_searched_for_the_one_that_takes_writes() -> None:
    named = database_urls.parameters(database_urls.parse("postgresql://u:p%40@one,two/booking?sslmode=require"))
    assert named == {
        "host": "one,two",
        "user": "u",
        "password": "p@",
        "dbname": "booking",
        "sslmode": "require",
        "target_session_attrs": "read-write",
    }
    own = database_urls.parse("postgresql://one,two/booking?target_session_attrs=any")
    assert database_urls.parameters(own)["target_session_attrs"] == "any"
    assert "target_session_attrs" not in database_urls.parameters(database_urls.parse("postgresql://one/booking"))


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://one,two/booking?port=1,2,3",
        "postgresql://one:0,two/booking",
        "postgresql://one:1,two:x/booking",
        "postgresql://one:99999/booking?host=a:99999",
        "postgresql:///booking?hostaddr=127.0.0.1&host=one,two",
        "postgresql://one,two/booking?target_session_attrs=writable",
        "postgresql://one:x/booking",
    ],
)
def test_hosts_that_cannot_be_understood_are_refused_by_the_settings(text: str) -> None:
    with pytest.raises(SettingError, match="BOOKING_DATABASE_URL"):
        Settings.from_environment({"BOOKING_DATABASE_URL": text})


def test_what_is_no_url_is_refused() -> None:
    with pytest.raises(ArgumentError):
        database_urls.parse("booking.db")
