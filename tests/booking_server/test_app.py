"""The application refuses to start where it could not work."""

import logging
from contextlib import closing
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from support.world.checkouts import configure
from support.world.operations import Operations
from support.world.world import NEWER_SECRET, SECRET, FixedClock, make_world

from booking_core.base.errors import Unavailable
from booking_core.base.settings import SettingError, Settings
from booking_core.db.engine import Database
from booking_server.app import create_app

pytestmark = pytest.mark.one_database


def test_a_start_opens_one_connection(shared_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(database_url=shared_database_url, secret_key=SECRET, secret_key_check="warn")
    with closing(Database(shared_database_url)) as database:
        connect, opened = database.driver.connect, []
        monkeypatch.setattr(
            database.driver, "connect", lambda *args, **options: opened.append(1) or connect(*args, **options)
        )
        monkeypatch.setattr("booking_server.app.Database", lambda url: database)
        create_app(settings)
        assert len(opened) == 1


@pytest.mark.parametrize("has_account", [False, True])
def test_a_start_opens_the_client_of_stripe_where_cards_are_taken(
    fresh_database_url: str, monkeypatch: pytest.MonkeyPatch, *, has_account: bool
) -> None:
    """Later its library would be imported beside the requests of all organizations."""
    opened: list[float] = []
    monkeypatch.setattr("booking_server.adapters.stripe_intents._open_http", opened.append)
    with closing(Database(fresh_database_url)) as database:
        world = make_world(database, FixedClock())
        if has_account:
            configure(world)
    settings = Settings(database_url=fresh_database_url, secret_key=SECRET)
    with TestClient(create_app(settings)):
        assert len(opened) == has_account


def test_an_application_of_one_database_refuses_to_serve_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/gone", "CELLS": "c2"}.items():
        monkeypatch.setenv(f"BOOKING_{name}", value)
    with pytest.raises(SettingError, match=r"start booking_server\.cells:create_app"):
        create_app()
    monkeypatch.setenv("BOOKING_CELL", "c2")
    with pytest.raises(Unavailable):  # of its database
        create_app()


@pytest.fixture
def sealed(fresh_database_url: str) -> str:
    """Return the URL of a database with a gift card whose code is sealed with SECRET."""
    with closing(Database(fresh_database_url)) as database:
        Operations(make_world(database, FixedClock())).issue(500)
    return fresh_database_url


@pytest.mark.exhaustive(but="sqlite-in use")
@pytest.mark.parametrize("keys", [SECRET, f"{NEWER_SECRET},{SECRET}"], ids=["in use", "former"])
def test_a_secret_key_that_opens_the_database_is_accepted(sealed: str, keys: str) -> None:
    with TestClient(create_app(Settings(database_url=sealed, secret_key=keys))) as client:
        assert client.get("/api/v1/openapi.json").status_code == 200


def test_a_wrong_secret_key_is_refused(sealed: str) -> None:
    with pytest.raises(SettingError, match=r"does not open .+: gift card codes \(sealed with key .+\)\. Put the key"):
        create_app(Settings(database_url=sealed, secret_key=NEWER_SECRET))


def test_a_wrong_secret_key_is_logged_if_a_warning_is_asked_for(sealed: str, caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(database_url=sealed, secret_key=NEWER_SECRET, secret_key_check="warn")
    with caplog.at_level(logging.WARNING, "booking.serve"), TestClient(create_app(settings)) as client:
        assert client.get("/api/v1/openapi.json").status_code == 200
    assert [record.getMessage() for record in caplog.records if "gift card codes" in record.getMessage()]


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_missing_key_file_is_refused_before_another_key_is_made(sealed: str) -> None:
    settings = Settings(database_url=sealed)
    with pytest.raises(SettingError, match="BOOKING_SECRET_KEY is not set"):
        create_app(settings)
    assert settings.secret_file is not None
    assert not Path(settings.secret_file).exists()
