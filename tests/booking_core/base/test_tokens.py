"""Ids, keys and sealed values."""

import base64
import os
import random
import re
import uuid
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from booking_core.base import tokens
from booking_core.base.settings import SettingError, Settings
from booking_core.base.tokens import SecretKeys, is_strong


def test_an_id_is_a_version_7_uuid_and_later_ones_sort_later() -> None:
    ids = [tokens.new_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    for text in ids[:50]:
        parsed = uuid.UUID(text)
        assert (str(parsed), parsed.version, parsed.variant) == (text, 7, uuid.RFC_4122)
    assert ids == sorted(ids)


def test_ids_of_one_millisecond_stay_sorted_when_the_clock_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = [2_000_000_000_000_000_000]
    monkeypatch.setattr("booking_core.base.tokens.time.time_ns", lambda: now_ns[0])
    ids = [tokens.new_id() for _ in range(10_000)]
    assert ids[0].startswith("01d1a94a-2000-7")
    now_ns[0] -= 500_000_000
    ids += [tokens.new_id() for _ in range(10)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
    now_ns[0] -= 10**15
    assert tokens.new_id() < ids[0], "a clock that was set back for good is followed"


def test_ids_made_by_many_threads_at_once_are_all_different() -> None:
    with ThreadPoolExecutor(8) as threads:
        batches = threads.map(lambda _: [tokens.new_id() for _ in range(2000)], range(8))
        ids = [identifier for batch in batches for identifier in batch]
    assert len(set(ids)) == 16_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_does_not_repeat_the_random_digits_of_its_parent() -> None:
    tokens.random_hex(2)  # a block has been read
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, tokens.random_hex(24).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 24).decode() != tokens.random_hex(24)
    os.close(reading)
    os.close(writing)


def test_an_api_key_has_a_prefix_and_forty_checkable_characters() -> None:
    key = tokens.new_api_key()
    assert re.fullmatch(r"svc_[0-9A-Za-z]{40}", key)
    checksum = 0
    for character in key[-6:]:
        checksum = checksum * 62 + tokens._ALPHABET.index(character)
    assert checksum == zlib.crc32(key[:-6].encode())


@pytest.mark.parametrize(
    "other",
    [
        ("webhooks", "organization", "row"),
        *(("purpose", *row) for row in ((), ("organization",), ("organization", "other"), ("other", "row"))),
        ("purpose", "row", "organization"),
    ],
)
def test_a_value_sealed_for_one_purpose_and_row_opens_for_no_other(other: tuple[str, ...]) -> None:
    keys, (purpose, *row) = SecretKeys("one"), other
    sealed = keys.seal("purpose", b"text", "organization", "row")
    assert keys.open("purpose", sealed, "organization", "row") == b"text"
    with pytest.raises(tokens.DamagedValue, match="sealed for another row"):
        keys.open(purpose, sealed, *row)


def test_a_sealed_value_names_its_key_and_opens_with_no_other() -> None:
    keys = SecretKeys("new", "old")
    sealed = keys.seal("purpose", b"text", "row")
    assert tokens.sealing_key_id(sealed) == keys.first_id
    with pytest.raises(ValueError, match="no longer live"):
        keys.open("purpose", sealed.rpartition(".")[2], "row")
    with pytest.raises(tokens.DamagedValue):
        keys.open("purpose", sealed.replace(keys.ids[0], keys.ids[1]), "row")


def test_a_signer_signs_every_message_as_one_signature_at_a_time() -> None:
    old, new = SecretKeys("old"), SecretKeys("new")
    derived = old.derived(old.first_id, "links")
    keys = new.retaining({("links", old.first_id): derived})
    for key_id in (new.first_id, old.first_id):
        sign = keys.signer(key_id, "links")
        assert [sign(message) for message in (b"x", b"y", b"x")] == [
            keys.sign_with(key_id, "links", message) for message in (b"x", b"y", b"x")
        ]
    assert new.signer(old.first_id, "links") is None


def test_a_retained_key_verifies_and_signs_as_its_secret_key_did() -> None:
    old, new = SecretKeys("old"), SecretKeys("new")
    derived = old.derived(old.first_id, "links")
    retaining = new.retaining({("links", old.first_id): derived})
    assert retaining.sign_with(old.first_id, "links", b"x") == old.sign("links", b"x")
    assert retaining.signatures("links", b"x") == [new.sign("links", b"x"), old.sign("links", b"x")]
    assert retaining.signatures("cursor", b"x") == [new.sign("cursor", b"x")]
    assert new.sign_with(old.first_id, "links", b"x") is None
    with pytest.raises(ValueError, match="no longer live"):
        retaining.open("links", old.seal("links", b"text"))


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s[:-4] + "AAAA",
        lambda s: "A" + s[1:],
        lambda s: s[:20],
        lambda s: "?",
        lambda s: f"v2.{s}",
        lambda s: f"{s}\n",
    ],
    ids=["end", "start", "cut", "another text", "another version", "a line end"],
)
def test_a_changed_value_does_not_open(change: Callable[[str], str]) -> None:
    keys = SecretKeys("one")
    with pytest.raises(ValueError, match="sealed"):
        keys.open("purpose", change(keys.seal("purpose", b"some text to be kept")))


def test_a_sealed_value_opens_in_every_release() -> None:
    sealed = "v2.ac58160b.Sq+fzmSl9Q7KxRdUxJxGwxKJ15StSY/xhQQK9FHxXYQ="
    assert SecretKeys("one").open("purpose", sealed, "organization", "row") == b"text"


def test_the_same_text_is_never_sealed_alike() -> None:
    keys = SecretKeys("one")
    assert keys.seal("purpose", b"text") != keys.seal("purpose", b"text")


def test_a_retired_key_no_longer_signs() -> None:
    old, both = SecretKeys("old"), SecretKeys("new", "old")
    assert both.sign_with(old.first_id, "purpose", b"x") == old.sign("purpose", b"x")
    assert SecretKeys("new").sign_with(old.first_id, "purpose", b"x") is None
    assert both.signatures("purpose", b"x")[1] == old.sign("purpose", b"x")


def test_secret_keys_show_nothing_of_themselves() -> None:
    assert "hunter2" not in repr(SecretKeys("hunter2"))
    with pytest.raises(ValueError, match="at least one"):
        SecretKeys("")


# The strength of a secret key ----------------------------------------------------------------------------------------


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
    keys = [write(source.randbytes(32)) for _ in range(KEYS)]
    assert [key for key in keys if not is_strong(key)] == []


@pytest.mark.parametrize("size", [0, 8, 16, 24, 31])
def test_fewer_bytes_are_weak_in_every_form(size: int) -> None:
    data = random.Random(5).randbytes(size)
    for key in (data.hex(), base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode().rstrip("=")):
        assert not is_strong(key)


def test_nine_different_characters_are_enough() -> None:
    assert is_strong("012345678" * 8)
    assert not is_strong("01234567" * 8)


@pytest.mark.parametrize(
    ("key_ids", "neighbours_open", "missing"),
    [
        ("a", False, {"a"}),
        ("a", True, set()),
        ("aab", True, {"a"}),
        ([None, None], True, set()),
        ([None], False, {None}),
    ],
    ids=["none opens", "one is damaged", "two name a key", "some name no key", "none opens or names a key"],
)
def test_a_secret_key_is_missing_or_a_value_is_damaged(
    key_ids: Iterable[str | None], neighbours_open: bool, missing: set[str | None]
) -> None:
    assert tokens.missing_key_ids(key_ids, neighbours_open=neighbours_open) == missing


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
