"""The previous release on the schema of a newer one, as its processes meet it while a deployment is upgraded.

The newer schema is this release's schema with the additive revisions of the test.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url
from support.serving.releases import COLUMN, INDEX, TABLE, newer_release, previous_release

from booking_core.db import migrate, revisions

pytestmark = pytest.mark.exhaustive

SUITE = ("tests/contract/test_bookings.py", "tests/contract/test_webhooks.py", "tests/contract/test_lists.py")
CHOSEN = "postgresql and (not test_lists or events) and not 20_000 and not pages_of_one"
"""The contract of bookings, webhooks and the feed, without the tests of many rows. SQLite has one process, which
upgrades its file before it serves it."""
PLUGIN = '''
import psycopg
from sqlalchemy.engine import make_url
from booking_core.db import migrate

def copy_upgraded(url, *_):
    """Make the database a copy of the one that the newer release has upgraded."""
    name = make_url(url).database
    with psycopg.connect("{server}", autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {{name}}")
        connection.execute(f"CREATE DATABASE {{name}} TEMPLATE {template}")
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("{head}",)]

migrate.upgrade = copy_upgraded
'''


def test_the_suite_of_the_previous_release_passes_on_a_newer_schema(
    new_database_url: Callable[[str], str], postgres_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (previous_folder := tmp_path / "previous").mkdir()
    (newer_folder := tmp_path / "newer").mkdir()
    previous, url = previous_release(previous_folder), new_database_url("postgresql")
    newer_release(newer_folder, monkeypatch)(COLUMN, INDEX, TABLE)
    migrate.upgrade(url)
    text = PLUGIN.format(server=postgres_server, template=make_url(url).database, head=revisions.head())
    (previous_folder / "newer_schema.py").write_text(text)
    options = ("-p", "newer_schema", "-p", "no:cacheprovider", "-q", "-x", "-k", CHOSEN)
    done = previous.run("-m", "pytest", *options, *SUITE, BOOKING_TEST_DATABASE_URL=postgres_server)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert int(done.stdout.rpartition(" passed")[0].split()[-1]) > 60, done.stdout[-500:]
