"""The cells of the settings, and the names that they keep."""

import contextlib
import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import func, select
from support.databases.cells import OWN_DATABASE, create, settings_of_cells
from support.world.world import SECRET

from booking_core.base import database_urls, guest_links, tokens
from booking_core.base.context import Installation
from booking_core.base.guest_links import ManageLinks
from booking_core.base.settings import CellAddress, SettingError, Settings
from booking_core.base.tokens import SecretKeys
from booking_core.db import migrate
from booking_core.db.engine import Database
from booking_core.db.postgres import SessionSettings
from booking_core.db.statements import Statement
from booking_core.db.tables import organizations
from booking_core.upkeep import cells
from booking_core.upkeep.cells import FIRST, CellError, CellState

ENVIRONMENT = {"BOOKING_DATABASE_URL": "postgresql://user:word@one,two/booking", "BOOKING_SECRET_KEY": SECRET}


@pytest.fixture(scope="module")
def settings(new_database_url: Callable[[str], str]) -> Settings:
    return settings_of_cells(new_database_url, schemas=("c2",))


def state_of(settings: Settings, name: str) -> CellState:
    cell = cells.get(settings, name)
    with contextlib.closing(Database(cell.settings.database_url)) as database:
        return cells.state_of(cell, database)


def test_a_cell_without_a_url_is_a_schema_of_the_first_database() -> None:
    settings = Settings.from_environment({**ENVIRONMENT, "BOOKING_CELLS": "c2  eu=postgresql://host/other"})
    assert [cell.name for cell in cells.every(settings)] == [FIRST, "c2", "eu"]
    assert cells.get(settings, "c2").schema == "booking_c2"
    assert "one" in cells.get(settings, "c2").settings.database_url
    assert cells.get(settings, "eu").settings.database_url == "postgresql://host/other"
    assert cells.get(settings, "c2").settings.installation().cell == "c2"
    assert cells.get(settings, FIRST).settings.installation().cell == ""


def test_the_setting_of_one_cell_makes_it_the_database_of_the_process() -> None:
    settings = Settings.from_environment({**ENVIRONMENT, "BOOKING_CELLS": "c2", "BOOKING_CELL": "c2"})
    assert [cell.name for cell in cells.every(settings)] == ["c2"]
    assert "booking_c2" in settings.database_url


@pytest.mark.parametrize("text", ["a", "C2", "c2=sqlite:///x.db", "c2 c2", "c2=postgresql://h/d?schema=A-b"])
def test_a_setting_that_names_no_cell_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="BOOKING_CELLS"):
        Settings.from_environment({**ENVIRONMENT, "BOOKING_CELLS": text})


def test_cells_need_postgresql_and_a_cell_its_name() -> None:
    with pytest.raises(SettingError, match="PostgreSQL"):
        Settings.from_environment({"BOOKING_CELLS": "c2"})
    with pytest.raises(SettingError, match="c3"):
        Settings.from_environment({**ENVIRONMENT, "BOOKING_CELLS": "c2", "BOOKING_CELL": "c3"})


def test_passwords_of_cells_are_not_shown() -> None:
    settings = Settings.from_environment(
        {**ENVIRONMENT, "BOOKING_CELLS": "eu=postgresql://a:secret@h/d|postgresql://a:secret@i/d"}
    )
    assert "secret" not in settings.shown()["BOOKING_CELLS"]
    assert settings.shown()["BOOKING_CELLS"].startswith("eu=postgresql://a:***@h/d|")


def test_a_cell_has_the_tables_of_this_release_in_its_own_schema(settings: Settings) -> None:
    assert state_of(settings, "c2") is CellState.READY
    assert state_of(settings, OWN_DATABASE) is CellState.READY
    assert migrate.differences(cells.get(settings, "c2").settings.database_url) == []
    assert not create(cells.get(settings, "c2"))


def test_a_cell_that_was_not_created_is_missing(settings: Settings) -> None:
    assert state_of(replace(settings, cells=(CellAddress("c9"),)), "c9") is CellState.MISSING


def test_the_database_of_another_cell_is_refused(settings: Settings) -> None:
    swapped = replace(settings, cells=(CellAddress("c9", settings.of_cell("c2").database_url),))
    with pytest.raises(CellError, match="the database of the cell c2"):
        state_of(swapped, "c9")
    with pytest.raises(CellError, match="the database of the cell c2"):
        create(cells.get(swapped, "c9"))


def test_rows_of_a_cell_are_in_no_other(settings: Settings, clock: object) -> None:
    from support.databases.cells import world_in

    count = Statement(select(func.count()).select_from(organizations))
    with world_in(cells.get(settings, "c2"), clock) as world:  # type: ignore[arg-type]
        assert world.database.read(lambda tx: tx.first(count)) == (1,)
    for name in (FIRST, OWN_DATABASE):
        with contextlib.closing(Database(cells.get(settings, name).settings.database_url)) as database:
            assert database.read(lambda tx: tx.first(count)) == (0,)


def test_a_key_of_a_later_cell_names_it_in_the_usual_format() -> None:
    texts = [tokens.new_api_key("c2") for _ in range(50)]
    assert all(tokens.is_api_key(text) and tokens.cell_of_api_key(text) == "c2" for text in texts)
    assert len({tokens.api_key_prefix(text) for text in texts}) == len(texts)
    for text in texts:
        assert text.endswith(tokens._base62(zlib.crc32(text[:-6].encode()), 6))


def test_a_key_of_the_first_cell_never_names_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter("00c2".rjust(34, "x") + "y" * 34)
    monkeypatch.setattr(tokens.secrets, "choice", lambda _: next(drawn))
    assert tokens.new_api_key().startswith("svc_" + "y" * 34)


def test_a_link_of_a_later_cell_opens_with_or_without_its_name() -> None:
    installation = Installation(SecretKeys(SECRET), cell="c2")
    organization_id, booking_id = tokens.new_id(), tokens.new_id()
    link = ManageLinks(installation, organization_id).make(booking_id, installation.secret_keys.first_id)
    assert link is not None
    token = link.rpartition("/")[2]
    assert guest_links.organization_and_cell(token) == (organization_id, "c2")
    for spelling in (token, token.removesuffix("-c2")):
        opened = guest_links.open_token(installation.secret_keys, spelling)
        assert opened is not None
        assert (opened.organization_id, opened.subject_id) == (organization_id, booking_id)
    for spelling in (f"{token}x", f"{token}-c2", token.removesuffix("2")):
        assert guest_links.open_token(installation.secret_keys, spelling) is None
        assert guest_links.organization_and_cell(spelling) is None


def test_the_session_and_each_pooled_transaction_set_the_schema() -> None:
    session, none = SessionSettings(1, 1, schema="booking_c2"), SessionSettings(1, 1)
    assert "SET search_path = 'booking_c2'" in session.of_session()
    assert b"set_config('search_path', 'booking_c2', true)" in session.of_transaction()
    assert b"set_config('search_path', NULL, true)" not in session.of_transaction()
    assert "search_path" not in none.of_session()
    assert b"set_config('search_path', NULL, true)" in none.of_transaction()


def test_a_schema_is_no_parameter_of_libpq() -> None:
    url = database_urls.parse("postgresql://one,two/booking?schema=booking_c2&sslmode=require")
    assert database_urls.schema_of(url) == "booking_c2"
    assert "schema" not in database_urls.parameters(url)
    with pytest.raises(ValueError, match="schema"):
        database_urls.schema_of(database_urls.parse("postgresql://one/booking?schema=a;b"))
