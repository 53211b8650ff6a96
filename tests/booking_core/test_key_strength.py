"""The first secret key must hold 32 bytes, in base64 or hexadecimal."""

import base64
import random
from collections.abc import Callable

import pytest

from booking_core.base.settings import SettingError, Settings
from booking_core.base.tokens import is_strong

KEYS = 5_000
WEAK = (
    "changeme",
    "changeme" * 8,
    "a" * 100,
    "0" * 62 + "ff",
    "deadbeef" * 8,
    "a sentence that is no base64, however long it is",
)


@pytest.mark.parametrize(
    "write",
    [
        lambda data: base64.b64encode(data).decode(),
        bytes.hex,
        lambda data: data.hex().upper(),
        lambda data: base64.urlsafe_b64encode(data).rstrip(b"=").decode(),
    ],
    ids=["openssl rand -base64 32", "openssl rand -hex 32", "upper case", "secrets.token_urlsafe(32)"],
)
def test_every_key_of_32_random_bytes_is_strong(write: Callable[[bytes], str]) -> None:
    source = random.Random(4)
    made = [write(source.randbytes(32)) for _ in range(KEYS)]
    assert [key for key in made if not is_strong(key)] == []


@pytest.mark.parametrize("size", [0, 8, 16, 24, 31])
def test_fewer_bytes_are_weak_in_every_form(size: int) -> None:
    data = random.Random(5).randbytes(size)
    for key in (data.hex(), base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode().rstrip("=")):
        assert not is_strong(key)


def test_nine_different_characters_are_enough() -> None:
    assert is_strong("012345678" * 8)
    assert not is_strong("01234567" * 8)


@pytest.mark.parametrize("key", WEAK)
def test_one_line_refuses_a_weak_first_key_and_shows_the_command(key: str) -> None:
    with pytest.raises(SettingError) as refused:
        Settings.from_environment({"BOOKING_SECRET_KEY": key})
    message = str(refused.value)
    assert message.startswith("BOOKING_SECRET_KEY ")
    assert "openssl rand -base64 32" in message
    assert "\n" not in message
    assert key not in message


def test_a_weak_older_key_still_opens_and_has_a_warning() -> None:
    strong = random.Random(6).randbytes(32).hex()
    settings = Settings.from_environment({"BOOKING_SECRET_KEY": f"{strong}, changeme"})
    (warning,) = settings.secret_key_warnings()
    assert "key 2 of the list" in warning
    assert "changeme" not in warning
    assert Settings.from_environment({"BOOKING_SECRET_KEY": strong}).secret_key_warnings() == []
