"""Every command's JSON, read by a parser: in both modes stdout holds JSON and nothing else, and stderr nothing."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import leaves
from support.operations import Operations
from support.world import DAY, World

from booking_cli.framework import output_fields
from booking_cli.framework.command import OUTPUT_SPEC, OutputSpec
from booking_cli.framework.formatting import paths_of
from booking_core.base import tokens
from booking_core.base.clock import system_clock
from booking_core.db import tables
from booking_core.models.bookings import PaymentMode, RefundMode

Booking = Callable[..., Any]
Words = tuple[str, ...]

ENDLESS = {("serve",), ("worker",), ("demo",), ("sandbox", "serve"), ("webhooks", "listen")}
"""They go on until they are stopped; their own tests read what they write."""
OF_CELLS = {("cells", "create")}
"""They need several cells of PostgreSQL; their own tests read what they write."""
OF_SANDBOXES = {("sandbox", "clock"), ("sandbox", "advance"), ("sandbox", "mails"), ("sandbox", "pay")}
"""They need the key of a sandbox; their own tests read what they write."""

CATALOGUE = '{"experiences": [{"slug": "sauna", "title": "Sauna", "is_published": true}]}'
HOOK = ("--url", "https://127.0.0.1:8443/hook", "--event", "booking.created")


class Everything:
    """An organization with one of each resource, and the arguments for each command."""

    def __init__(self, shop: World, booking: Booking, folder: Path) -> None:
        self.shop, self.slug = shop, shop.organization.slug
        self.booking = booking
        self.operations = Operations(shop)
        self.departure = shop.departure(shop.experience())
        self.later = shop.departure(shop.experience(), starts_at=shop.clock() + 3 * DAY)
        self.catalogue, self.secret = folder / "catalogue.json", folder / "secret"
        self.catalogue.write_text(CATALOGUE)
        self.secret.write_text("whsec_" + "QUJD" * 11)
        self.body = folder / "body.json"
        self.body.write_text('{"id": "1", "type": "ping"}')
        self.folder, self.count = folder, 0

    def made(self, *argv: str) -> str:
        """Return the id of a new resource."""
        done = self.booking(*argv, "-o", "json")
        assert done.code == 0, done.err
        return str(done.json["id"])

    def fresh(self) -> str:
        self.count += 1
        return f"fresh-{self.count}"

    def key(self) -> str:
        return self.made("keys", "create", "--org", self.slug, "--name", self.fresh())

    def card(self) -> str:
        return self.made("gift-cards", "issue", "--org", self.slug, "--amount", "500")

    def customer(self) -> str:
        return self.made("customers", "create", "--name", "Ada", "--email", f"{self.fresh()}@example.com")

    def pending(self) -> str:
        return str(self.operations.check_out(self.departure)["id"])

    def hook(self) -> str:
        return self.made("webhooks", "create", *HOOK)

    def restorable(self) -> Path:
        """Return a backup, and set the environment to the SQLite database that it was made from, which is empty."""
        os.environ["BOOKING_DATABASE_URL"] = f"sqlite:///{self.folder / self.fresh()}.db"  # the fixture resets it
        file = self.folder / f"{self.fresh()}.backup"
        assert self.booking("db", "upgrade").code == self.booking("backup", str(file)).code == 0
        return file

    def delivery(self, status: str = "dead") -> Words:
        """Return an endpoint and a failed delivery of it."""
        hook = self.hook()
        made = self.booking("webhooks", "test", hook, "-o", "json").json["id"]
        self.shop.change(tables.deliveries, made, status=status)
        return hook, made

    def event(self) -> str:
        self.customer()
        return str(self.booking("events", "list", "-n", "1", "--fields", "id").out.strip())

    def leaving(self) -> str:
        """Return a departure with a booking."""
        departure = self.shop.departure(self.shop.experience())
        self.operations.book(departure)
        return departure

    def hold(self) -> str:
        return self.operations.hold(self.departure, 1)

    def mail(self) -> str:
        """Return the outbox key of a mail that could not be written."""
        kind, subject_id, now = "staff_key_expiring_mail", tokens.new_id(), system_clock()
        row = {"key": f"{kind}:{subject_id}", "kind": kind, "subject_id": subject_id, "due_at": now, "created_at": now}
        payload = json.dumps({"name": "x", "prefix": "svc", "expires_at": now})
        given_up = {"status": "failed", "last_error": "ValueError", "completed_at": now}
        self.shop.insert(tables.effects, **row, **given_up, payload=payload)
        return row["key"]

    def cancelled(self) -> str:
        """Return a cancelled booking that was paid by card, without a refund."""
        booking_id = self.pending()
        self.operations.pay(booking_id)
        self.operations.cancel(booking_id, refund=RefundMode.NONE)
        return booking_id

    def refund(self) -> str:
        """Return a refund that waits for a person."""
        booking_id = self.pending()
        self.operations.pay(booking_id)
        self.operations.cancel(booking_id)
        (found,) = [row for row in self.shop.rows(tables.refunds) if row["booking_id"] == booking_id]
        self.shop.change(tables.refunds, found["id"], status="needs_review", last_error="no_gateway")
        return str(found["id"])

    def stripe(self) -> Words:
        """Return the organization, which has an account at Stripe."""
        assert self.booking("stripe", "set", *self.stripe_keys(), "-o", "json").code == 0
        return ("--org", self.slug)

    def stripe_keys(self) -> Words:
        """Return the options of an account at Stripe."""
        api_key, secret = self.folder / "stripe.key", self.folder / "whsec.key"
        api_key.write_text("sk_test_of_a_command\n")
        secret.write_text("whsec_of_a_command\n")
        return ("--org", self.slug, "--api-key-file", str(api_key), "--webhook-secret-file", str(secret))

    def payment_to_review(self) -> str:
        """Return a booking whose payment at Stripe waits for a person."""
        booking_id, now = self.pending(), system_clock()
        own = {"status": "needs_review", "last_error": "amount_differs", "intent_id": f"pi_{booking_id}"}
        times = {"created_at": now, "updated_at": now}
        money = {"amount_minor": 1, "currency": "NOK"}
        self.shop.insert(tables.payment_intents, booking_id=booking_id, **own, **money, **times)
        return booking_id

    def on_site(self) -> str:
        return str(self.operations.book(self.later, payment=PaymentMode.PAY_ON_SITE)["id"])

    def record(self) -> str:
        """Return a payment that staff recorded."""
        booking_id = self.on_site()
        assert self.booking("payments", "record", booking_id, "--amount", "1", "-o", "json").code == 0
        (found,) = [row for row in self.shop.rows(tables.payment_records) if row["booking_id"] == booking_id]
        return str(found["id"])


PERSON = ("--name", "Ada", "--email", "ada@example.com")

HOW: dict[Words, Callable[[Everything], Words]] = {
    ("login",): lambda it: ("--api-key-stdin", "--secret-file", str(it.folder / it.fresh())),
    ("config", "use"): lambda it: ("default",),
    ("config", "get"): lambda it: ("profile",),
    ("config", "set"): lambda it: ("base_url=http://127.0.0.1:1", "--profile", "default"),
    ("experiences", "get"): lambda it: (it.shop.experience(),),
    ("bookings", "get"): lambda it: (it.pending(),),
    ("bookings", "create"): lambda it: (
        *("--departure", it.departure, "--guest", "adult=1", "--payment", "invoice"),
        *PERSON,
    ),
    ("checkouts", "create"): lambda it: (
        *("--departure", it.departure, "--guest", "adult=1", "--gift-card", it.operations.issue(500_000)[1]),
        *PERSON,
    ),
    ("checkouts", "get"): lambda it: (it.pending(),),
    ("bookings", "quote"): lambda it: ("--departure", it.departure, "--guest", "adult=1"),
    ("bookings", "cancel"): lambda it: (it.pending(), "--yes"),
    ("bookings", "check-in"): lambda it: (it.on_site(),),
    ("bookings", "no-show"): lambda it: (it.on_site(),),
    ("bookings", "change-party"): lambda it: (it.on_site(), "--guest", "adult=1"),
    ("bookings", "confirm"): lambda it: (it.pending(),),
    ("bookings", "reschedule"): lambda it: (it.pending(), "--departure", it.later),
    ("holds", "create"): lambda it: ("--departure", it.departure, "--seats", "1"),
    ("holds", "get"): lambda it: (it.hold(),),
    ("holds", "delete"): lambda it: (it.hold(),),
    ("customers", "get"): lambda it: (it.customer(),),
    ("customers", "export"): lambda it: (it.customer(),),
    ("customers", "anonymize"): lambda it: (it.customer(), "--yes"),
    ("audit", "list"): lambda it: ("--org", it.slug),
    ("customers", "create"): lambda it: PERSON,
    ("customers", "update"): lambda it: (it.customer(), "--name", "Grace"),
    ("gift-cards", "get"): lambda it: (it.card(),),
    ("gift-cards", "transactions"): lambda it: (it.card(),),
    ("gift-cards", "issue"): lambda it: ("--org", it.slug, "--amount", "500"),
    ("gift-cards", "deactivate"): lambda it: (it.card(),),
    ("gift-cards", "reactivate"): lambda it: (it.card(),),
    ("events", "get"): lambda it: (it.event(),),
    ("webhooks", "create"): lambda it: HOOK,
    ("webhooks", "show"): lambda it: (it.hook(),),
    ("webhooks", "update"): lambda it: (it.hook(), "--description", "The calendar"),
    ("webhooks", "delete"): lambda it: (it.hook(), "--yes"),
    ("webhooks", "enable"): lambda it: (it.hook(),),
    ("webhooks", "rotate-secret"): lambda it: (it.hook(),),
    ("webhooks", "test"): lambda it: (it.hook(),),
    ("webhooks", "recover"): lambda it: (it.hook(), "--since", "2h"),
    ("webhooks", "trigger"): lambda it: ("booking.created", "--secret-file", str(it.secret)),
    ("webhooks", "sign"): lambda it: (str(it.body), "--secret-file", str(it.secret)),
    ("webhooks", "verify"): lambda it: ("--secret-file", str(it.secret), "--delivery", str(_signed(it))),
    ("webhooks", "deliveries", "list"): lambda it: it.delivery()[:1],
    ("webhooks", "deliveries", "show"): lambda it: it.delivery(),
    ("webhooks", "deliveries", "retry"): lambda it: it.delivery(),
    ("webhooks", "redeliver"): lambda it: (it.hook(), it.event()),
    ("api",): lambda it: ("GET", "me"),
    ("orgs", "create"): lambda it: ("--slug", it.fresh(), "--name", "x", "--timezone", "UTC", "--currency", "EUR"),
    ("orgs", "show"): lambda it: (it.slug,),
    ("orgs", "notify-email"): lambda it: (it.slug,),
    ("orgs", "set"): lambda it: (it.slug, "pending_minutes=20"),
    ("keys", "create"): lambda it: ("--org", it.slug, "--name", "x"),
    ("keys", "list"): lambda it: ("--org", it.slug),
    ("keys", "show"): lambda it: (it.key(),),
    ("keys", "revoke"): lambda it: (it.key(), "--yes"),
    ("keys", "rotate"): lambda it: (it.key(),),
    ("keys", "expire"): lambda it: (it.key(), "--at", "2999-01-01"),
    ("catalog", "import"): lambda it: ("--org", it.slug, str(it.catalogue)),
    ("catalog", "export"): lambda it: ("--org", it.slug),
    ("catalog", "validate"): lambda it: (str(it.catalogue),),
    ("departures", "list"): lambda it: ("--org", it.slug, "--date", "tomorrow"),
    ("departures", "get"): lambda it: (it.leaving(),),
    ("departures", "show"): lambda it: (it.leaving(),),
    ("departures", "manifest"): lambda it: (it.leaving(),),
    ("departures", "close"): lambda it: (it.leaving(),),
    ("departures", "reopen"): lambda it: (it.leaving(),),
    ("departures", "seats"): lambda it: (it.leaving(), "16"),
    ("departures", "cancel"): lambda it: (it.leaving(), "--yes"),
    ("storefront", "hold"): lambda it: ("--org", it.slug, "--departure", it.departure, "--seats", "1"),
    ("storefront", "release"): lambda it: (it.hold(),),
    ("storefront", "checkout"): lambda it: (
        *("--org", it.slug, "--departure", it.departure, "--guest", "adult=1"),
        *PERSON,
    ),
    ("storefront", "pay"): lambda it: (it.pending(),),
    ("stripe", "set"): lambda it: it.stripe_keys(),
    ("stripe", "show"): lambda it: it.stripe(),
    ("stripe", "remove"): lambda it: (*it.stripe(), "--yes"),
    ("stripe", "payments"): lambda it: ("--org", it.slug),
    ("stripe", "resolve"): lambda it: (it.payment_to_review(), "--note", "Refunded at Stripe"),
    ("payments", "record"): lambda it: (it.on_site(), "--amount", "890.00", "--method", "cash"),
    ("payments", "list"): lambda it: (it.on_site(),),
    ("payments", "void"): lambda it: (it.record(),),
    ("payments", "due"): lambda it: ("--org", it.slug),
    ("refunds", "show"): lambda it: (it.refund(),),
    ("refunds", "retry"): lambda it: (it.refund(),),
    ("refunds", "settle"): lambda it: (it.refund(), "--note", "Cash"),
    ("refunds", "record"): lambda it: (it.cancelled(), "--amount", "1", "--note", "Cash"),
    ("mails", "show"): lambda it: (it.mail(),),
    ("mails", "retry"): lambda it: (it.mail(),),
    ("backup",): lambda it: (str(it.folder / it.fresh()),),
    ("restore",): lambda it: (str(it.restorable()),),
    ("doctor",): lambda it: ("--org", it.slug),
    ("completion",): lambda it: ("bash",),
    ("help",): lambda it: ("webhooks",),
}
"""The expected value behind each command; a command that is not here has none."""


def _signed(it: Everything) -> Path:
    file = it.folder / "delivery.json"
    signed = it.booking("webhooks", "sign", str(it.body), "--secret-file", str(it.secret), "-o", "json")
    file.write_text(signed.out)
    return file


def _commands() -> list[Words]:
    found = [leaf.words for leaf in leaves()]
    return [words for words in found if words not in ENDLESS | OF_CELLS | OF_SANDBOXES]


@pytest.fixture
def it(shop: World, booking: Booking, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Everything:
    key = shop.key()

    class Stdin:
        isatty = staticmethod(lambda: False)
        readline = staticmethod(lambda: f"{key}\n")

    made = Everything(shop, booking, tmp_path)
    monkeypatch.setenv("BOOKING_MAIL_DIR", str(tmp_path / "mails"))  # or the doctor tells that mails cannot leave
    monkeypatch.setattr("sys.stdin", Stdin)
    assert booking("login", "--api-key-stdin", "--secret-file", str(tmp_path / "kept")).code == 0
    return made


@pytest.mark.parametrize("words", _commands(), ids=" ".join)
def test_what_a_command_writes_can_be_parsed_and_has_the_fields_of_its_shape(it: Everything, words: Words) -> None:
    def run(name: str, *options: str) -> Any:
        # Logging in again needs a profile of its own: the key's file of the first one is in use.
        profile = ("--profile", name) if words == ("login",) else ()
        return it.booking(*words, *HOW.get(words, lambda _: ())(it), *profile, *options)

    one, many = run("one", "-o", "json"), run("many", "-o", "jsonl")
    assert (one.code, one.err) == (0, "")
    assert (many.code, many.err) == (0, "")
    _assert_that_the_modes_agree(words, one.json, [json.loads(line) for line in many.out.splitlines()])
    if shape := _declared(words).shape:
        _assert_that_it_has(shape, one.json)
        _assert_that_it_names_the_fields_of(shape, run("refused", "--fields", "nosuch", "-o", "json"))


def _assert_that_the_modes_agree(words: Words, whole: Any, lines: list[Any]) -> None:
    assert isinstance(whole, dict)
    if "data" in whole and words != ("api",) and isinstance(whole["data"], list):
        assert {"data", "has_more", "next_cursor"} <= whole.keys()
        assert all(isinstance(each, dict) for each in lines)
    else:
        (line,) = lines
        assert line.keys() == whole.keys()


def _assert_that_it_has(shape: str, whole: Any) -> None:
    items = whole["data"] if isinstance(whole.get("data"), list) else [whole]
    assert [path for path in set(paths_of(items)) if not output_fields.has_field(shape, path)] == []


def _assert_that_it_names_the_fields_of(shape: str, refused: Any) -> None:
    assert (refused.code, refused.out, refused.error["code"]) == (2, "", "unknown_field")
    assert set(output_fields.paths(shape)) <= set(refused.error["hint"].removeprefix("the fields are ").split(", "))


def test_every_command_that_takes_arguments_is_among_them() -> None:
    assert set(HOW) <= set(_commands())


@pytest.mark.parametrize("words", [words for words in _commands() if words in HOW], ids=" ".join)
def test_what_a_command_refuses_is_one_json_object(booking: Booking, words: Words) -> None:
    refused = booking(*words, "--no-such-option", "-o", "json")
    assert (refused.code, refused.out) == (2, "")
    assert refused.error["code"] == "usage"


READS = {
    ("cells", "list"),
    *{("config", each) for each in ("show", "list", "get", "path")},
    *{(each, "list") for each in ("experiences", "bookings", "customers", "gift-cards", "events", "webhooks", "orgs")},
    *{(each, "get") for each in ("experiences", "bookings", "holds", "customers", "gift-cards", "events")},
    ("bookings", "quote"),
    *{("checkouts", "get"), ("stripe", "show"), ("stripe", "payments")},
    ("gift-cards", "transactions"),
    *{("webhooks", each) for each in ("show", "sign", "verify", "trigger")},
    *{("webhooks", "deliveries", each) for each in ("list", "show")},
    *{("keys", each) for each in ("list", "show")},
    *{("mails", each) for each in ("list", "show")},
    *{("customers", "export"), ("audit", "list")},
    *{("catalog", each) for each in ("export", "validate")},
    *{("db", each) for each in ("current", "check")},
    *{("departures", each) for each in ("list", "get", "show", "manifest")},
    *{("payments", each) for each in ("list", "due")},
    *{("refunds", each) for each in ("list", "show")},
    ("secrets", "status"),
    *{("events", "tail"), ("orgs", "show"), ("logout",)},
    *{(each,) for each in ("whoami", "availability", "api", "doctor", "completion", "commands", "help")},
}
"""Commands that change nothing which `--fields` could hide; `api` shows what is answered, whatever it is, and `logout`
says one thing."""


def _declared(words: Words) -> OutputSpec:
    leaf = next(each for each in leaves() if each.words == words)
    found: OutputSpec = getattr(leaf.command.callback, OUTPUT_SPEC, OutputSpec())
    return found


@pytest.mark.parametrize("words", _commands(), ids=" ".join)
def test_a_command_that_changes_something_declares_what_it_writes(words: Words) -> None:
    declared = _declared(words)
    assert declared.changes is (words not in READS), (
        'declare @command(..., shape="…", changes=True), or name it in READS'
    )
    assert declared.shape or not declared.changes
