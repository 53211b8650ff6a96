"""A secret that is in its file is kept, whoever reads the rest."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.world import World

Booking = Callable[..., Any]
Process = Callable[..., subprocess.Popen[str]]

HOOK = ("--url", "https://127.0.0.1:8443/hook", "--event", "booking.created")


def making(booking: Booking, shop: World) -> dict[str, tuple[str, ...]]:
    """Yield every command that makes a secret and takes --secret-file."""
    slug = shop.organization.slug
    key = booking("keys", "create", "--org", slug, "--name", "x", "-o", "json").json["id"]
    hook = booking("webhooks", "create", *HOOK, "-o", "json").json["id"]
    return {
        "keys create": ("keys", "create", "--org", slug, "--name", "y"),
        "keys rotate": ("keys", "rotate", key),
        "webhooks create": ("webhooks", "create", *HOOK),
        "webhooks rotate-secret": ("webhooks", "rotate-secret", hook),
        "gift-cards issue": ("gift-cards", "issue", "--org", slug, "--amount", "500"),
    }


@pytest.mark.parametrize(
    "name", ["keys create", "keys rotate", "webhooks create", "webhooks rotate-secret", "gift-cards issue"]
)
@pytest.mark.parametrize("output", ["tsv", "json"])
def test_a_closed_pipe_is_no_failure_once_the_secret_is_in_its_file(
    booking: Booking, shop: World, process: Process, nobody_reads: int, tmp_path: Path, name: str, output: str
) -> None:
    argv = making(booking, shop)[name]
    started = process(*argv, "--secret-file", "kept", "-o", output, stdout=nobody_reads)
    _, errors = started.communicate()
    assert (started.returncode, "error" in errors) == (0, False)
    assert (tmp_path / "kept").read_text().strip()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is full")
def test_a_full_disk_behind_stdout_does_not_say_that_the_kept_secret_is_lost(
    booking: Booking, shop: World, process: Process, tmp_path: Path
) -> None:
    argv = ("keys", "create", "--org", shop.organization.slug, "--name", "y", "--secret-file", "kept")
    with Path("/dev/full").open("w") as full:
        _, errors = (started := process(*argv, stdout=full)).communicate()
    assert started.returncode == 1
    assert "The secret is in kept; the rest could not be shown: No space left on device." in errors
    assert (tmp_path / "kept").read_text().startswith("svc_")


def test_a_reader_of_stderr_who_has_gone_keeps_no_command_from_its_work(
    booking: Booking, shop: World, process: Process, nobody_reads: int
) -> None:
    slug = shop.organization.slug
    out, _ = (started := process("orgs", "set", slug, "name=New", "-v", stderr=nobody_reads)).communicate()
    assert (started.returncode, "name\tNew" in out) == (0, True)
    started = process("orgs", "show", "nobody", stderr=nobody_reads)
    started.communicate()
    assert started.returncode == 6
