"""`booking webhooks listen`: every event reaches the application, through restarts of every program."""

import asyncio
import json
import re
import signal
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.receivers.receivers import Receiver, Receivers, hang, plain, wait_until
from support.serving import servers
from support.serving.commands import Booking, Environment, OnTerminal, Process, RecordedTerminal
from support.serving.shell import logged_in, running
from support.serving.threads import LoopThread
from support.world.hooks import Hooks

from booking_cli.client.event_feed import Feed, FeedEvent, Position
from booking_cli.client.webhook_secrets import Secrets
from booking_cli.commands.webhooks import listen_view, receiver
from booking_cli.commands.webhooks.listen_view import Records, Screen
from booking_cli.commands.webhooks.receiver import Forwarder, ReceivedDelivery, ReceiverResult
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_core.base import tokens
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.models.events import SUBSCRIBABLE, EventType
from booking_core.records import events
from booking_core.records.events import NewEvent
from booking_sdk import BadRequestError
from booking_sdk.errors import error_class
from booking_sdk.response import Response
from booking_server.worker.deliveries import signed_headers
from webhook_verify import Verifier, generate_secret

on_one_database = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
"""For the listener's handling of pages that it has read. Two tests read the feed of either database."""
AWKWARD = {
    "name": 'på "brygga" \\ /',
    "note": "a\tb\r\nc\x1b\x7f\u2028\u00e9\U0001f6a3",
    "n": 2**53,
    "x": None,
    "l": [],
}


# The application -------------------------------------------------------------------------------------------------


class Application(Receiver):
    """A receiver on a fixed port that can be stopped and started."""

    def __init__(self) -> None:
        super().__init__(lambda _: plain(self.answers.pop(0) if self.answers else 200))
        self.answers: list[int] = []
        """The next answers; then 200."""
        self.port = servers.free_port()
        self._running = ExitStack()

    @property
    def ids(self) -> list[str]:
        """Return the ids of the events in the order of their first arrival."""
        return list(dict.fromkeys(receipt.event_id for receipt in self.receipts))

    def start(self) -> None:
        thread = self._running.enter_context(LoopThread())
        thread.listen(asyncio.start_server(self.serve, "127.0.0.1", self.port))

    def stop(self) -> None:
        self._running.close()

    def wait_for_events(self, events: Sequence[str]) -> None:
        wait_until(lambda: set(self.ids) >= set(events), f"{len(events)} events")


@pytest.fixture
def application() -> Iterator[Application]:
    application = Application()
    application.start()
    yield application
    application.stop()


# The service and the listener ------------------------------------------------------------------------------------


class Listener:
    """`booking webhooks listen` in a separate process, with its output in files."""

    def __init__(self, process: Process, folder: Path, application: Application) -> None:
        self.application = application
        self._process = process
        self._folder = folder

    @property
    def out(self) -> str:
        return (self._folder / "out").read_text()

    @property
    def err(self) -> str:
        return (self._folder / "err").read_text()

    @property
    def secret_file(self) -> Path:
        return self._folder / "config/webhook-secrets/default"

    @property
    def checkpoints(self) -> list[Path]:
        return list((self._folder / "config/listen").glob("*.json"))

    def start(self, *argv: str) -> None:
        """Start the listener and wait until its position is saved."""
        written_at = [path.stat().st_mtime_ns for path in self.checkpoints]
        with (self._folder / "out").open("a") as out, (self._folder / "err").open("a") as err:
            command = ("webhooks", "listen", "--forward-to", self.application.url, *argv)
            self.running = self._process(*command, stdout=out, stderr=err)
        wait_until(lambda: [path.stat().st_mtime_ns for path in self.checkpoints] != written_at, "the listener begins")

    def wait_for(self, events: Sequence[str]) -> None:
        """Wait until the listener has written that the events were received."""
        wait_until(lambda: all(event in self.out for event in events), f"{len(events)} events are reported")

    def run_until(self, events: Sequence[str], *argv: str) -> None:
        """Run the listener until it has written that the events were received."""
        self.start(*argv)
        self.wait_for(events)
        assert self.end(signal.SIGINT) == 130

    def end(self, how: signal.Signals) -> int:
        self.running.send_signal(how)
        return self.running.wait(60)


@pytest.fixture
def listener(process: Process, tmp_path: Path, application: Application) -> Iterator[Listener]:
    listener = Listener(process, tmp_path, application)
    yield listener
    listener.end(signal.SIGKILL)


# Requests --------------------------------------------------------------------------------------------------------


def publish_all(hooks: Hooks) -> list[str]:
    """Publish an event of every type, with values that are difficult to write as JSON."""
    world = hooks.world
    extra = {"previous": AWKWARD, "reason": "på"}
    new_events = [
        NewEvent(kind, None if number % 5 == 4 else tokens.new_id(), orjson.dumps(AWKWARD | {"kind": kind}), extra)
        for number, kind in enumerate(sorted(SUBSCRIBABLE))
    ]

    def work(tx: Tx) -> list[str]:
        return events.publish(tx, world.organization, new_events, at=world.clock())

    return hooks.database.write(work)


def test_what_is_forwarded_is_to_the_byte_what_the_worker_sends(
    hooks: Hooks, application: Application, listener: Listener, tmp_path: Path
) -> None:
    endpoint = hooks.endpoint(*SUBSCRIBABLE)
    (tmp_path / "hook.secret").write_text(hooks.secrets[endpoint])
    listener.start("--secret-file", "hook.secret")
    event_ids = publish_all(hooks)
    application.wait_for_events(event_ids)
    claimed_by_worker = hooks.claim(free=100)
    by_worker = {claimed.event_id: claimed for claimed in claimed_by_worker}
    hooks.succeed(*claimed_by_worker)
    assert application.ids == event_ids
    verifier = Verifier(hooks.secrets[endpoint])
    for receipt in application.receipts:
        headers, claimed = receipt.headers, by_worker[receipt.event_id]
        assert receipt.body == claimed.body
        assert verifier.verify(receipt.body, headers).event_type == headers["svc-event-type"] == claimed.event_type
        sent = {name.lower(): value for name, value in signed_headers(claimed)}
        assert headers.keys() - {"host", "content-length"} == sent.keys()
        for name in ("content-type", "user-agent", "svc-event-id", "svc-event-type", "webhook-id"):
            assert headers[name] == sent[name]
    assert len({receipt.attempt_id for receipt in application.receipts}) == len(event_ids)


# Restarts --------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@on_one_database
def test_every_event_arrives_through_every_kind_of_restart(
    fresh_database_url: str,
    environment: Environment,
    tmp_path: Path,
    application: Application,
    listener: Listener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running(fresh_database_url, tmp_path) as service, logged_in(service, environment, tmp_path) as hooks:
        ports = service.ports
        event_ids: list[str] = []

        def publish(times: int) -> None:
            event_ids.extend(hooks.publish(times=times))

        listener.start()
        publish(5)
        application.wait_for_events(event_ids)

        application.stop()
        publish(5)
        wait_until(lambda: "\twaiting\t" in listener.out, "the listener waits for the application")
        application.start()
        application.wait_for_events(event_ids)

        service.kill()
        publish(5)
        wait_until(lambda: "cannot be reached" in listener.err, "the listener waits for the service")
        again = iter(ports)
        monkeypatch.setattr(servers, "free_port", lambda: next(again))
        service.start()
        application.wait_for_events(event_ids)

        publish(30)
        wait_until(lambda: len(application.ids) > 20, "the listener is in the midst of it")
        assert listener.end(signal.SIGKILL) == -signal.SIGKILL
        publish(5)
        listener.start()
        publish(5)
        application.wait_for_events(event_ids)

        assert application.ids == event_ids
        # A listener that is killed between an answer and its note sends that event again.
        assert len(application.receipts) <= len(event_ids) + 1
        secret = listener.secret_file.read_text().strip()
        for receipt in application.receipts:
            assert Verifier(secret).verify(receipt.body, receipt.headers).event_id in event_ids
        assert str(listener.secret_file) in listener.err
        assert secret not in listener.err + listener.out
        assert listener.end(signal.SIGINT) == 130


@on_one_database
def test_the_next_one_goes_on_where_the_last_one_stopped(hooks: Hooks, listener: Listener) -> None:
    before = hooks.publish(times=2)
    listener.start()
    first = hooks.publish(times=2)
    listener.wait_for(first)
    assert listener.end(signal.SIGINT) == 130
    missed = hooks.publish(times=2)
    listener.run_until(missed)
    assert listener.application.ids == [*first, *missed]
    assert "Continuing after event 4" in listener.err
    hooks.publish()
    listener.start("--no-resume")
    new = hooks.publish()
    listener.application.wait_for_events(new)
    assert listener.end(signal.SIGINT) == 130
    assert listener.application.ids == [*first, *missed, *new]
    assert not set(before) & set(listener.application.ids)


@pytest.mark.exhaustive
@on_one_database
def test_since_goes_back_and_never_leaves_out_what_was_missed(hooks: Hooks, listener: Listener) -> None:
    event_ids = hooks.publish(times=3)
    listener.run_until(event_ids, "--since", "10m")
    assert len(listener.application.receipts) == 3
    listener.start("--since", "10m")
    wait_until(lambda: listener.out.count(event_ids[-1]) == 2, "all three again")
    listener.end(signal.SIGINT)
    # Events from before the requested time still come if no listener ran when they occurred.
    missed = hooks.publish()
    listener.run_until(missed, "--since", "2999-01-01")
    assert len(listener.application.receipts) == 7


@pytest.mark.exhaustive
@on_one_database
def test_other_types_go_on_from_the_same_place(hooks: Hooks, application: Application, listener: Listener) -> None:
    listener.start("--event", "booking.*")
    hooks.publish()
    first = hooks.publish(kind=EventType.BOOKING_CREATED)
    listener.wait_for(first)
    listener.end(signal.SIGINT)
    later = [*hooks.publish(kind=EventType.BOOKING_CONFIRMED), *hooks.publish()]
    listener.run_until(later, "--event", "gift_card.redeemed", "--event", "booking.confirmed")
    assert application.ids == [*first, *later]


@pytest.mark.exhaustive
@on_one_database
def test_a_test_of_an_endpoint_is_forwarded_only_when_asked_for(hooks: Hooks, listener: Listener) -> None:
    listener.start()
    pings, others = hooks.publish(kind=EventType.PING), hooks.publish()
    listener.wait_for(others)
    listener.end(signal.SIGINT)
    assert listener.application.ids == others
    listener.run_until(pings, "--since", "10m", "--event", "ping")
    assert listener.application.ids == [*others, *pings]


# Receivers that refuse, and that are down ------------------------------------------------------------------------


@on_one_database
def test_a_refused_event_is_tried_again_then_left_behind_and_named(hooks: Hooks, listener: Listener) -> None:
    listener.application.answers = [500, 400]
    listener.start("--attempts", "2")
    refused, accepted = hooks.publish(times=2)
    listener.wait_for([accepted])
    assert listener.end(signal.SIGINT) == 130
    reported = [line.split("\t") for line in listener.out.splitlines()]
    assert [columns[1:3] for columns in reported] == [["retrying", "500"], ["given_up", "400"], ["accepted", "200"]]
    assert [refused in columns for columns in reported] == [True, True, False]
    assert {"1 event forwarded.", f"  booking events get {refused}"} <= set(listener.err.splitlines())


EVENT = FeedEvent("e1", "ping", 1, "2026-11-21T13:00:00+01:00", b'{"id":"e1","type":"ping"}')


def forwarder_to(url: str, sleep: Callable[[float], None] = lambda _: None) -> Forwarder:
    return Forwarder(receiver.parse_target(url), Secrets((generate_secret(),), "here"), 3, sleep)


def outcomes(forwarder: Forwarder) -> list[str]:
    return [attempt.outcome for attempt in forwarder.forward(EVENT)]


def test_waits_for_an_unavailable_receiver_grow_and_never_end() -> None:
    application, slept = Application(), list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 12:
            application.start()

    forwarder = forwarder_to(application.url, sleep)
    assert outcomes(forwarder) == [*["waiting"] * 12, "accepted"]
    application.stop()
    assert slept == [1, 2, 4, 8, *[10] * 8]
    assert (forwarder.accepted, forwarder.given_up) == (1, [])


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_whose_application_is_away_uses_up_no_attempt(application: Application, status: int) -> None:
    application.answers = [status] * 5 + [500, 500]
    assert outcomes(forwarder_to(application.url)) == [*["waiting"] * 5, "retrying", "retrying", "accepted"]


def test_each_attempt_is_another_delivery_of_the_same_event(application: Application) -> None:
    application.answers = [500]
    assert outcomes(forwarder_to(application.url)) == ["retrying", "accepted"]
    first, second = application.receipts
    assert first.attempt_id != second.attempt_id
    assert (first.event_id, first.body) == (second.event_id, second.body)


def test_a_redirect_is_a_refusal_and_is_not_followed() -> None:
    with Receivers() as receivers:
        there = receivers.open()
        redirecting = receivers.open(lambda _: plain(302, f"Location: {there.url}"))
        assert outcomes(forwarder_to(redirecting.url)) == ["retrying", "retrying", "given_up"]
        assert there.receipts == []


def test_what_a_receiver_says_is_waited_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body may drip, or never end, after a head that has decided everything."""
    monkeypatch.setattr(receiver, "BODY_S", 0.1)

    async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\nsold")
        return await hang(reader, writer)

    with Receivers() as receivers:
        answer = receiver.post(receiver.parse_target(receivers.open(lambda _: drips).url), {}, b"{}", deadline_s=3600)
    assert (answer.status, answer.excerpt, answer.error) == (200, "sold", None)


# The feed --------------------------------------------------------------------------------------------------------


class FakeClient:
    """Returns prepared responses one after the other, and records the requests."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.requests: list[dict[str, str]] = []

    def request(self, method: str, path: str, *, params: dict[str, str], **_: Any) -> bytes:
        self.requests.append(params)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()


def item(sequence: int) -> dict[str, Any]:
    return {"id": f"e{sequence}", "type": "ping", "sequence": sequence, "created_at": "2026-11-21T13:00:00+01:00"}


def page(*sequences: int, resume: str | None, more: bool = False) -> dict[str, Any]:
    return {"data": list(map(item, sequences)), "has_more": more, "next_cursor": None, "resume_cursor": resume}


def refusal(status: int, code: str) -> Exception:
    return error_class(status, code)(Response(status, (), json.dumps({"error": "no", "code": code}).encode()))


def feed(client: FakeClient, position: Position, trouble: list[str | None] | None = None) -> Feed:
    outages = [] if trouble is None else trouble
    return Feed(client, position, poll_s=1, sleep=lambda _: None, on_outage=outages.append)  # type: ignore[arg-type]


def take(source: Feed, count: int) -> list[int]:
    events = iter(source)
    return [next(events).sequence for _ in range(count)]


def test_each_event_moves_the_position_and_half_a_page_is_reread() -> None:
    client = FakeClient(
        page(1, 2, resume="c2", more=True), page(3, 4, resume="c4"), page(resume="c4"), page(5, resume="c5")
    )
    following = feed(client, Position(since="2026-11-21T12:00:00+00:00", types=("ping",)))
    assert take(following, 3) == [1, 2, 3]
    assert (following.position.sequence, following.position.cursor) == (3, "c2")
    since = {"order": "asc", "limit": "100", "created_since": "2026-11-21T12:00:00+00:00"}
    assert client.requests[0] == since | {"type": "ping"}
    assert client.requests[1]["starting_after"] == "c2"
    again = FakeClient(page(3, 4, resume="c4"), page(resume="c4"), page(5, resume="c5"))
    assert take(feed(again, following.position), 2) == [4, 5]
    assert again.requests[2]["starting_after"] == "c4"


def test_the_date_replaces_a_refused_cursor_and_nothing_comes_twice() -> None:
    client = FakeClient(refusal(400, "validation_failed"), page(7, 8, 9, resume="c9"))
    position = Position(8, "2026-11-21T13:00:00+01:00", cursor="old")
    assert take(feed(client, position), 1) == [9]
    assert client.requests[1] == {"order": "asc", "limit": "100", "created_since": "2026-11-21T12:59:00+01:00"}


def test_a_service_that_is_away_is_reported_and_waited_for() -> None:
    trouble: list[str | None] = []
    # A proxy answers 408 on a connection that was idle for long.
    refusals = refusal(503, "service_unavailable"), refusal(500, "internal_error"), refusal(408, "")
    assert take(feed(FakeClient(*refusals, page(1, resume="c")), Position(), trouble), 1) == [1]
    assert [error is None for error in trouble] == [False, False, False, True]


def test_what_is_not_the_api_is_an_error() -> None:
    for body in (b"<html>", b"{}", b"[]", b'{"data": 1}'):
        with pytest.raises(CliError) as refused:
            take(feed(FakeClient(body), Position()), 1)
        assert refused.value.exit_code == 10
    with pytest.raises(BadRequestError):
        take(feed(FakeClient(refusal(400, "validation_failed")), Position()), 1)


# Manners ---------------------------------------------------------------------------------------------------------


def revoke_key(hooks: Hooks) -> None:
    (key,) = hooks.world.rows(tables.api_keys)
    hooks.world.change(tables.api_keys, key["id"], revoked_at=hooks.world.clock())


@on_one_database
def test_a_key_that_is_revoked_meanwhile_ends_it(hooks: Hooks, application: Application, listener: Listener) -> None:
    listener.start("--json")
    revoke_key(hooks)
    assert listener.running.wait(60) == 4
    assert json.loads(listener.err)["error"]["code"] == "api_key_revoked"


@on_one_database
def test_what_cannot_begin_has_the_exit_code_of_its_kind(
    booking: Booking, hooks: Hooks, environment: Environment
) -> None:
    argv = ("webhooks", "listen", "--forward-to", "8000", "--json")
    assert booking("webhooks", "listen", "--json").code == 2
    assert booking("webhooks", "listen", "--forward-to", "x://y", "--json").error["code"] == "bad_url"
    assert booking(*argv, "--since", "soon").code == 2
    assert booking(*argv, "--attempts", "0").code == 2
    assert booking(*argv, "--event", "nonsense").code == 8
    environment("BOOKING_BASE_URL", "http://127.0.0.1:1")
    assert booking(*argv).code == 3


@pytest.mark.exhaustive
@on_one_database
def test_a_damaged_checkpoint_is_named_and_can_be_left_aside(
    booking: Booking, hooks: Hooks, application: Application, listener: Listener
) -> None:
    listener.start()
    listener.end(signal.SIGINT)
    (checkpoint,) = listener.checkpoints
    assert stat.S_IMODE(checkpoint.stat().st_mode) == 0o600
    for damage in ("", "{}", '{"position": {"sequence": 1, "types": [], "novel": 2}}'):
        checkpoint.write_text(damage)
        refused = booking("webhooks", "listen", "--forward-to", application.url, "--json")
        assert (refused.code, refused.error["hint"]) == (2, "begin with new events: --no-resume")
        assert str(checkpoint) in refused.error["message"]
    listener.start("--no-resume")
    application.wait_for_events(hooks.publish())
    assert listener.end(signal.SIGINT) == 130


@on_one_database
def test_a_second_listener_for_the_same_receiver_is_refused(booking: Booking, hooks: Hooks, listener: Listener) -> None:
    listener.start()
    same = listener.application.url.removeprefix("http://")
    refused = booking("webhooks", "listen", "--forward-to", same, "--event", "booking.*", "--json")
    assert refused.refusal == (2, "already_listening")
    listener.end(signal.SIGKILL)
    listener.start()
    assert listener.end(signal.SIGINT) == 130


@on_one_database
def test_a_closed_pipe_ends_it_quietly_and_the_next_one_repeats_nothing(
    hooks: Hooks, application: Application, listener: Listener, process: Process
) -> None:
    command = ("webhooks", "listen", "--forward-to", application.url, "--since", "10m", "-o", "jsonl")
    event_ids = hooks.publish(times=2)
    with process(*command) as started:
        assert json.loads(started.stdout.readline())["id"] == event_ids[0]
        assert json.loads(started.stdout.readline())["id"] == event_ids[1]
        started.stdout.close()
        event_ids += hooks.publish()
        assert started.wait(60) == 0
        assert started.stderr.read() == ""
    listener.start()
    event_ids += hooks.publish()
    application.wait_for_events(event_ids)
    listener.end(signal.SIGINT)
    assert [receipt.event_id for receipt in application.receipts] == event_ids


# On a terminal ---------------------------------------------------------------------------------------------------


@pytest.fixture
def screen(recorded_terminal: RecordedTerminal) -> Callable[..., tuple[Records, Callable[[], str]]]:
    """Return a function that makes a view on a terminal, and a function that returns the output."""

    def make(columns: int = 80, **options: Any) -> tuple[Records, Callable[[], str]]:
        output, cli = recorded_terminal(columns), Cli()
        cli.options.color = "never"
        return Screen(cli, **options), output.getvalue

    return make


def forwarded(kind: str, outcome: str, answer: ReceiverResult, attempt: int = 1) -> ReceivedDelivery:
    at = datetime.fromisoformat("2026-11-21T13:00:00+01:00")
    event = FeedEvent("0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07", kind, 1, at.isoformat(), b"{}")
    return ReceivedDelivery(at, event, "d1", attempt, answer, outcome)


@pytest.mark.parametrize("kind", EventType)
def test_the_line_of_every_event_fits_80_columns(screen: Callable[..., Any], kind: EventType) -> None:
    view, output = screen()
    view.attempt(forwarded(kind, "accepted", ReceiverResult(200, "ok", None, 9999)))
    line = output().rstrip("\n")
    assert line == f"13:00:00 200 9999ms 0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07 {kind.value}"
    assert len(line) <= 80


def test_all_tries_of_an_unavailable_receiver_print_one_line(screen: Callable[..., Any]) -> None:
    away = ReceiverResult(None, None, "connect_failed", 1, "connection refused")
    view, output = screen()
    for number in range(1, 9):
        view.attempt(forwarded("ping", "waiting", away, number))
    view.attempt(forwarded("ping", "accepted", ReceiverResult(200, "", None, 5), 9))
    assert len([line for line in output().splitlines() if "0190f3c2" in line]) == 2
    assert "connection refused" in output()


def test_a_receiver_cannot_move_the_cursor(screen: Callable[..., Any]) -> None:
    view, output = screen(60)
    refused = ReceiverResult(500, "\x1b]0;t\x07\nboom", "http_status", 5, "answered 500")
    view.attempt(forwarded("x\x1b[2J", "given_up", refused))
    text = output()
    assert "\x1b" not in text
    assert "boom" in text


@on_one_database
def test_on_a_real_terminal_it_says_what_it_does(hooks: Hooks, application: Application, terminal: OnTerminal) -> None:
    event_ids = hooks.publish()
    revoking = threading.Thread(target=lambda: (application.wait_for_events(event_ids), revoke_key(hooks)))
    revoking.start()
    code, output = terminal("webhooks", "listen", "--forward-to", application.url, "--since", "10m")
    revoking.join()
    assert code == 4
    assert f"to {application.url}" in output
    assert event_ids[0] in output
    assert "1 event forwarded." in output


# The developer's view ----------------------------------------------------------------------------------------------


@on_one_database
def test_extra_headers_do_not_replace_the_headers_of_a_delivery(
    booking: Booking, hooks: Hooks, application: Application, process: Process
) -> None:
    booking("customers", "create", "--name", "Ada", "--email", "ada@example.com")
    listen = ("webhooks", "listen", "--forward-to", application.url, "--since", "1h", "--event", "customer.*")
    with process(*listen, "-H", "X-Tenant: fjord", "-o", "jsonl") as started:
        record = json.loads(started.stdout.readline())
        started.send_signal(signal.SIGINT)
    assert (record["type"], record["status"]) == ("customer.created", 200)
    (receipt,) = application.receipts
    assert (receipt.headers["x-tenant"], receipt.headers["svc-event-type"]) == ("fjord", "customer.created")
    for header in ("no colon", "Host: x", "Svc-Signature: x", "webhook-id: x", "X: a\nb", "X\x1b: a", ": x"):
        assert booking(*listen, "--header", header, "--json").code == 2, header


def test_the_secret_is_printed_and_nothing_is_forwarded(booking: Booking, tmp_path: Path) -> None:
    printed = booking("webhooks", "listen", "--print-secret")
    assert re.fullmatch(r"whsec_\S+\n", printed.out)
    assert booking("webhooks", "listen", "--print-secret", "-o", "json").json["secret"] == printed.out.strip()
    (tmp_path / "mine").write_text("whsec_" + "QUJD" * 11)
    result = booking("webhooks", "listen", "--print-secret", "--secret-file", "mine")
    assert result.out == "whsec_" + "QUJD" * 11 + "\n"


@pytest.mark.parametrize("show_body", [False, True])
def test_what_the_receiver_answers_is_shown_line_by_line(screen: Callable[..., Any], show_body: bool) -> None:
    view, output = screen(show_body=show_body)
    view.attempt(forwarded("ping", "accepted", ReceiverResult(200, "first\nsecond \x1b[2J", None, 12)))
    lines = [line.lstrip("\r") for line in output().removesuffix("\n").split("\n")]
    assert lines[1:] == (["         | first", "         | second \\x1b[2J"] if show_body else [])


def test_a_record_has_the_answer_as_its_last_column(capsys: pytest.CaptureFixture[str]) -> None:
    listen_view.create_view(Cli(), show_body=True).attempt(
        forwarded("ping", "accepted", ReceiverResult(200, "said", None, 12))
    )
    assert capsys.readouterr().out.rstrip("\n").split("\t")[-1] == "said"
