"""Settings are read once, strictly, and shown without their secrets; misspelt variables; URLs of databases."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

import pytest
from sqlalchemy.exc import ArgumentError
from support.world.world import NEWER_SECRET, SECRET

from booking_cli.framework.environment import VARIABLES, misspelt
from booking_core.base import database_urls
from booking_core.base.settings import RateLimit, SettingError, Settings, variable


def read(**variables: str) -> Settings:
    return Settings.from_environment({f"BOOKING_{name}": value for name, value in variables.items()})


def test_everything_has_a_default() -> None:
    settings = read()
    assert settings.database_url == "sqlite:///booking.db"
    assert settings.rate_limit == RateLimit(600, 60)
    assert settings.webhook_waits_s == (60, 300, 1800, 7200, 28800)


def test_an_empty_variable_counts_as_absent() -> None:
    assert read(PUBLIC_URL="") == read()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("DATABASE_URL", "booking.db"),
        ("DATABASE_URL", "mysql://localhost/booking"),
        ("DATABASE_URL", "sqlite://"),
        ("DATABASE_URL", "sqlite:///:memory:"),
        ("DATABASE_URL", "postgresql://one,two/booking?port=1,2,3"),
        ("DATABASE_URL", "postgresql://one:0,two/booking"),
        ("DATABASE_URL", "postgresql://one:1,two:x/booking"),
        ("DATABASE_URL", "postgresql://one:99999/booking?host=a:99999"),
        ("DATABASE_URL", "postgresql:///booking?hostaddr=127.0.0.1&host=one,two"),
        ("DATABASE_URL", "postgresql://one,two/booking?target_session_attrs=writable"),
        ("DATABASE_URL", "postgresql://one:x/booking"),
        ("SECRET_KEY", " , "),
        ("PUBLIC_URL", "booking.example"),
        ("PUBLIC_URL", "https://"),
        ("PUBLIC_URL", "https://[::1"),
        ("PUBLIC_URL", "https://booking.example:99999"),
        ("PUBLIC_URL", "https://booking.example:0"),
        ("RATE_LIMIT", "600"),
        ("RATE_LIMIT", "many/60"),
        ("RATE_LIMIT", "10/0"),
        ("RATE_LIMIT_STORE", "memcached://localhost"),
        ("RATE_LIMIT_STORE", "redis://localhost:many"),
        ("SMTP_URL", "mail.example"),
        ("WEBHOOK_WAITS", "60,300"),
        ("WEBHOOK_WAITS", "a,b,c,d,e"),
        ("WEBHOOK_WAITS", "60,300,1800,7200,28800,28800"),
        ("WEBHOOK_WAITS", "60,300,1800,7200,3155760001"),
        ("WEBHOOK_WAITS", "-1,300,1800,7200,28800"),
        ("WEBHOOK_CA_FILE", "/nowhere/ca.pem"),
        pytest.param("WEBHOOK_CA_FILE", __file__, id="WEBHOOK_CA_FILE-no certificate"),
        ("WEBHOOK_DEADLINE", "0"),
        ("WEBHOOK_DEADLINE", "86400"),
        ("WEBHOOK_DEADLINE", "nan"),
        ("WEBHOOK_DISABLE_AFTER", "0"),
        ("WEBHOOK_DISABLE_AFTER", "3155760001"),
        ("WEBHOOK_ALLOW_HTTP", "perhaps"),
        ("WEBHOOK_ALLOW_CIDRS", "127.0.0.1/8"),
        ("EVENT_RETENTION_DAYS", "0"),
        ("GUEST_RETENTION_DAYS", "-1"),
        ("EVENT_RETENTION_DAYS", "36526"),
        ("DELIVERY_RETENTION_DAYS", "9" * 5_000),
        ("PENDING_MINUTES", "half"),
        ("PENDING_MINUTES", "0"),
        ("PENDING_MINUTES", "52596001"),
        ("LOG_FORMAT", "xml"),
        ("METRICS_ADDRESS", "localhost"),
        ("METRICS_ADDRESS", "localhost:0"),
        ("METRICS_ADDRESS", "localhost:65536"),
        ("METRICS_TOKEN", "fifteen-letters"),
        ("METRICS_TOKEN", "a token of words"),
        ("SHUTDOWN_DELAY", "-1"),
        ("SHUTDOWN_DELAY", "86400"),
        ("SHUTDOWN_DELAY", "soon"),
    ],
)
def test_one_that_cannot_be_understood_is_named_in_one_line(name: str, text: str) -> None:
    with pytest.raises(SettingError) as caught:
        read(**{name: text})
    assert str(caught.value).startswith(f"BOOKING_{name} ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("rate_limit", "1/1", RateLimit(1, 1)),
        ("webhook_waits_s", "0,0,0,0,3155760000", (0, 0, 0, 0, 3_155_760_000)),
        ("webhook_disable_after_s", "1", 1),
        ("webhook_disable_after_s", "3155760000", 3_155_760_000),
        ("event_retention_days", "1", 1),
        ("guest_retention_days", "36525", 36_525),
        ("guest_retention_days", "off", None),
        ("pending_minutes", "52596000", 52_596_000),
        ("metrics_address", "65535", ("127.0.0.1", 65_535)),
        ("metrics_address", "[::1]:1", ("::1", 1)),
        ("metrics_token", "a-token-of-words", "a-token-of-words"),
        ("shutdown_delay_s", "0", 0.0),
    ],
    ids=str,
)
def test_a_value_at_its_bound_is_taken(name: str, text: str, value: object) -> None:
    assert getattr(Settings.from_environment({variable(name): text}), name) == value


@pytest.mark.parametrize("text", ["off", "OFF", "0", "0/60", "no"])
def test_the_rate_limit_can_be_turned_off(text: str) -> None:
    assert read(RATE_LIMIT=text).rate_limit is None
    assert read(RATE_LIMIT=text).shown()["BOOKING_RATE_LIMIT"] == "off"


@pytest.mark.parametrize(
    ("name", "text", "masked"),
    [
        ("DATABASE_URL", "postgresql://booking:hunter2@db/booking", "postgresql://booking:***@db/booking"),
        ("DATABASE_URL", "postgresql:///b?user=ada&password=hunter2", "postgresql:///b?password=***&user=ada"),
        ("DATABASE_URL", "postgresql:///b?host=d&sslpassword=hunter2", "postgresql:///b?host=d&sslpassword=***"),
        ("DATABASE_URL", "postgresql://u:hunter2@one:1,two:2/b", "postgresql://u:***@/b?host=one,two&port=1,2"),
        ("RATE_LIMIT_STORE", "redis://cache:6379/0?password=hunter2", "redis://cache:6379/0?password=***"),
        ("SECRET_KEY", f"{SECRET},hunter2", "***"),
        ("STRIPE_API_KEY", "sk_hunter2", "***"),
        ("STRIPE_API_KEY", "hunter2, and :// in it", "***"),
        ("WEBHOOK_ALLOW_HTTP", "no", "off"),
    ],
)
def test_a_setting_is_shown_without_its_secrets(name: str, text: str, masked: str) -> None:
    variables = read(**{name: text}).shown()
    assert variables[f"BOOKING_{name}"] == masked
    assert "hunter2" not in repr(variables)
    assert SECRET not in repr(variables)


def test_a_secret_key_that_looks_like_a_url_is_masked() -> None:
    assert "hunter2" not in repr(replace(read(), secret_key=f"postgresql://{SECRET}:hunter2@db").shown())


def test_a_shared_database_wants_a_secret_key() -> None:
    with pytest.raises(SettingError, match="BOOKING_SECRET_KEY is required"):
        read(DATABASE_URL="postgresql://db/booking").secret_keys()


def test_beside_an_sqlite_file_a_secret_key_is_made_once(tmp_path: Path) -> None:
    settings = read(DATABASE_URL=f"sqlite:///{tmp_path}/booking.db")
    sealed = settings.secret_keys().seal("purpose", b"text")
    assert settings.secret_keys().open("purpose", sealed) == b"text"
    assert (tmp_path / "booking.db.secret").stat().st_mode & 0o777 == 0o600


def test_a_comma_list_rotates_secret_keys() -> None:
    texts = (SECRET, f"{NEWER_SECRET}, {SECRET}", NEWER_SECRET)
    before, during, after = (read(SECRET_KEY=text) for text in texts)
    sealed = before.secret_keys().seal("purpose", b"text")
    assert during.secret_keys().open("purpose", sealed) == b"text"
    with pytest.raises(ValueError, match="no longer live"):
        after.secret_keys().open("purpose", sealed)


@pytest.mark.parametrize(
    ("environment", "warns"),
    [
        ({"BOOKING_DATABASE_URL": "postgresql://localhost/booking"}, True),
        ({"BOOKING_DATABASE_URL": "postgresql://localhost/booking", "BOOKING_MAIL_DIR": "/var/mail"}, False),
        ({"BOOKING_DATABASE_URL": "postgresql://localhost/booking", "BOOKING_SMTP_URL": "smtp://localhost"}, False),
        ({}, False),
    ],
)
def test_postgresql_without_mail_server_or_folder_warns_about_unsent_mail(
    environment: dict[str, str], warns: bool
) -> None:
    settings = Settings.from_environment(environment)
    assert settings.has_mail_transport is not warns
    assert [warning.startswith("no mail is sent: ") for warning in settings.warnings()] == [True] * warns


# URLs of databases ---------------------------------------------------------------------------------------------------


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
    parameters = database_urls.parameters(database_urls.parse(text))
    assert (parameters.get("host"), parameters.get("hostaddr"), parameters.get("port")) == expected
    assert parameters["dbname"] == "booking"


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("postgresql:///booking", ["local socket"]),
        ("postgresql:///booking?hostaddr=127.0.0.1", ["127.0.0.1"]),
        ("postgresql://one:1,two/booking", ["one:1", "two"]),
        ("postgresql:///booking?host=one,two&port=1", ["one:1", "two:1"]),
    ],
    ids=str,
)
def test_each_server_is_named_with_its_port(text: str, servers: list[str]) -> None:
    assert database_urls.servers(database_urls.parameters(database_urls.parse(text))) == servers


def test_several_hosts_are_searched_for_the_one_that_takes_writes() -> None:
    parameters = database_urls.parameters(database_urls.parse("postgresql://u:p%40@one,two/booking?sslmode=require"))
    assert parameters == {
        "host": "one,two",
        "user": "u",
        "password": "p@",
        "dbname": "booking",
        "sslmode": "require",
        "target_session_attrs": "read-write",
    }
    url = database_urls.parse("postgresql://one,two/booking?target_session_attrs=any")
    assert database_urls.parameters(url)["target_session_attrs"] == "any"
    assert "target_session_attrs" not in database_urls.parameters(database_urls.parse("postgresql://one/booking"))


def test_what_is_no_url_is_refused() -> None:
    with pytest.raises(ArgumentError):
        database_urls.parse("booking.db")


# Misspelt variables --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "warnings"),
    [
        ({"BOOKING_RATELIMIT": "1/1"}, ["BOOKING_RATELIMIT is not a setting; did you mean BOOKING_RATE_LIMIT?"]),
        ({"BOOKING_DATABSE_URL": "x"}, ["BOOKING_DATABSE_URL is not a setting; did you mean BOOKING_DATABASE_URL?"]),
        ({"BOOKING_PORT": "8080"}, ["BOOKING_PORT is not a setting"]),
        ({"BOOKING_RATELIMIT": ""}, []),
        ({"RATELIMIT": "1", "MY_BOOKING_RATELIMIT": "1"}, []),
        ({"BOOKING_YY": "1", "BOOKING_XX": "1"}, ["BOOKING_XX is not a setting", "BOOKING_YY is not a setting"]),
    ],
)
def test_a_variable_that_nothing_reads_is_named_with_the_nearest_setting(
    environment: Mapping[str, str], warnings: list[str]
) -> None:
    assert list(misspelt(environment)) == warnings


def test_every_setting_and_every_variable_of_the_client_is_one() -> None:
    names = [variable(setting.name) for setting in fields(Settings)] + [name for name, _, _ in VARIABLES]
    assert list(misspelt(dict.fromkeys(names, "x"))) == []
