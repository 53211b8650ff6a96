"""A day's work with secrets that would be known anywhere, and then a look everywhere for them.

The findings are compared with a list of the few places where a secret may be read: the one answer that shows it, the
guest's own mail. So nothing may be found too many, and a search that finds nothing at all cannot pass either.
"""

import base64
import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session
from sqlalchemy.engine import make_url
from support.databases import databases
from support.faults import canaries
from support.faults.canaries import Canary
from support.receivers import stripe_ledger
from support.receivers.receivers import LOCAL, OK, Receiver, Receivers, plain, wait_until
from support.receivers.smtp import OK as TAKEN
from support.receivers.smtp import MailServer, Received
from support.receivers.stripe_ledger import Fault, Ledger
from support.world.world import ADULT

from booking_cli.framework.exit_codes import ExitCode
from booking_cli.main import main
from booking_core.models.scopes import Scope

LOUD = """
import sys
from booking_cli.operator import logs
ordinary = logs.config
def loud(log_format):
    found = ordinary(log_format)
    found["root"]["level"] = "DEBUG"
    found["loggers"] = {"sqlalchemy.engine": {"level": "DEBUG"}, "stripe": {"level": "DEBUG"}}
    return found
logs.config = loud
from booking_cli.main import main
sys.exit(main())
"""
"""`booking` with the most detailed log, also of the libraries."""

_SLUG = "fjord-tours"
_BLOCKED = "blocked@example.com"
_LINK = re.compile(r"https://[a-z0-9.]+/manage/[A-Za-z0-9_-]+")


# Secrets, and who is given them ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chosen:
    """The operator's secrets and settings."""

    keys: tuple[str, str] = field(default_factory=lambda: (secrets.token_urlsafe(32), secrets.token_urlsafe(32)))
    stripe: str = field(default_factory=lambda: f"sk_test_{secrets.token_hex(12)}")
    mail: str = field(default_factory=lambda: f"mail/{secrets.token_hex(12)}+%")
    redis: str = field(default_factory=lambda: secrets.token_hex(12))
    database: str = field(default_factory=lambda: secrets.token_hex(12))
    """The test's server does not ask for it; an SQLite database has none."""
    marker: str = field(default_factory=lambda: f"marker{secrets.token_hex(8)}")
    """No secret: a part of the public address, which the log and every link hold."""
    planted: str = field(default_factory=lambda: secrets.token_hex(12))
    """No secret either: it is in a note, encoded, and is found wherever the booking is shown."""

    def canaries(self) -> list[Canary]:
        return [
            *(canaries.canary("secret key", key) for key in self.keys),
            canaries.canary("stripe key", self.stripe, self.stripe.removeprefix("sk_test_")),
            canaries.canary("mail password", self.mail, self.mail[5:-2]),
            canaries.canary("redis password", self.redis),
            canaries.canary("database password", self.database),
            canaries.canary("marker", self.marker),
            canaries.canary("planted", self.planted),
        ]

    def environment(self, url: str, server: MailServer, ledger: Ledger) -> dict[str, str]:
        address = make_url(url) if databases.is_sqlite(url) else make_url(url).set(password=self.database)
        return {
            **LOCAL,
            "BOOKING_DATABASE_URL": address.render_as_string(hide_password=False),
            "BOOKING_SECRET_KEY": ",".join(self.keys),
            "BOOKING_PUBLIC_URL": f"https://{self.marker}.example",
            "BOOKING_RATE_LIMIT": "100000/60",
            "BOOKING_RATE_LIMIT_STORE": f"redis://:{self.redis}@127.0.0.1:1",
            "BOOKING_SMTP_URL": server.url.replace("://", f"://mailer:{quote(self.mail, safe='')}@"),
            "BOOKING_STRIPE_API_KEY": self.stripe,
            "BOOKING_STRIPE_BASE_URL": ledger.base_url,
        }


class Chatty(MailServer):
    """Refuses every login until a test allows it, and a guest's mails always. A refusal repeats the refused text."""

    def __init__(self, password: str) -> None:
        super().__init__(login=("mailer", password))
        self.on_message = self._judge
        self.lets_in = False
        self.refused: list[str] = []
        """The links that were in mails it did not take."""

    def _authenticate(self, one: SMTP, two: Session, three: Envelope, four: str, data: object) -> AuthResult:
        answer = super()._authenticate(one, two, three, four, data)
        if self.lets_in:
            return answer
        return AuthResult(success=False, handled=False, message="535 5.7.8 your login is not known here")

    def _judge(self, received: Received) -> str:
        if received.recipient != _BLOCKED:
            return TAKEN
        self.refused += links(received)[:1]
        return f"554 5.7.1 blocked: {self.refused[-1]}"


def text(received: Received) -> str:
    """Return the mail as it came, and each of its parts as it is read."""
    parts = [part.get_content() for part in received.read.walk() if part.get_content_maintype() == "text"]
    return "\n".join([received.raw.decode(), *parts])


def links(received: Received) -> list[str]:
    return sorted(set(_LINK.findall(text(received).replace("=\r\n", ""))))


# A day -----------------------------------------------------------------------------------------------------------


@dataclass
class Day:
    """The operations of a day, and all output of them by place."""

    url: str
    base_url: str
    log: Path
    out: Callable[[], Any]
    stop: Callable[[], None]
    """Ends the service."""
    chosen: Chosen
    places: dict[str, bytes] = field(default_factory=dict)
    canaries: list[Canary] = field(default_factory=list)
    key: str = ""
    """Of an application that may do everything."""
    http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=30))

    def keep(self, place: str, data: bytes) -> None:
        self.places[place] = self.places.get(place, b"") + b"\n" + data

    def run(self, place: str, *argv: str, code: int = 0) -> str:
        """stdout of the command."""
        self.out()
        ended = main(argv)
        output = self.out()
        assert ended == code, output
        self.keep(f"$ {place}", f"{output.out}\n{output.err}".encode())
        return str(output.out)

    def run_json(self, place: str, *argv: str) -> Any:
        return json.loads(self.run(place, *argv, "-o", "json"))

    def ask(self, place: str, method: str, path: str, body: object = None, *, status: int, **over: Any) -> Any:
        """Send a request and return the body of the answer, if it is JSON."""
        headers = {"authorization": f"Bearer {over.pop('key', self.key)}"} | over.pop("headers", {})
        answer = self.http.request(method, self.base_url + path, json=body, headers=headers, **over)
        assert answer.status_code == status, answer.text
        self.keep(place, repr(answer.headers.raw).encode() + answer.content)
        return answer.json() if "json" in answer.headers.get("content-type", "") and answer.content else None

    def post(self, place: str, path: str, body: object = None, *, status: int, once: str = "") -> Any:
        headers = {"idempotency-key": once or secrets.token_hex(8)}
        return self.ask(place, "POST", f"/api/v1{path}", body, status=status, headers=headers)

    def book(self, place: str, departure: str, note: str, **over: Any) -> Any:
        return self.post(place, "/bookings", order(departure, note, **over), status=201)


def order(departure: str, note: str, **over: Any) -> dict[str, Any]:
    return {
        "experience_date_id": departure,
        "guests": [{"tier_id": "adult", "count": 1}],
        "customer": {"name": "Ada", "email": "ada@example.com"},
        "payment": "pay_on_site",
        "note": note,
    } | over


@contextmanager
def serving(url: str, folder: Path, environment: dict[str, str]) -> Iterator[tuple[str, Path]]:
    """Run `booking serve` with its worker, and yield its address and its log."""
    log = folder / "serve.log"
    logs = {"BOOKING_LOG_FORMAT": "json", "BOOKING_REQUEST_LOG": "1", "STRIPE_LOG": "debug", "PYTHONASYNCIODEBUG": "1"}
    with log.open("wb") as file:
        command = [sys.executable, "-c", LOUD, "serve", "--port", "0", "--debug"]
        process = subprocess.Popen(command, env=os.environ | environment | logs, stdout=file, stderr=file, cwd=folder)
    try:
        wait_until(lambda: b"Uvicorn running on" in log.read_bytes() or process.poll() is not None, "it serves")
        match = re.search(r"Uvicorn running on (http://[0-9.:]+)", log.read_text())
        assert match, log.read_text()
        yield match[1], log
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


@contextmanager
def broken(url: str, table: str) -> Iterator[None]:
    """Make the database refuse rows of that table, with an error that may repeat the row and the statement."""
    if databases.is_sqlite(url):
        refusal = "BEFORE INSERT ON {} BEGIN SELECT RAISE(ABORT, 'broken'); END"
        breaks, mends = f"CREATE TRIGGER broken {refusal.format(table)}", "DROP TRIGGER broken"
    else:
        breaks = f"ALTER TABLE {table} ADD CONSTRAINT broken CHECK (false) NOT VALID"
        mends = f"ALTER TABLE {table} DROP CONSTRAINT broken"
    databases.run(url, breaks)
    try:
        yield
    finally:
        databases.run(url, mends)


@dataclass
class Town:
    """Everybody whom the service speaks to."""

    receiver: Receiver
    server: Chatty
    ledger: Ledger


@pytest.fixture
def chosen() -> Chosen:
    return Chosen()


@pytest.fixture
def town(chosen: Chosen, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    monkeypatch.setattr(stripe_ledger, "KEY", chosen.stripe)
    server = Chatty(chosen.mail)
    with Receivers() as receivers, server, stripe_ledger.stripe() as ledger:
        receiver = receivers.open()
        receiver.choose = lambda _: OK if receiver.receipts else plain(500)
        yield Town(receiver, server, ledger)


@pytest.fixture
def day(
    fresh_database_url: str,
    chosen: Chosen,
    town: Town,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Day]:
    for name in [name for name in os.environ if name.startswith("BOOKING_")]:
        monkeypatch.delenv(name)
    environment = chosen.environment(fresh_database_url, town.server, town.ledger)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("BOOKING_CONFIG_DIR", str(tmp_path / "config"))
    with ExitStack() as stack:
        base_url, log = stack.enter_context(serving(fresh_database_url, tmp_path, environment))
        monkeypatch.setenv("BOOKING_BASE_URL", base_url)
        chosen_canaries = chosen.canaries()
        work = Day(fresh_database_url, base_url, log, capsys.readouterr, stack.close, chosen, canaries=chosen_canaries)
        with work.http:
            yield work


# The day ---------------------------------------------------------------------------------------------------------


def open_shop(day: Day, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Create an organization with keys and a tour, and return the departure's id."""
    fjord = ["--slug", _SLUG, "--name", "Fjord", "--timezone", "Europe/Oslo", "--currency", "NOK"]
    day.run("orgs", "orgs", "create", *fjord)
    day.run("orgs", "orgs", "set", _SLUG, "staff_email=staff@example.com")
    every = [word for scope in Scope for word in ("--scope", scope)]
    day.key = day.run_json("keys create", "keys", "create", "--org", _SLUG, "--name", "app", *every)["key"]
    day.canaries.append(canaries.api_key("key", day.key))
    monkeypatch.setenv("BOOKING_API_KEY", day.key)
    starts_at = (datetime.now(UTC) + timedelta(days=30)).isoformat(timespec="seconds")
    tour = {"slug": "kayak", "title": "Kayak", "is_published": True, "duration_minutes": 60, "price_tiers": [ADULT]}
    file = folder / "catalogue.json"
    file.write_text(json.dumps({"experiences": [tour | {"departures": [{"starts_at": starts_at, "seats_total": 50}]}]}))
    day.run("catalog", "catalog", "import", "--org", _SLUG, str(file))
    window = starts_at[:10]
    return str(day.ask("reads", "GET", f"/api/v1/availability?from={window}", status=200)["data"][0]["id"])


def listen(day: Day, receiver: Receiver) -> str:
    """Create an endpoint, rotate its secret, and return its id."""
    types = ["booking.created", "booking.confirmed", "booking.cancelled", "gift_card.issued", "gift_card.redeemed"]
    endpoint = day.post("POST /webhooks", "/webhooks", {"url": receiver.url, "event_types": types}, status=201)
    rotated = day.post("POST /rotate-secret", f"/webhooks/{endpoint['id']}/rotate-secret", status=200)
    day.canaries += [
        canaries.webhook_secret("webhook secret", endpoint["secret"]),
        canaries.webhook_secret("new webhook secret", rotated["secret"]),
    ]
    return str(endpoint["id"])


def redeem(day: Day, departure: str) -> tuple[str, str]:
    """Id and code of a gift card that paid for a booking and got it back."""
    card = day.run_json("gift-cards issue", "gift-cards", "issue", "--org", _SLUG, "--amount", "500000")
    day.canaries.append(canaries.gift_code("gift code", card["code"]))
    paid = day.run_json("checkout", *checkout(departure, "bob@example.com"), "--gift-card", card["code"].lower())
    assert (paid["status"], paid["totals"]["total"]["amount_minor"]) == ("confirmed", 0)
    day.post("POST /cancel", f"/bookings/{paid['id']}/cancel", {"reason": "ill"}, status=200)
    return str(card["id"]), str(card["code"])


def checkout(departure: str, email: str) -> list[str]:
    who = ["--guest", "adult=1", "--name", "Bob", "--email", email]
    return ["storefront", "checkout", "--org", _SLUG, "--departure", departure, *who]


def refund(day: Day, departure: str, ledger: Ledger) -> None:
    """Cancel two card bookings; Stripe fails once."""
    for number, fault in enumerate((None, Fault.ERROR_BEFORE)):
        sold = day.run_json("checkout", *checkout(departure, f"card-{number}@example.com"))
        ledger.charge(f"pi_{number}", sold["totals"]["total"]["amount_minor"])
        day.run("checkout", "storefront", "pay", sold["id"], "--payment-intent", f"pi_{number}")
        ledger.next_faults.append(fault)
    for sold in day.ask("GET /bookings", "GET", "/api/v1/bookings?limit=2", status=200)["data"]:
        day.post("POST /cancel", f"/bookings/{sold['id']}/cancel", status=200)


def sell(day: Day, departure: str, server: Chatty) -> Any:
    """Create a booking with the planted words in its note, twice with one key; the first login of the mail fails."""
    once, note = secrets.token_hex(8), base64.b64encode(f"See {day.chosen.planted}.".encode()).decode()
    first, again = (
        day.post(place, "/bookings", order(departure, note), status=201, once=once)
        for place in ("POST /bookings", "POST /bookings again")
    )
    assert first == again
    wait_until(lambda: b"login refused" in day.log.read_bytes(), "a login is refused")
    put_off(day.url)
    server.lets_in = True
    day.canaries.append(canaries.manage_link("link", first["manage_url"]))
    mailed = day.book("POST /bookings", departure, "")
    day.canaries.append(canaries.manage_link("mailed link", mailed["manage_url"]))
    blocked = day.book("POST /bookings", departure, "", customer={"name": "Eve", "email": _BLOCKED})
    day.canaries.append(canaries.manage_link("blocked link", blocked["manage_url"]))
    wait_until(lambda: b"was not accepted (refused)" in day.log.read_bytes(), "a mail is refused")
    wait_until(lambda: any(mailed["manage_url"] in links(mail) for mail in server.received), "the guest has a link")
    return first


def put_off(url: str) -> None:
    """Lets the guest's mail wait for an hour, since it was refused. It would be sent after a minute, and a busy machine
    may need more than that for this day."""
    refused = "UPDATE mails SET next_attempt_at = next_attempt_at + 3600000000 WHERE kind = 'booking_confirmation_mail'"
    refused += " AND status = 'queued' AND lease_until IS NULL AND attempt_count > 0"

    with databases.connect(url) as connection:
        wait_until(lambda: connection.execute(refused).rowcount == 1, "the guest's mail is deferred")


def misuse(day: Day, departure: str, booking: Any, code: str) -> None:
    """Requests that are refused, with secrets wherever one can be written."""
    link, token = booking["manage_url"], booking["manage_url"].rpartition("/")[2]
    wrong = day.key[:-1] + ("a" if day.key[-1] != "a" else "b")
    day.ask("refusals", "GET", "/api/v1/me", status=401, key=wrong)
    day.ask("refusals", "GET", "/api/v1/me", status=401, key=code)
    bodies: list[Any] = [
        {"experience_date_id": day.key, "guests": code, "customer": link, "payment": day.chosen.stripe},
        order(departure, link + "\0", customer={"name": "", "email": f"{day.key}@@{code}", "phone": link * 9}),
        order(departure, code, payment=day.key),
        [link, code, day.key],
    ]
    for body in bodies:
        day.post("refusals", "/bookings", body, status=400)
    for path in (f"/bookings?status={day.key}", f"/bookings?starting_after={token}", f"/events?type={code}"):
        day.ask("refusals", "GET", f"/api/v1{path}", status=400)
    for path in (f"/bookings/{day.key}", f"/gift-cards/{code}", f"/customers/{token}"):
        day.ask("refusals", "GET", f"/api/v1{path}", status=404)
    endpoint = {"url": f"https://me:{day.key}@example.com/{code}", "event_types": ["booking.created", token]}
    day.post("refusals", "/webhooks", endpoint, status=400)
    day.post("refusals", "/bookings", order(departure, "", guests=[{"tier_id": code, "count": 1}]), status=422)
    day.ask("refusals", "GET", f"/manage/{token[:-1]}", status=404)
    day.ask("refusals", "GET", f"/manage/{token}x", status=404)
    day.ask("the guest's page", "GET", f"/manage/{token}", status=200, headers={"authorization": ""})


def look_around(day: Day, reader: str, booking: Any, card_id: str, endpoint: str) -> None:
    """Everything that can be read: with a key that may not see links, then with a key that may."""
    paths = ["/me", "/bookings", f"/bookings/{booking['id']}", "/customers", "/gift-cards", f"/gift-cards/{card_id}"]
    paths += ["/events?limit=100", "/experiences"]
    for path in paths:
        day.ask("a reader's reads", "GET", f"/api/v1{path}", status=200, key=reader)
    for event in day.ask("a reader's reads", "GET", "/api/v1/events?limit=100", status=200, key=reader)["data"]:
        day.ask("a reader's reads", "GET", f"/api/v1/events/{event['id']}", status=200, key=reader)
    assert day.ask("a reader's reads", "GET", f"/api/v1{paths[2]}", status=200, key=reader)["manage_url"] is None
    for path in (f"/webhooks/{endpoint}", "/webhooks", f"/webhooks/{endpoint}/deliveries?limit=100", "/events"):
        day.ask("reads", "GET", f"/api/v1{path}", status=200)
    day.ask("GET /gift-cards?include=code", "GET", f"/api/v1/gift-cards/{card_id}?include=code", status=200)
    for path in ("/bookings", paths[2]):
        day.ask("GET /bookings", "GET", f"/api/v1{path}", status=200)


def operate(day: Day, booking: Any, card_id: str, endpoint: str) -> None:
    """Run the commands and requests of an operator and an integrator, and keep all of their output."""
    for argv in (
        ("config", "get"),
        ("orgs", "list"),
        ("orgs", "show", _SLUG),
        ("keys", "list", "--org", _SLUG),
        ("db", "check"),
        ("whoami",),
        ("gift-cards", "get", card_id),
        ("gift-cards", "list"),
        ("webhooks", "show", endpoint),
        ("webhooks", "deliveries", "list", endpoint),
        ("events", "list"),
        ("api", "GET", "/api/v1/me"),
    ):
        day.run("commands", *argv, "-v", "--debug")
    day.run("commands", "doctor", "-v", "--debug", code=ExitCode.NEEDS_PERSON)  # a mail was refused
    day.run("gift-cards get --include-code", "gift-cards", "get", card_id, "--include-code")
    day.run("catalog export", "catalog", "export", "--org", _SLUG)
    day.run("bookings get", "bookings", "get", booking["id"], "-o", "json")


def fail(day: Day, departure: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that fail with a traceback."""
    buy = [*checkout(departure, "cy@example.com"), "--gift-card", code]
    issue = ["gift-cards", "issue", "--org", _SLUG, "--amount", "100", "--code", code]
    day.run("failures", *issue, "--debug", code=ExitCode.CONFLICT)
    day.run("failures", *buy, "--guest", "nobody=1", "--debug", code=ExitCode.INVALID)
    day.run("failures", "bookings", "get", "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07", "--debug", code=ExitCode.NOT_FOUND)
    with monkeypatch.context() as patch:
        patch.setenv("BOOKING_API_KEY", day.key[:-1] + "?")
        day.run("failures", "whoami", "--debug", "-v", code=ExitCode.AUTH)
        patch.setenv("BOOKING_API_KEY", day.key)
        patch.setenv("BOOKING_BASE_URL", "http://127.0.0.1:1")
        day.run("failures", "whoami", "--debug", "-v", code=ExitCode.NETWORK)
        patch.setenv("BOOKING_SMTP_URL", f"smtp://mailer:{day.chosen.mail}@127.0.0.1:port")
        day.run("failures", "serve", "--debug", code=ExitCode.USAGE)
        patch.delenv("BOOKING_SMTP_URL")
        patch.setenv("BOOKING_DATABASE_URL", f"postgresql://me:{day.chosen.database}@127.0.0.1:1/booking")
        day.run("failures", "orgs", "list", "--debug", code=ExitCode.SERVER)
        patch.setenv("BOOKING_DATABASE_URL", f"mysql://me:{day.chosen.database}@127.0.0.1:1/booking")
        day.run("failures", "orgs", "list", "--debug", code=ExitCode.USAGE)


def break_down(day: Day, departure: str, code: str) -> None:
    """Send requests whose writes the database refuses."""
    buy = [*checkout(departure, "cy@example.com"), "--gift-card", code, "--debug"]
    for table in ("bookings", "gift_card_entries"):
        with broken(day.url, table):
            day.run("failures", *buy, code=ExitCode.FAILED)
    for table in ("bookings", "idempotency"):
        with broken(day.url, table):
            day.post("refusals", "/bookings", order(departure, ""), status=500)


# The findings ----------------------------------------------------------------------------------------------------

ALLOWED = {
    "key": {"$ keys create"},
    "webhook secret": {"POST /webhooks"},
    "new webhook secret": {"POST /rotate-secret"},
    "gift code": {
        *("$ gift-cards issue", "$ gift-cards get --include-code", "$ catalog export"),
        "GET /gift-cards?include=code",
    },
    "link": {
        *("POST /bookings", "POST /bookings again", "POST /cancel", "GET /bookings"),
        *("$ bookings get", "the guest's page"),
    },
    "blocked link": {"POST /bookings", "GET /bookings"},
    "mailed link": {"POST /bookings", "GET /bookings", "mails"},
}
"""The places where a secret may be read, and is. No other may hold one."""
NOTED = {
    *("table bookings", "table events", "deliveries", "$ bookings get"),
    *("POST /bookings", "POST /bookings again", "POST /cancel", "GET /bookings", "a reader's reads", "reads"),
}
"""The places where a note may be read, and is."""


@pytest.mark.exhaustive
def test_a_day_of_work_leaves_no_secret_where_it_should_not_be(
    day: Day, town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    departure = open_shop(day, tmp_path, monkeypatch)
    reader = day.run_json("keys create", "keys", "create", "--org", _SLUG, "--name", "reader", "--all-read")["key"]
    day.canaries.append(canaries.api_key("key", reader))
    endpoint = listen(day, town.receiver)
    booking = sell(day, departure, town.server)
    card_id, code = redeem(day, departure)
    refund(day, departure, town.ledger)
    misuse(day, departure, booking, code)
    day.post("POST /cancel", f"/bookings/{booking['id']}/cancel", {"reason": "ill"}, status=200)
    settle(day, endpoint, town)
    look_around(day, reader, booking, card_id, endpoint)
    operate(day, booking, card_id, endpoint)
    fail(day, departure, code, monkeypatch)
    break_down(day, departure, code)
    look(day, town)
    hits = canaries.sweep(day.canaries, day.places)
    expected = {(name, place) for name, places in ALLOWED.items() for place in places}
    assert {(name, place) for name, place in hits if name not in ("marker", "planted")} == expected
    noted = {place for name, place in hits if name == "planted" and not place.startswith("file")}
    assert noted - {"mails"} == NOTED  # those to staff are written when there is time
    assert ("marker", "log") in hits
    for operation in (b"create_booking", b"cancel_booking", b"create_webhook"):  # each request has a line
        assert b'"operation": "%b"' % operation in day.places["log"]
    if databases.is_sqlite(day.url):
        assert {("planted", "file *"), ("planted", "file *-wal")} <= hits
    assert town.server.logins
    assert town.ledger.refunds("pi_0")


def settle(day: Day, endpoint: str, town: Town) -> None:
    """Until only rows with a wait of minutes are left."""

    def is_over() -> bool:
        waiting = f"/api/v1/webhooks/{endpoint}/deliveries?status=queued"
        if day.ask("reads", "GET", waiting, status=200)["data"] or len(town.ledger.keys()) < 2:
            return False
        with databases.connect(day.url) as connection:
            queued = connection.execute("SELECT count(*) FROM effects WHERE status = 'queued'").fetchone()
            new = connection.execute("SELECT count(*) FROM mails WHERE status = 'queued' AND attempt_count = 0")
            return bool(queued == (0,) and new.fetchone() == (0,))

    wait_until(is_over, "everything is sent")


def look(day: Day, town: Town) -> None:
    """Everywhere: while the service runs, and after its end."""
    for _ in range(2):
        for place, content in canaries.stored(day.url).items():
            day.keep(place, content)
        day.http.close()
        day.stop()
    day.keep("log", day.log.read_bytes())
    for receipt in town.receiver.receipts:
        day.keep("deliveries", repr(receipt.headers).encode() + receipt.body)
    day.keep("mails", "\n".join(map(text, town.server.received)).encode())


# The search ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize(
    "write",
    [bytes, bytes.hex, base64.b64encode, base64.urlsafe_b64encode, quote],
    ids=["as it is", "hex", "base64", "urlsafe", "in a URL"],
)
def test_a_secret_is_found_in_every_notation_and_after_any_text(write: Callable[[bytes], Any], before: int) -> None:
    secret = "hush/\xff?+hush"
    written = write(b"." * before + secret.encode() + b", he said")
    hay = b"{" + (written.encode() if isinstance(written, str) else written) + b"}"
    places = {"here": hay, "there": hay.replace(b"u", b"v").replace(b"7", b"8")}
    assert ("it", "here") in canaries.sweep([canaries.canary("it", secret)], places)
    assert canaries.sweep([canaries.canary("another", "whisper")], places) == set()
