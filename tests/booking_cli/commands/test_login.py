"""Logging in and out, profiles, and where a key is kept."""

import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends import fail
from keyring.errors import KeyringLocked, PasswordDeleteError
from support.serving.commands import Booking, Environment, OnTerminal
from support.world.world import World

from booking_cli.framework.exit_codes import ExitCode
from booking_core.models.scopes import Scope


class Ring(KeyringBackend):
    """A keyring in memory."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()
        self.passwords: dict[tuple[str, str], str] = {}
        self.is_locked = False

    def get_password(self, service: str, username: str) -> str | None:
        if self.is_locked:
            raise KeyringLocked("it is locked")
        return self.passwords.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        if self.is_locked:
            raise KeyringLocked("it is locked")
        self.passwords[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if (service, username) not in self.passwords:
            raise PasswordDeleteError
        del self.passwords[service, username]


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Ring:
    """Replace this machine's keyring for a test."""
    monkeypatch.setattr("keyring.core._keyring_backend", ring := Ring())
    return ring


@pytest.fixture
def no_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove this machine's keyring for a test."""
    monkeypatch.setattr("keyring.core._keyring_backend", fail.Keyring())


@pytest.fixture
def key(shop: World, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an API key of an organization; the environment has only the base URL."""
    monkeypatch.delenv("BOOKING_API_KEY")
    return shop.key(Scope.BOOKINGS_READ)


@pytest.fixture
def log_in(booking: Booking, key: str, typed: Callable[[str], None]) -> Booking:
    """Log in with that key."""

    def run(*argv: str, with_key: str = key) -> Any:
        typed(with_key + "\n")
        return booking("login", "--api-key-stdin", "-o", "json", *argv)

    return run


def test_a_login_is_tried_kept_in_the_keyring_and_used(
    booking: Booking, log_in: Booking, ring: Ring, key: str, shop: World, environment: Environment, tmp_path: Path
) -> None:
    result = log_in()
    assert result.code == 0, result.err
    assert result.json["organization"] == shop.organization.slug
    assert (result.json["profile"], result.json["kept_in"]) == ("default", "keyring")
    assert result.json["scopes"] == ["bookings:read"]
    assert ring.passwords == {("booking-cli", "default"): key}
    assert key not in result.out + "".join(path.read_text() for path in (tmp_path / "config").iterdir())
    environment("BOOKING_BASE_URL", "")
    assert booking("whoami", "--fields", "organization.slug").out == f"{shop.organization.slug}\n"


@pytest.mark.parametrize("place", ["ring", "no_ring"])
def test_a_key_that_opens_nothing_is_not_kept(
    log_in: Booking, place: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    ring = request.getfixturevalue(place)
    assert log_in(with_key="svc_" + "x" * 40).refusal == (ExitCode.AUTH, "api_key_invalid")
    assert ring is None or ring.passwords == {}
    assert not (tmp_path / "config").exists()


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (None, "the package keyring is not installed (pip install 'booking-cli[keyring]')."),
        (keyring, "this machine has none."),
    ],
)
@pytest.mark.usefixtures("no_ring")
def test_login_without_a_keyring_reports_the_file_of_the_key(
    booking: Booking,
    key: str,
    typed: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    module: Any,
    reason: str,
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", module)
    typed(key + "\n")
    result = booking("login", "--api-key-stdin", "-q")
    file = tmp_path / "config" / "keys" / "default.key"
    assert (result.code, f"kept_in\t{file}\n" in result.out) == (0, True)
    stored = f"It will be stored in {file}, which only you can read (mode 0600)."
    assert result.err == f"The key cannot be stored in a keyring: {reason} {stored}\n"
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == (f"{key}\n", 0o600)
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert booking("whoami").code == 0
    assert booking("logout").code == 0
    assert not file.exists()


@pytest.mark.usefixtures("no_ring")
def test_without_a_keyring_each_profile_has_a_file(log_in: Booking, tmp_path: Path) -> None:
    names = {Path(log_in("--profile", name).json["kept_in"]).name for name in ("home", "work")}
    assert names == {"home.key", "work.key"} == {path.name for path in (tmp_path / "config" / "keys").iterdir()}


@pytest.mark.usefixtures("no_ring")
def test_without_a_keyring_the_file_is_reported_before_the_key_is_typed(terminal: OnTerminal, key: str) -> None:
    code, screen = terminal("login", answer="\x04", at="API key (not shown): ")
    assert code == ExitCode.FAILED
    assert screen.replace("\n", "").index("default.key, which only you can read") < screen.index("API key (not shown)")
    assert "Nothing was typed." in screen
    assert "EOFError" not in screen


def test_a_locked_keyring_is_found_out_before_anything_is_asked(log_in: Booking, ring: Ring) -> None:
    ring.is_locked = True
    refused = log_in("--base-url", "http://127.0.0.1:1")
    assert refused.refusal == (ExitCode.USAGE, "no_keyring")
    assert "it is locked" in refused.error["message"]
    assert "--secret-file FILE" in refused.error["hint"]


@pytest.mark.usefixtures("no_ring")
def test_the_next_login_rewrites_the_key_file_and_logout_removes_it(
    booking: Booking, log_in: Booking, key: str, shop: World, tmp_path: Path
) -> None:
    file, second = tmp_path / "kept.key", shop.key()
    assert log_in("--secret-file", str(file)).json["kept_in"] == str(file)
    assert (stat.S_IMODE(file.stat().st_mode), file.read_text()) == (0o600, f"{key}\n")
    assert booking("whoami").code == 0
    assert log_in(with_key=second).json["kept_in"] == str(file)
    assert file.read_text() == f"{second}\n"
    assert booking("logout").code == 0
    assert not file.exists()


def test_a_login_never_overwrites_a_file(log_in: Booking, tmp_path: Path) -> None:
    file = tmp_path / "precious"
    file.write_text("precious")
    assert log_in("--secret-file", str(file)).error["code"] == "file_exists"
    assert file.read_text() == "precious"


def test_a_variable_that_wins_over_the_login_is_reported(
    booking: Booking, environment: Environment, key: str, ring: Ring, typed: Callable[[str], None]
) -> None:
    environment("BOOKING_API_KEY", "svc_other")
    typed(key + "\n")
    assert "BOOKING_API_KEY is set, and overrides this login" in booking("login", "--api-key-stdin").err


@pytest.mark.parametrize(
    ("argv", "hint"), [((), "pass --api-key-stdin"), (("--api-key-stdin",), "pass --base-url URL")]
)
@pytest.mark.usefixtures("ring")
def test_without_a_terminal_a_login_asks_nothing(
    booking: Booking, key: str, typed: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, argv: Any, hint: str
) -> None:
    typed(key + "\n")
    if argv:
        monkeypatch.delenv("BOOKING_BASE_URL")
    refused = booking("login", *argv, "-o", "json")
    assert (*refused.refusal, refused.error["hint"]) == (2, "input_required", hint)


@pytest.mark.parametrize("answer", [b"{}", b"[]", b'{"organization": {"slug": "x"}}'])
def test_a_key_is_not_kept_for_what_is_another_service(
    booking: Booking, canned: Any, typed: Callable[[str], None], tmp_path: Path, answer: bytes
) -> None:
    canned.answers = [(200, answer)]
    typed("svc_x\n")
    refused = booking("login", "--api-key-stdin", "--secret-file", str(tmp_path / "kept.key"), "-o", "json")
    assert refused.refusal == (ExitCode.SERVER, "unreadable_answer")
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_prompts_for_the_key_and_does_not_show_it(
    terminal: OnTerminal, key: str, shop: World, tmp_path: Path
) -> None:
    argv = ("login", "--secret-file", str(tmp_path / "kept.key"))
    code, screen = terminal(*argv, answer=f"{key}\n", at="API key (not shown): ")
    assert code == 0, screen
    assert shop.organization.slug in screen
    assert key not in screen


def test_a_logout_takes_the_key_away(booking: Booking, log_in: Booking, ring: Ring) -> None:
    log_in()
    assert booking("logout", "-o", "json").json["profile"] == "default"
    assert ring.passwords == {}
    assert booking("whoami").code == ExitCode.AUTH
    again = booking("logout")
    assert (again.code, again.err) == (0, "You are not logged in.\n")


def test_a_logout_from_a_profile_that_does_not_exist_is_reported(booking: Booking, shop: World) -> None:
    assert booking("logout", "--profile", "work", "-o", "json").error["code"] == "no_profile"


# Profiles --------------------------------------------------------------------------------------------------------


@pytest.fixture
def two(booking: Booking, log_in: Booking, ring: Ring, monkeypatch: pytest.MonkeyPatch) -> Booking:
    """Log in to two profiles: home, which is in use, and work."""
    log_in("--profile", "home")
    log_in("--profile", "work")
    monkeypatch.delenv("BOOKING_BASE_URL")
    return booking


def test_profiles_are_listed_with_the_current_one(two: Booking) -> None:
    profiles = two("config", "list", "-o", "json").json["data"]
    assert [(profile["profile"], profile["is_current"]) for profile in profiles] == [("home", True), ("work", False)]
    assert profiles[0]["key"].endswith("…")


def test_another_profile_is_chosen_for_what_follows(two: Booking) -> None:
    assert two("config", "set", "profile=work", "-o", "json").json["is_current"] is True
    assert two("config", "get", "--fields", "value").out.startswith("work\n")
    assert two("config", "set", "profile=nobody").code == ExitCode.USAGE


def test_forgetting_the_profile_in_use_leaves_the_other_one(two: Booking) -> None:
    two("logout")
    assert [profile["profile"] for profile in two("config", "list", "-o", "json").json["data"]] == ["work"]
    assert two("whoami").code == ExitCode.AUTH
    assert two("whoami", "--profile", "work").code == 0


def test_every_setting_is_shown_with_its_origin(two: Booking, environment: Environment, tmp_path: Path) -> None:
    def settings() -> dict[str, tuple[str, str]]:
        rows = two("config", "get", "-q", "-o", "json").json["data"]
        return {row["setting"]: (row["value"], row["origin"]) for row in rows}

    before = settings()
    assert before["profile"] == ("home", "config set")
    assert before["base_url"][1] == "profile home"
    assert before["api_key"][1] == "profile home, in the keyring"
    assert before["config_file"] == (str(tmp_path / "config/config.toml"), "BOOKING_CONFIG_DIR")
    environment("BOOKING_API_KEY", "svc_abcdefghijklmnopqrstuvwxyz")
    environment("BOOKING_PROFILE", "work")
    after = settings()
    assert after["profile"] == ("work", "BOOKING_PROFILE")
    assert after["api_key"] == ("svc_abcdefgh…", "BOOKING_API_KEY")


def test_a_service_that_has_moved_gets_its_new_address(two: Booking) -> None:
    moved = two("config", "set", "base_url=https://new.example.com/", "--profile", "work", "-o", "json").json
    assert moved["base_url"] == "https://new.example.com"
    for wrong in ("base_url", "base_url=new.example.com", "profile=", "colour=red"):
        assert two("config", "set", wrong).code == ExitCode.USAGE


def test_an_empty_list_of_profiles_says_how_to_begin(
    terminal: OnTerminal, environment: Environment, tmp_path: Path
) -> None:
    environment("BOOKING_CONFIG_DIR", str(tmp_path / "none"))
    assert "There is no profile yet: booking login" in terminal("config", "list")[1]


def test_one_setting_is_printed_for_a_script(booking: Booking, environment: Environment) -> None:
    environment("BOOKING_BASE_URL", "http://127.0.0.1:9")
    environment("BOOKING_API_KEY", "svc_0123456789abcdef")
    assert booking("config", "get", "base_url").out == "http://127.0.0.1:9\n"
    assert booking("config", "get", "profile").out == "default\n"
    assert booking("config", "get", "api_key").out == "svc_01234567…\n"
    setting = booking("config", "get", "base_url", "-o", "json").json
    assert setting == {"setting": "base_url", "value": "http://127.0.0.1:9", "origin": "BOOKING_BASE_URL"}
    assert booking("config", "get", "organization", "-o", "json").refusal == (1, "not_set")
