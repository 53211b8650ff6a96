"""A secret is shown once or kept in a file, in every output format."""

import json
import re
import stat
from pathlib import Path

import pytest
from support.serving.commands import Booking, Process
from support.world.world import World

HOOK = ("--url", "https://127.0.0.1:8443/hook", "--event", "booking.created")


class Making:
    """The commands that make a secret and take --secret-file, and their secrets."""

    def __init__(self, booking: Booking, shop: World) -> None:
        org = ("--org", shop.organization.slug)
        key = booking("keys", "create", *org, "--name", "x", "-o", "json").json["id"]
        hook = booking("webhooks", "create", *HOOK, "-o", "json").json["id"]
        self._booking = booking
        self.commands = {
            "keys create": ("keys", "create", *org, "--name", "y"),
            "keys rotate": ("keys", "rotate", key),
            "webhooks create": ("webhooks", "create", *HOOK),
            "webhooks rotate-secret": ("webhooks", "rotate-secret", hook),
            "gift-cards issue": ("gift-cards", "issue", *org, "--amount", "500"),
        }
        self.lists = {"keys": ("keys", "list", *org), "webhooks": ("webhooks", "list"), "gift-cards": CARDS}

    def listed(self, name: str) -> list[str]:
        """Return the list of the resource, as lines."""
        return sorted(self._booking(*self.lists[name.split()[0]], "-o", "tsv").out.splitlines())


CARDS = ("gift-cards", "list")
MAKING = ["keys create", "keys rotate", "webhooks create", "webhooks rotate-secret", "gift-cards issue"]
SECRETS = {"keys": "svc_", "webhooks": "whsec_", "gift-cards": ""}
"""The first letters of a secret."""
UNDONE = {"keys": "keys revoke", "webhooks": "webhooks rotate-secret", "gift-cards": "gift-cards get"}
"""The command for a secret that is lost."""


@pytest.mark.parametrize("name", MAKING)
def test_a_secret_goes_into_a_new_file_that_only_its_owner_reads(
    booking: Booking, shop: World, tmp_path: Path, name: str
) -> None:
    making, group = Making(booking, shop), name.split()[0]
    file = tmp_path / "kept"
    resource = booking(*making.commands[name], "--secret-file", "kept", "-o", "json").json
    assert (resource["secret_file"], resource.keys() & {"key", "secret", "code"}) == ("kept", set())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    secret = file.read_text()
    assert secret.startswith(SECRETS[group])
    assert secret.strip()
    before = making.listed(name)
    for path, code in (("kept", "file_exists"), ("no/where", "bad_file")):
        assert booking(*making.commands[name], "--secret-file", path, "-o", "json").refusal == (2, code)
    assert (making.listed(name), file.read_text()) == (before, secret)


@pytest.mark.parametrize("name", ["keys create", "webhooks create", "gift-cards issue"])
def test_a_secret_file_is_removed_if_nothing_was_made(booking: Booking, shop: World, tmp_path: Path, name: str) -> None:
    wrong = {"keys create": "--scope=no", "webhooks create": "--url=nonsense", "gift-cards issue": "--currency=XXX"}
    assert booking(*Making(booking, shop).commands[name], wrong[name], "--secret-file", "kept").code == 8
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("name", [name for name in MAKING if name != "gift-cards issue"])
def test_a_secret_that_would_not_be_shown_is_not_made(booking: Booking, shop: World, name: str) -> None:
    making = Making(booking, shop)
    before, field = making.listed(name), {"keys": "key", "webhooks": "secret"}[name.split()[0]]
    refused = booking(*making.commands[name], "--fields", "id", "-o", "json")
    assert (refused.code, making.listed(name)) == (2, before)
    assert "shown only once" in refused.error["message"]
    assert f"--fields id,{field}" in refused.error["hint"]
    assert booking(*making.commands[name], "--fields", "id", "--secret-file", "kept").code == 0


@pytest.mark.parametrize("name", MAKING)
def test_the_error_for_an_unshown_secret_names_the_command_for_it(
    booking: Booking, shop: World, process: Process, nobody_reads: int, name: str
) -> None:
    making = Making(booking, shop)
    _, errors = (started := process(*making.commands[name], "-o", "json", stdout=nobody_reads)).communicate()
    error = json.loads(errors)["error"]
    assert (started.returncode, error["code"]) == (1, "secret_lost")
    command, resource_id = re.fullmatch(r"booking ([a-z-]+ [a-z-]+) (\S+)(?: --include-code)?", error["hint"]).groups()
    assert command == UNDONE[name.split()[0]]
    assert resource_id in error["message"]
    assert any(resource_id in line for line in making.listed(name))


@pytest.mark.parametrize(("name", "output"), [*zip(MAKING, ("tsv", "json", "tsv", "json", "tsv"), strict=True)])
def test_a_closed_pipe_is_no_failure_after_the_secret_is_stored(
    booking: Booking, shop: World, process: Process, nobody_reads: int, tmp_path: Path, name: str, output: str
) -> None:
    argv = Making(booking, shop).commands[name]
    _, errors = (started := process(*argv, "--secret-file", "kept", "-o", output, stdout=nobody_reads)).communicate()
    assert (started.returncode, "error" in errors) == (0, False)
    assert (tmp_path / "kept").read_text().strip()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is full")
def test_a_full_disk_behind_stdout_does_not_report_a_lost_secret(
    booking: Booking, shop: World, process: Process, tmp_path: Path
) -> None:
    argv = ("keys", "create", "--org", shop.organization.slug, "--name", "y", "--secret-file", "kept")
    with Path("/dev/full").open("w") as full:
        _, errors = (started := process(*argv, stdout=full)).communicate()
    assert started.returncode == 1
    assert "The secret is in kept; the rest could not be shown: No space left on device." in errors
    assert (tmp_path / "kept").read_text().startswith("svc_")


def test_a_closed_stderr_stops_no_command(booking: Booking, shop: World, process: Process, nobody_reads: int) -> None:
    slug = shop.organization.slug
    out, _ = (started := process("orgs", "set", slug, "name=New", "-v", stderr=nobody_reads)).communicate()
    assert (started.returncode, "name\tNew" in out) == (0, True)
    started = process("orgs", "show", "nobody", stderr=nobody_reads)
    started.communicate()
    assert started.returncode == 6
