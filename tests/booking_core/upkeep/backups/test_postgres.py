"""A backup is restored by programs that are newer than the server."""

import io

import pytest

from booking_core.upkeep.backups.postgres import copy_script

HEAD = b"SET statement_timeout = 0;\nSET lock_timeout = 0;\n"
NEWER = b"SET transaction_timeout = 0;\n"
REST = b"SELECT pg_catalog.set_config('search_path', '', false);\nCOPY t (a) FROM stdin;\n" + NEWER + b"\\.\n"


@pytest.mark.parametrize(("server_major", "sent"), [(16, HEAD + REST), (17, HEAD + NEWER + REST)])
def test_a_setting_that_the_server_does_not_have_is_left_out_of_the_head_alone(server_major: int, sent: bytes) -> None:
    to = io.BytesIO()
    copy_script(io.BytesIO(HEAD + NEWER + REST), to, server_major)
    assert to.getvalue() == sent
