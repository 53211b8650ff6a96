"""Settings are read once, strictly, and shown without their secrets."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.world.world import NEWER_SECRET, SECRET

from booking_core.base.settings import RateLimit, SettingError, Settings


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
        ("SECRET_KEY", " , "),
        ("PUBLIC_URL", "booking.example"),
        ("PUBLIC_URL", "https://"),
        ("PUBLIC_URL", "https://[::1"),
        ("PUBLIC_URL", "https://booking.example:99999"),
        ("RATE_LIMIT", "600"),
        ("RATE_LIMIT", "many/60"),
        ("RATE_LIMIT", "10/0"),
        ("RATE_LIMIT_STORE", "memcached://localhost"),
        ("RATE_LIMIT_STORE", "redis://localhost:many"),
        ("SMTP_URL", "mail.example"),
        ("WEBHOOK_WAITS", "60,300"),
        ("WEBHOOK_WAITS", "a,b,c,d,e"),
        ("WEBHOOK_WAITS", "60,300,1800,7200,9999999999999"),
        ("WEBHOOK_CA_FILE", "/nowhere/ca.pem"),
        pytest.param("WEBHOOK_CA_FILE", __file__, id="WEBHOOK_CA_FILE-no certificate"),
        ("WEBHOOK_DEADLINE", "0"),
        ("WEBHOOK_DEADLINE", "nan"),
        ("WEBHOOK_DISABLE_AFTER", "-1"),
        ("WEBHOOK_ALLOW_HTTP", "perhaps"),
        ("WEBHOOK_ALLOW_CIDRS", "127.0.0.1/8"),
        ("EVENT_RETENTION_DAYS", "0"),
        ("GUEST_RETENTION_DAYS", "-1"),
        ("EVENT_RETENTION_DAYS", "999999999"),
        ("DELIVERY_RETENTION_DAYS", "9" * 5_000),
        ("PENDING_MINUTES", "half"),
        ("PENDING_MINUTES", "999999999999"),
        ("LOG_FORMAT", "xml"),
        ("METRICS_ADDRESS", "localhost"),
        ("METRICS_ADDRESS", "localhost:99999"),
        ("METRICS_TOKEN", "too short"),
        ("SHUTDOWN_DELAY", "-1"),
        ("SHUTDOWN_DELAY", "soon"),
    ],
)
def test_one_that_cannot_be_understood_is_named_in_one_line(name: str, text: str) -> None:
    with pytest.raises(SettingError) as caught:
        read(**{name: text})
    assert str(caught.value).startswith(f"BOOKING_{name} ")
    assert "\n" not in str(caught.value)


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
    shown = read(**{name: text}).shown()
    assert shown[f"BOOKING_{name}"] == masked
    assert "hunter2" not in repr(shown)
    assert SECRET not in repr(shown)


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
    ("given", "warns"),
    [
        ({"BOOKING_DATABASE_URL": "postgresql://localhost/booking"}, True),
        ({"BOOKING_DATABASE_URL": "postgresql://localhost/booking", "BOOKING_MAIL_DIR": "/var/mail"}, False),
        ({"BOOKING_DATABASE_URL": "postgresql://localhost/booking", "BOOKING_SMTP_URL": "smtp://localhost"}, False),
        ({}, False),
    ],
)
def test_postgresql_without_mail_server_or_folder_warns_about_unsent_mail(given: dict[str, str], warns: bool) -> None:
    settings = Settings.from_environment(given)
    assert settings.has_mail_transport is not warns
    assert [warning.startswith("no mail is sent: ") for warning in settings.warnings()] == [True] * warns
