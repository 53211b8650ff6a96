"""The first secret key must hold 32 random bytes; how many is estimated from above."""

import base64
import random

import pytest

from booking_core.key_strength import REQUIRED_BITS, entropy_bits, is_strong
from booking_core.settings import SettingError, Settings

KEYS = 5_000
WEAK = (
    "changeme",
    "changeme" * 8,
    "changeme," * 8,
    "a" * 100,
    "1234567890" * 20,
    "0123456789abcdef" * 8,
    "deadbeef" * 8,
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
    "qwertyuiopasdfghjklzxcvbnm1234567890!@#$%^&*()QWERTYUIOP",
    "password1password2password3password4password5",
    "P@ssw0rd!P@ssw0rd2P@ssw0rd3P@ssw0rd4P@ssw0rd5",
    "CorrectHorseBatteryStapleCorrectHorseBattery",
    "my-super-secret-production-key-for-booking-2026-do-not-share",
    "the quick brown fox jumps over the lazy dog and runs away from it all again",
    "0" * 62 + "ff",
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
def test_every_key_of_32_random_bytes_is_strong(write: object) -> None:
    assert callable(write)
    source = random.Random(4)
    made = [write(source.randbytes(32)) for _ in range(KEYS)]
    assert [key for key in made if not is_strong(key)] == []


@pytest.mark.parametrize("size", [8, 16, 24, 30])
def test_fewer_random_bytes_are_weak_in_every_form(size: int) -> None:
    data = random.Random(5).randbytes(size)
    for key in (data.hex(), base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()):
        assert entropy_bits(key) < REQUIRED_BITS


@pytest.mark.parametrize("key", WEAK)
def test_a_short_a_repeated_and_a_guessable_key_are_weak(key: str) -> None:
    assert entropy_bits(key) < REQUIRED_BITS


@pytest.mark.parametrize("key", ["", " ", "="])
def test_a_key_of_nothing_holds_nothing(key: str) -> None:
    assert not is_strong(key)


@pytest.mark.parametrize("key", WEAK)
def test_a_weak_first_key_is_refused_in_one_line_that_says_how_to_make_one(key: str) -> None:
    with pytest.raises(SettingError) as refused:
        Settings.from_environment({"BOOKING_SECRET_KEY": key})
    message = str(refused.value)
    assert message.startswith("BOOKING_SECRET_KEY ")
    assert "openssl rand -base64 32" in message
    assert "\n" not in message
    assert key not in message


def test_a_weak_key_behind_a_strong_one_still_opens_and_is_warned_about() -> None:
    strong = random.Random(6).randbytes(32).hex()
    settings = Settings.from_environment({"BOOKING_SECRET_KEY": f"{strong}, changeme"})
    (warning,) = settings.secret_key_warnings()
    assert "key 2 of the list" in warning
    assert "changeme" not in warning
    assert Settings.from_environment({"BOOKING_SECRET_KEY": strong}).secret_key_warnings() == []


def test_a_long_text_is_judged_at_once() -> None:
    assert not is_strong("ab" * 50_000)
