"""The manners of the command: help, global options, exit codes, errors."""

import gc
import importlib
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import typer
from support.serving.commands import Booking, Environment, OnTerminal, Process, leaves, loaded_modules
from support.serving.serving import COMMAND

from booking_cli.commands import webhooks
from booking_cli.commands.registry import MODULES, SECTIONS
from booking_cli.framework.command import Leaf
from booking_cli.framework.context import resume_collections
from booking_cli.framework.exit_codes import BY_CODE, ExitCode
from booking_cli.main import main
from booking_cli.operator import storage
from booking_core.base.settings import Settings
from booking_core.models.errors import ErrorCode

LEAVES = list(leaves())
COMMANDS = [leaf.words for leaf in LEAVES]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(booking: Booking, words: tuple[str, ...]) -> None:
    result = booking(*words, "--help")
    assert (result.code, result.err) == (0, "")
    assert f"Usage: booking {' '.join(words)}" in result.out
    assert re.search(rf"^Examples:\n  booking {' '.join(words)}\b", result.out, re.MULTILINE)
    assert result.out.splitlines()[-1].startswith("Global options: ")


def test_the_global_options_stand_on_one_page_and_not_on_every_other(booking: Booking) -> None:
    options = booking("help", "options", "-o", "json").json["data"]
    names = {name for row in options for name in re.findall(r"--[a-z-]+", row["option"])}
    assert {"--yes", "--json", "--output", "--profile", "--debug", "--help", "--version"} < names
    page = booking("bookings", "create", "--help").out
    assert not names & set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", page, re.MULTILINE))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("keys list", "Missing option '--org'."),
        ("keys expire", "Missing argument 'ID' and option '--at'."),
        (
            "bookings create --email a@example.com",
            "Missing options '--departure', '--payment', '--guest', '--name'.",
        ),
        ("webhooks deliveries retry", "Missing arguments 'ID', 'DELIVERY'."),
    ],
)
def test_all_that_is_missing_is_named_at_once_with_an_example(booking: Booking, argv: str, message: str) -> None:
    refused = booking(*argv.split(), "-o", "json")
    assert (refused.code, refused.error["message"]) == (ExitCode.USAGE, message)
    assert refused.error["hint"].startswith(f"for example: booking {argv.partition(' --')[0]} ")


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: " ".join(leaf.words))
def test_an_example_of_each_command_has_every_required_option(leaf: Leaf) -> None:
    example = shlex.split(leaf.command.full_example)
    names = [parameter.opts[0] for parameter in leaf.command.own_params if parameter.required]
    required = {name for name in names if name.startswith("--")}
    assert required <= set(example)
    assert tuple(example[1 : 1 + len(leaf.words)]) == leaf.words


def test_every_command_is_run_by_a_test() -> None:
    folder = Path(__file__).parent
    files = [*folder.rglob("test_*.py"), folder.parent / "support" / "serving" / "every_command.py"]
    tests = "".join(path.read_text() for path in files)
    for words in COMMANDS:
        assert re.search(r"\(\s*" + ", ".join(f'"{word}"' for word in words), tests), words


def test_the_first_page_is_a_map_that_fits_a_screen(booking: Booking, terminal: OnTerminal) -> None:
    page = booking("--help").out
    for title, names in SECTIONS.items():
        assert f"\n{title}:\n" in page
        for name in names:
            assert re.search(rf"^  {name} +{re.escape(MODULES[name][1])}$", page, re.MULTILINE)
    assert max(map(len, page.splitlines())) <= 80
    assert len(page.splitlines()) <= 50
    for command in re.findall(r"^  booking ([a-z ]+[a-z])  ", page, re.MULTILINE):
        assert booking(*command.split()).code == 0
    assert "\x1b[1mSell\x1b[0m" in terminal("--help")[1]


def test_every_command_is_on_the_map_or_among_all_commands(booking: Booking) -> None:
    listed = booking("commands", "--fields", "command").out
    assert {line.split()[1] for line in listed.splitlines()} == set(MODULES)
    assert {name for names in SECTIONS.values() for name in names} < set(MODULES)


def test_a_lazy_group_lists_the_first_help_line_of_each_command() -> None:
    ctx = typer.Context(webhooks.app, info_name="webhooks")
    loaded = {name: webhooks.app.get_command(ctx, name) for name in webhooks.app.list_commands(ctx)}
    assert {name: command.help.partition("\n")[0] for name, command in loaded.items()} == {
        name: line for name, (_, line) in webhooks.MODULES.items()
    }
    assert [command.name for command in loaded.values()] == list(webhooks.MODULES)


def test_no_command_is_left_out_of_the_group_that_loads_it() -> None:
    apps = {module: importlib.import_module(module).app for module, _ in webhooks.MODULES.values()}
    declared = [
        (module, command.name)
        for module, app in apps.items()
        if app.registered_callback is None  # with one it is a group, which lists its commands itself
        for command in app.registered_commands
    ]
    assert declared == [
        (module, name)
        for name, (module, _) in webhooks.MODULES.items()
        if module != "booking_cli.commands.webhooks.deliveries"
    ]


@pytest.mark.parametrize("argv", ["--version", "webhooks --help", "help output", "no-such-command"])
@pytest.mark.usefixtures("environment")
def test_what_is_new_is_collected_once_the_command_is_loaded(argv: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = []
    monkeypatch.setattr("sys.argv", ["booking", *argv.split()])
    monkeypatch.setattr(gc, "freeze", lambda: flags.append(gc.isenabled()))
    main()
    assert flags == [False]
    assert gc.isenabled()


def test_a_collector_that_was_not_paused_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "freeze", lambda: pytest.fail("frozen"))
    resume_collections()
    assert gc.isenabled()


@pytest.mark.usefixtures("environment")
def test_help_and_version_load_no_library() -> None:
    heavy = ("sqlalchemy", "fastapi", "httpx", "pydantic", "uvicorn", "rich", "alembic", "keyring", "booking_sdk")
    lines = (
        *("--version", "--help", "keys --help", "keys create --help", "keys craete", "bookings create --help"),
        *("webhooks --help", "commands", "help exit-codes", "help environment", "completion bash"),
        *("config get", "config list -o json", "logout", "commands -o json"),
    )
    assert loaded_modules(heavy, lines) == {}


def test_the_version_is_the_one_that_is_installed(booking: Booking) -> None:
    from importlib.metadata import version

    assert booking("--version").out == f"booking {version('booking-cli')}\n"
    assert booking("orgs", "list", "--version").out == f"booking {version('booking-cli')}\n"


def test_a_global_option_may_stand_before_or_behind_the_command(fjord: Booking) -> None:
    lines = ("-o json orgs list", "orgs -o json list", "orgs list -o json", "--json orgs list", "orgs list --json")
    lists = [fjord(*line.split()).json["data"] for line in (*lines, "-o table orgs list -o json")]
    assert all(entries == lists[0] for entries in lists)
    assert fjord("--fields", "id", "orgs", "list", "--fields", "slug").out == "fjord-tours\n"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("keys", "booking keys needs a command."),
        ("", "booking needs a command."),
        ("kyes", "No such command 'kyes'. Did you mean 'keys'?"),
        ("keys lst", "No such command 'lst'. Did you mean 'list'?"),
        ("keys list", "Missing option '--org'."),
        ("keys list --org", "Option '--org' requires an argument."),
        ("orgs list --nope", "No such option: --nope"),
        ("orgs list extra", "Got unexpected extra argument(s) (extra)"),
        ("orgs list --color sometimes", "Invalid value for '--color': 'sometimes' is not one of auto, always, never."),
        ("orgs list --fields a,,b", "Invalid value for '--fields': write field names separated by commas"),
        ("serve --port nope", "Invalid value for '--port': 'nope' is not a valid int"),
    ],
)
def test_misuse_exits_2_and_says_what_is_wrong(booking: Booking, argv: str, message: str) -> None:
    plain = booking(*argv.split())
    assert (plain.code, plain.out) == (ExitCode.USAGE, "")
    refused = [booking("--output=jsonl", *argv.split())]
    if argv != "keys list --org":  # the option after it would be its value
        refused.append(booking(*argv.split(), "-o", "json"))
    for result in refused:
        assert (result.refusal, result.error["exit_code"]) == ((ExitCode.USAGE, "usage"), 2)
        assert message in result.error["message"]
        assert result.error["hint"].endswith("--help")
    if argv in ("", "keys"):
        assert plain.err.startswith("Usage: booking")
    else:
        assert plain.err.startswith(f"error: {message}")
        assert len(plain.err.splitlines()) == 2


def test_a_setting_that_cannot_be_understood_exits_2_with_one_line(booking: Booking, environment: Environment) -> None:
    environment("BOOKING_RATE_LIMIT", "many")
    message = "error: BOOKING_RATE_LIMIT must be REQUESTS/SECONDS, such as 600/60, or off\n"
    assert booking("orgs", "list").err == message
    assert booking("orgs", "list", "--json").refusal == (2, "bad_setting")


def test_a_database_that_does_not_exist_is_not_made_by_looking(booking: Booking, tmp_path: Path) -> None:
    refused = booking("orgs", "list", "-o", "json")
    assert (refused.code, refused.error["code"], refused.error["hint"]) == (2, "no_database", "booking db upgrade")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"This is no database, but it is long enough to be taken for one." * 20])
def test_a_file_that_is_no_upgraded_database_is_explained(booking: Booking, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "booking.db").write_bytes(content)
    refused = booking("orgs", "list", "--json")
    assert refused.code == 2
    assert refused.error["code"] in ("not_upgraded", "no_database")


def test_a_database_that_is_away_exits_10(booking: Booking, environment: Environment) -> None:
    environment("BOOKING_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
    for argv in (("orgs", "list"), ("db", "current")):
        refused = booking(*argv, "--json")
        assert refused.refusal == (ExitCode.SERVER, "service_unavailable")
        assert "port 1 failed" in refused.error["message"]


def test_an_operators_command_says_which_database_and_whose_data_it_works_on(fjord_on_both: Booking) -> None:
    key = fjord_on_both("keys", "create", "--org", "fjord-tours", "--name", "x", "-o", "json").json["id"]
    for argv in (
        ("keys", "list", "--org", "fjord-tours"),
        ("keys", "show", key),
        ("keys", "expire", key, "--at", "2999-01-01"),
        ("keys", "rotate", key),
        ("keys", "revoke", key, "--yes"),
        ("orgs", "show", "fjord-tours"),
        ("orgs", "set", "fjord-tours", "pending_minutes=20"),
        ("orgs", "notify-email", "fjord-tours"),
        ("catalog", "export", "--org", "fjord-tours"),
        ("gift-cards", "issue", "--org", "fjord-tours", "--amount", "500"),
    ):
        lines = fjord_on_both(*argv).err.splitlines()
        assert re.fullmatch(r"database: \S+( on \S+)? \((SQLite|PostgreSQL)\)", lines[0]), argv
        assert lines[1] == "organization: fjord-tours (Fjord Tours)", argv
        assert sum(line.startswith(("database:", "organization:")) for line in lines) == 2, argv
        assert fjord_on_both(*argv, "-o", "json").err == "" or argv[1] in ("rotate", "revoke")
        assert "database:" not in fjord_on_both(*argv, "-q").err
    for argv in (("orgs", "list"), ("db", "current"), ("db", "check"), ("mails", "list"), ("doctor",)):
        assert fjord_on_both(*argv).err.startswith("database: ")
        assert fjord_on_both(*argv, "-o", "jsonl").err == ""


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("postgresql://nobody:hunter2@db.example:5433/booking", "booking on db.example:5433 (PostgreSQL)"),
        ("postgresql:///booking?host=/run/pg&user=nobody&password=hunter2", "booking on /run/pg (PostgreSQL)"),
        ("postgresql://db.example", "default on db.example (PostgreSQL)"),
        ("sqlite:////srv/booking.db", "/srv/booking.db (SQLite)"),
    ],
)
def test_the_database_is_named_without_a_user_or_a_password(url: str, location: str) -> None:
    assert storage.location(Settings(database_url=url)) == location


def test_a_password_in_the_database_url_is_never_shown(booking: Booking, environment: Environment) -> None:
    for url, location in (
        ("postgresql://nobody:hunter2@127.0.0.1:1/nothing", "nobody:***@127.0.0.1"),
        ("postgresql://127.0.0.1:1/nothing?user=nobody&password=hunter2", "user=nobody"),
    ):
        environment("BOOKING_DATABASE_URL", url)
        refused = booking("orgs", "list", "-v").err
        assert (location in refused, "hunter2" in refused) == (True, False)


def test_what_is_unexpected_exits_1_and_shows_a_traceback_only_with_debug(
    stored: Booking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(tx: object) -> None:
        raise RuntimeError("wires\ncrossed")

    monkeypatch.setattr("booking_core.organizations.find", fail)
    plain = stored("orgs", "list")
    assert plain.code == ExitCode.FAILED
    assert plain.err.splitlines()[1:] == ["error: RuntimeError: wires crossed", "hint: show the traceback with --debug"]
    assert "Traceback" in stored("orgs", "list", "--debug").err
    assert stored("orgs", "list", "-o", "json").error["code"] == "internal_error"


def test_ctrl_c_exits_130(stored: Booking, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(tx: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("booking_core.organizations.find", interrupt)
    assert stored("orgs", "list").code == ExitCode.INTERRUPTED


@pytest.mark.exhaustive(but="('orgs', 'list', '-q')")
@pytest.mark.parametrize("argv", [("orgs", "list", "-q"), ("orgs", "list", "-o", "json"), ("--help",)])
def test_a_closed_pipe_is_no_error(fjord: Booking, new_process: Process, argv: tuple[str, ...]) -> None:
    with new_process(*argv) as started:
        started.stdout.close()
        assert (started.stderr.read(), started.wait()) == ("", 0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is full")
@pytest.mark.exhaustive(but="('orgs', 'list')")
@pytest.mark.parametrize("argv", [("orgs", "list"), ("--help",)])
def test_a_full_disk_is_one_line(fjord: Booking, new_process: Process, argv: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        _, err = (started := new_process(*argv, stdout=full)).communicate()
    assert started.returncode == ExitCode.FAILED
    assert "No space left on device" in err
    assert "Traceback" not in err


@pytest.mark.exhaustive(but=">&-")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_stream_that_is_closed_from_the_start_leads_nowhere(fjord: Booking, closed: str) -> None:
    create = shlex.join([*COMMAND, "keys", "create", "--org", "fjord-tours", "--name", "Website"])
    result = subprocess.run(["/bin/sh", "-c", f"{create} {closed}"], check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert ("svc_" in result.stdout) == (closed != ">&-")


@pytest.mark.exhaustive
def test_a_console_in_ascii_loses_no_key_and_no_letter_of_json(
    fjord: Booking, new_process: Process, environment: Environment
) -> None:
    fjord("orgs", "set", "fjord-tours", "name=Fjørd")
    environment("PYTHONIOENCODING", "ascii")
    out, _ = (started := new_process("keys", "create", "--org", "fjord-tours", "--name", "Båt")).communicate()
    assert started.returncode == 0
    assert "name\tB\\xe5t\n" in out
    assert "key\tsvc_" in out
    out, _ = new_process("orgs", "list", "-o", "json").communicate()
    assert json.loads(out)["data"][0]["name"] == "Fjørd"


def test_help_has_no_escape_codes_where_github_actions_runs_it(new_process: Process, environment: Environment) -> None:
    environment("GITHUB_ACTIONS", "true")
    out, err = new_process("keys", "create", "--help").communicate()
    assert "\x1b" not in out + err


def test_every_error_code_has_an_exit_code() -> None:
    assert set(BY_CODE) == set(map(str, ErrorCode))
    assert not {126, 127} & set(ExitCode)
