"""The programs of PostgreSQL are found by their version, and their scripts are read."""

import io
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from support.databases.databases import connect

from booking_core.base.settings import Settings
from booking_core.upkeep.backups import BackupError, postgres
from booking_core.upkeep.backups.postgres import copy_script

HEAD = b"SET statement_timeout = 0;\nSET lock_timeout = 0;\n"
NEWER = b"SET transaction_timeout = 0;\n"
REST = b"SELECT pg_catalog.set_config('search_path', '', false);\nCOPY t (a) FROM stdin;\n" + NEWER + b"\\.\n"
SCRIPT = b"""SET standard_conforming_strings = on;

COPY public.alembic_version (version_num) FROM stdin;
0012
\\.


COPY "of ""a"" tenant".idempotency (organization_id, key, "order") FROM stdin;
1\tv2.abcdefgh.x
2\tCOPY public.other (a) FROM stdin;
3\tv2.01234567.y
\\.
COPY public.bookings (note) FROM stdin;
v2.aaaaaaaa.x
\\.
"""


@pytest.mark.parametrize(("server_major", "sent"), [(16, HEAD + REST), (17, HEAD + NEWER + REST)])
def test_a_setting_unknown_to_the_server_is_omitted_only_in_the_head(server_major: int, sent: bytes) -> None:
    to = io.BytesIO()
    copy_script(io.BytesIO(HEAD + NEWER + REST), to, server_major)
    assert to.getvalue() == sent


def test_the_version_of_the_server_is_its_first_number(postgres_server: str) -> None:
    with connect(postgres_server) as connection, postgres._target(Settings(database_url=postgres_server)) as target:
        assert target.server_major == connection.info.server_version // 10_000


def test_a_script_has_schemas_a_revision_and_key_ids() -> None:
    schemas, content = postgres._read(SCRIPT.splitlines(keepends=True))
    assert (schemas, content.revision) == ({"public", 'of "a" tenant'}, "0012")
    assert {kind.name: ids for kind, ids in content.key_ids.items()} == {"stored_answer": {"abcdefgh", "01234567"}}


def install(folder: Path) -> str:
    folder.mkdir()
    (folder / "pg_dump").write_text("")
    (folder / "pg_dump").chmod(0o755)
    return str(folder)


def test_programs_beside_the_server_are_taken_before_those_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", install(tmp_path / "path"))
    beside = str(tmp_path / "server")
    assert postgres.find_programs(beside) == tmp_path / "path"
    install(tmp_path / "server")
    assert postgres.find_programs(beside) == tmp_path / "server"


def test_missing_programs_are_named_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_FOLDERS", ())
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BackupError, match="pg_dump, pg_restore and psql were not found") as refused:
        postgres.find_programs("")
    assert "postgresql-client" in str(refused.value.hint)


@pytest.mark.parametrize(
    "url", ["postgresql://ada:hunter2@db:5433/booking", "postgresql://ada@db:5433/booking?password=hunter2"]
)
def test_the_password_is_an_environment_variable_and_no_argument(url: str) -> None:
    with postgres.connection(url) as (conninfo, environment):
        assert conninfo_to_dict(conninfo) == {"user": "ada", "host": "db", "port": "5433", "dbname": "booking"}
        assert environment["PGPASSWORD"] == "hunter2"


def test_a_secret_without_a_variable_has_a_temporary_private_file() -> None:
    with postgres.connection("postgresql://ada@db/booking?sslkey=k&sslpassword=hun%20ter2") as (conninfo, environment):
        assert conninfo_to_dict(conninfo)["service"] == "booking"
        assert "ter2" not in conninfo
        file = Path(environment["PGSERVICEFILE"])
        assert (file.read_text(), file.stat().st_mode & 0o777) == ("[booking]\nsslpassword=hun ter2\n", 0o600)
    assert not file.exists()


@pytest.mark.parametrize(("parameter", "variable"), [("&service=other", ""), ("", "other")])
def test_a_secret_without_a_variable_is_refused_beside_another_service(
    monkeypatch: pytest.MonkeyPatch, parameter: str, variable: str
) -> None:
    if variable:
        monkeypatch.setenv("PGSERVICE", variable)
    url = f"postgresql://db/booking?sslpassword=hunter2{parameter}"
    with pytest.raises(BackupError, match="sslpassword beside a service"), postgres.connection(url):
        pass
