"""The rows of a script of `pg_restore` are read as they were stored."""

from booking_core.upkeep.backups import copy_format

SCRIPT = b"""--
-- PostgreSQL database dump
--
SET standard_conforming_strings = on;

COPY public.alembic_version (version_num) FROM stdin;
0012
\\.


COPY "of ""a"" tenant".idempotency (organization_id, key, "order") FROM stdin;
1\ta\\\\b\\tc\t\\N
2\t\t\xc3\xa5
\\.
"""


def test_rows_have_their_schema_their_table_and_their_unescaped_values() -> None:
    assert list(copy_format.rows(SCRIPT.splitlines(keepends=True))) == [
        ("public", "alembic_version", {"version_num": "0012"}),
        ('of "a" tenant', "idempotency", {"organization_id": "1", "key": "a\\b\tc", "order": None}),
        ('of "a" tenant', "idempotency", {"organization_id": "2", "key": "", "order": "å"}),
    ]


def test_a_script_that_ends_within_a_block_gives_the_rows_before_its_end() -> None:
    lines = SCRIPT.splitlines(keepends=True)[:7]
    assert [row for _, _, row in copy_format.rows(lines)] == [{"version_num": "0012"}]
