"""An organization that has a value of every sealed kind."""

import json
from dataclasses import dataclass, replace
from typing import Any

from booking_core import notifications
from booking_core.base import gift_codes
from booking_core.base.context import Actor, Installation
from booking_core.base.tokens import SecretKeys
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.payments import gift_cards, stripe_accounts
from booking_core.records.idempotency import Answer
from booking_core.records.outbox import OutboxKind
from booking_core.upkeep import secret_keys
from support.world.creating import create, created
from support.world.hooks import Hooks
from support.world.mails import Mails
from support.world.world import World

CODE = "GIFT-ABCD-1234"
KEY = "a-key-of-a-guest"
HEADERS = b'{"X-Key":"v"}'
PURPOSES = {
    tables.webhook_secrets: ("webhook_secret", "secret_sealed"),
    tables.webhook_endpoints: ("webhook_headers", "headers_sealed"),
    tables.gift_cards: ("gift_card_code", "code_sealed"),
    tables.idempotency: ("idempotency", "body_sealed"),
    tables.mails: ("mail", "message"),
    tables.stripe_accounts: ("stripe_account", "credentials_sealed"),
    tables.payment_intents: ("client_secret", "client_secret_sealed"),
}
ACCOUNT = {"api_key": "sk_test_of_sealed", "webhook_secret": "whsec_of_sealed"}
CLIENT_SECRET = b"pi_1_secret_of_a_guest"


@dataclass
class Sealed:
    """The organization, and its plain values at the time of sealing."""

    world: World
    departure: str = ""
    booking: str = ""
    answer: bytes = b""
    card: str = ""
    endpoint: str = ""
    secret: str = ""
    mail: bytes = b""
    token: str = ""

    @property
    def database(self) -> Database:
        return self.world.database

    def use(self, *keys: str) -> SecretKeys:
        """Continue with these secret keys, like a process that is started with them."""
        self.world.installation = replace(self.world.installation, secret_keys=SecretKeys(*keys))
        self.world.installation = secret_keys.with_link_keys(self.database, self.world.installation)
        return self.world.installation.secret_keys

    def fill(self, **endpoint: Any) -> "Sealed":
        """Seal a value of every kind with the key in use.

        Args:
            endpoint: columns of the webhook endpoint.
        """
        world = self.world
        self.card = world.gift_card(CODE, amount_minor=50_000)
        hooks = Hooks(world)
        self.endpoint = hooks.endpoint(**endpoint)
        self.secret = hooks.secrets[self.endpoint]
        headers = world.installation.secret_keys.seal("webhook_headers", HEADERS, world.org, self.endpoint)
        world.change(tables.webhook_endpoints, self.endpoint, headers_sealed=headers, header_names='["X-Key"]')
        self.departure = world.departure(world.experience(), seats=50_000)
        self.answer = self.book(KEY).body
        self.booking = json.loads(self.answer)["id"]
        self.token = json.loads(self.answer)["manage_url"].rpartition("/")[2]
        assert Mails(world).write()
        self.mail = self.opened_mail()
        self._fill_payment()
        return self

    def _fill_payment(self) -> None:
        """Seal the keys of a Stripe account, and the client secret of a payment."""
        world, now = self.world, self.world.clock()
        actor = Actor(installation=world.installation, organization=world.organization, at=now)
        self.database.write(lambda tx: stripe_accounts.configure(tx, actor, **ACCOUNT))
        sealed = world.installation.secret_keys.seal("client_secret", CLIENT_SECRET, world.org, self.booking)
        world.insert(
            tables.payment_intents,
            booking_id=self.booking,
            client_secret_sealed=sealed,
            status="resolved",
            amount_minor=1,
            currency="NOK",
            created_at=now,
            updated_at=now,
        )

    def book(self, key: str) -> Answer:
        """Make a booking, or replay it."""
        (answer,) = created(self.database, [create(self.world, self.departure, key)])
        assert isinstance(answer, Answer), answer
        return answer

    def assert_all_open(self) -> None:
        """Use every sealed value: show it, find it, sign with it, send it, replay it, open it."""
        world = self.world
        card = self.database.read(lambda tx: gift_cards.get(tx, world.caller(), self.card, include_code=True))
        assert card["code"] == CODE
        hashes = gift_codes.code_hashes(world.installation.secret_keys, world.org, CODE)
        assert world.row(tables.gift_cards, self.card)["code_hash"] in hashes
        replayed = self.book(KEY)
        assert (replayed.replayed, replayed.body) == (True, self.answer)
        assert self.opened_mail() == self.mail
        assert self.live_secrets() == [self.secret]
        row = world.row(tables.webhook_endpoints, self.endpoint)
        keys = world.installation.secret_keys
        assert keys.open("webhook_headers", row["headers_sealed"], world.org, self.endpoint) == HEADERS
        assert self.opened() == self.booking
        keys = world.installation.secret_keys
        account = self.database.read(lambda tx: stripe_accounts.find(tx, keys, world.org))
        assert account is not None
        assert (account.api_key, account.webhook_secret) == (ACCOUNT["api_key"], ACCOUNT["webhook_secret"])
        (intent,) = world.rows(tables.payment_intents)
        opened = keys.open("client_secret", intent["client_secret_sealed"], world.org, intent["booking_id"])
        assert opened == CLIENT_SECRET

    def opened_mail(self) -> bytes:
        """Return the guest's confirmation of the first booking, as it will be sent."""
        identity = (self.booking, OutboxKind.BOOKING_CONFIRMATION_MAIL.value)
        (row,) = [row for row in self.world.rows(tables.mails) if (row["booking_id"], row["kind"]) == identity]
        return self.world.installation.secret_keys.open("mail", row["message"], self.world.org, row["id"])

    def live_secrets(self) -> list[str]:
        keys = self.world.installation.secret_keys
        return [
            keys.open("webhook_secret", row["secret_sealed"], self.world.org, row["endpoint_id"], row["id"]).decode()
            for row in self.world.rows(tables.webhook_secrets)
        ]

    def opened(self) -> str:
        """Return the booking that the link of the first answer opens."""
        installation: Installation = self.world.installation
        return self.database.read(lambda tx: notifications.open_link(tx, installation, self.token)).row.id

    def overwrite(self, table: Any, row: dict[str, Any], **columns: str) -> None:
        """Change columns of a row directly in the database."""
        from sqlalchemy import bindparam, update

        from booking_core.db.statements import Statement

        conditions = [table.c[name.name] == bindparam(f"_{name.name}", type_=name.type) for name in table.primary_key]
        statement = Statement(update(table).where(*conditions).values({name: bindparam(name) for name in columns}))
        keys = {f"_{name.name}": row[name.name] for name in table.primary_key}
        assert self.database.write(lambda tx: tx.run(statement, **keys, **columns)) == 1


def bound_to(table: Any, row: dict[str, Any]) -> tuple[str, ...]:
    """Return the columns that a value of the table is sealed for."""
    names = {
        tables.webhook_secrets: ("organization_id", "endpoint_id", "id"),
        tables.idempotency: ("organization_id", "key"),
        tables.stripe_accounts: ("organization_id",),
        tables.payment_intents: ("organization_id", "booking_id"),
    }
    return tuple(row[name] for name in names.get(table, ("organization_id", "id")))
