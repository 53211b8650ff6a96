"""A guest with a history of every kind, and a second guest."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from booking_core import bookings, notifications, payments
from booking_core.base.clock import MINUTE
from booking_core.customers import erasures
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.models.bookings import GuestInput
from booking_core.models.events import EventType
from booking_core.models.webhooks import AttemptError
from booking_core.notifications import MailOutcome, MailResult
from booking_core.payments import RefundOutcome, RefundResult
from support.api.api import Api, booking_body
from support.databases import databases, due
from support.faults.canaries import _TABLES
from support.world.hooks import Hooks
from support.world.mails import Mails
from support.world.operations import Operations
from support.world.world import DAY, NOON

ADA = {"name": "Ada Canaryname", "email": "Ada@Canarymail.example", "phone": "+47 99887766554"}
EVE = {"name": "Eve Other", "email": "eve@other.example", "phone": "+47 22"}
NOTE = "Canarynote: allergic to nuts"
TRACES = ("canary", "99887766554")
"""Parts of the first guest's data, in lower case: none may remain after the erasure."""
PERSONAL = {
    *("guest_name", "guest_email", "guest_phone", "note", "cancel_note", "voided_note", "settled_note"),
    *("external_reference", "metadata", "manage_key_id", "manage_expires_at", "updated_at"),
}
TYPES = tuple(kind for kind in EventType if kind.resource_type in ("booking", "customer", "gift_card"))


def _row_id(row: dict[str, Any]) -> str:
    return str(row.get("id"))


@dataclass
class Guests:
    """An organization with two guests, and the requests about the first."""

    api: Api
    url: str
    answers: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """Path and body of each request of the first guest, by its idempotency key."""

    def __post_init__(self) -> None:
        self.world = self.api.world
        self.ops, self.mails, self.hooks = Operations(self.world), Mails(self.world), Hooks(self.world)
        self.experience = self.world.experience()
        self.departure = self.world.departure(self.experience, seats=100)

    # The history -------------------------------------------------------------------------------------------------

    def post(self, key: str, path: str, body: Any) -> Any:
        """Send a request about the first guest, which is repeated later."""
        self.answers[key] = (path, body)
        response = self.api.post(path, body, key=f"key-of-{key}")
        assert response.status_code in (200, 201), response.text
        return response.json()

    def book(self, key: str, **over: Any) -> Any:
        fields = {"external_reference": "Canaryreference", "metadata": {"party": "Canaryparty"}}
        return self.post(key, "/bookings", booking_body(self.departure, customer=ADA, note=NOTE, **fields, **over))

    def customer_id(self, email: str = ADA["email"]) -> str:
        return str(self.api.get("/customers", email=email).json()["data"][0]["id"])

    def fill(self) -> None:
        """Write the guests' history, and let the time of their departures pass."""
        self.hooks.endpoint(*TYPES)
        self.other_guest()
        self.post("customer", "/customers", {**ADA, "email_subscription": True})
        self.link = self.book("booked")["manage_url"]
        cancelled = self.book("cancelled")
        self.post("cancel", f"/bookings/{cancelled['id']}/cancel", {"reason": "Canaryreason"})
        self.changed()
        self.reserved()
        self.refunded()
        self.paid_by_hand()
        self.gift_cards()
        self.legacy()
        self.send_mails()
        self.deliver()
        moved = self.book("moved")
        self.ops.reschedule(moved["id"], self.world.departure(self.experience, starts_at=self.world.clock() + DAY))
        self.ops.update_customer(self.customer_id(), name="Ada Canarynewname")
        self.post("customer-again", "/customers", {**ADA, "name": "Canaryother"})
        self.world.clock.advance(10 * DAY)

    def other_guest(self) -> None:
        booked = self.api.book(self.departure, customer=EVE, note="Eve's note", key="key-of-eve").json()
        self.api.cancel(booked["id"], reason="Eve's reason", key="key-of-eve-cancels")
        self.api.book(self.departure, customer=EVE, key="key-of-eve-again")
        self.ops.issue(700, purchaser_name=EVE["name"], purchaser_email=EVE["email"])

    def changed(self) -> None:
        """Write a booking whose party and departure the API has changed; the responses contain the booking."""
        booked = self.book("changed", guests=[{"tier_id": "adult", "count": 2}], payment="invoice")
        party = {"guests": [{"tier_id": "adult", "count": 1}]}
        self.post("party", f"/bookings/{booked['id']}/party", party)
        self.post(
            "guest", f"/bookings/{booked['id']}/guest", {"phone": "Canaryphone", "note": "Canarynote of a change"}
        )
        later = {"departure_id": self.world.departure(self.experience, starts_at=self.world.clock() + 3 * DAY)}
        self.post("reschedule", f"/bookings/{booked['id']}/reschedule", later)

    def reserved(self) -> None:
        """Write a booking of a reseller, whose contact has more than the booking."""
        start = self.api.get(f"/departures/{self.departure}").json()["starts_at"]
        contact = {"fullName": ADA["name"], "emailAddress": ADA["email"], "country": "Canaryland"}
        order = {"productId": self.experience, "optionId": "DEFAULT", "availabilityId": start}
        uuid = self.resell("/octo/bookings", order | {"unitItems": [{"unitId": "adult"}]})["uuid"]
        self.resell(f"/octo/bookings/{uuid}/confirm", {"contact": contact})

    def resell(self, path: str, body: Any) -> Any:
        """Send a request as a reseller."""
        headers = {"Authorization": f"Bearer {self.api.key}"}
        answer = self.api.client.post(path, json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refunded(self) -> None:
        """Write a checkout that was paid by card, cancelled, and refunded by the gateway."""
        booking_id = self.ops.check_out(self.departure, customer=GuestInput(**ADA), note=NOTE)["id"]
        self.ops.pay(booking_id)
        self.ops.cancel(booking_id, note="Canaryreason of staff")
        claim = lambda tx, owner, ids: payments.claim(tx, owner, ids, lease_s=30)  # noqa: E731
        (refund,) = self.act(lambda tx: due.process(tx, self.world.org, payments.DUE, claim)).results
        result = RefundResult(refund, RefundOutcome.REFUNDED, provider_refund_id="re_1")
        self.act(lambda tx: bookings.settle_refunds(tx, [result], jitter=lambda: 0.0))

    def paid_by_hand(self) -> None:
        """Write a booking whose payment and refund staff recorded."""
        booking_id, total = self.book("by-hand", payment="invoice")["id"], 89_000

        def pay(tx: Tx, actor: Any) -> Any:
            return bookings.record_payment(tx, actor, booking_id, amount_minor=total, note="Canarynote of payment")

        self.ops.act(pay)
        self.ops.cancel(booking_id)
        (refund,) = [row for row in self.world.rows(tables.refunds) if row["booking_id"] == booking_id]

        def settle(tx: Tx, actor: Any) -> None:
            bookings.settle_refund(tx, actor, refund["id"], note="Canarynote of refund")

        self.ops.act(settle)

    def gift_cards(self) -> None:
        """Write a gift card that the guest bought for the other guest, and a gift card that the guest received and
        redeemed."""
        ada = {"purchaser_name": ADA["name"], "purchaser_email": ADA["email"].upper()}
        self.ops.issue(500, **ada, recipient_name=EVE["name"], recipient_email=EVE["email"])
        _, code = self.ops.issue(900, recipient_name=ADA["name"], recipient_email=ADA["email"])
        self.ops.check_out(self.departure, customer=GuestInput(**ADA), gift_card_code=code)

    def legacy(self) -> None:
        """Write a booking of an earlier system, which has no customer."""
        row = self.world.rows(tables.bookings)[0] | {"guest_email": ADA["email"], "guest_name": ADA["name"]}
        columns = {"id": "01900000-0000-7000-8000-000000000001", "booking_number": None, "customer_id": None}
        columns |= {"status": "cancelled", "cancelled_at": NOON, "seats": 0, "manage_key_id": None, "note": NOTE}
        row = {str(name): value for name, value in (row | columns).items() if name != "organization_id"}
        self.world.insert(tables.bookings, **row)

    def send_mails(self) -> None:
        """Send mails to the guest and to staff: one is refused with its address, and others wait."""
        self.mails.write()
        claimed = [mail for mail in self.mails.claim() if mail.organization_id == self.world.org]
        outcomes = {"booking_confirmation_mail": MailOutcome.SENT, "staff_booking_mail": MailOutcome.SENT}
        results = [MailResult(mail, outcomes.get(mail.kind, MailOutcome.DELAYED)) for mail in claimed]
        cancellations = [n for n, mail in enumerate(claimed) if mail.kind == "booking_cancellation_mail"]
        refused = next(number for number in cancellations if claimed[number].recipient == ADA["email"])
        answer = f"550 no such user {ADA['email']}"
        results[refused] = MailResult(claimed[refused], MailOutcome.REFUSED, answer)
        self.act(lambda tx: notifications.record(tx, results))

    def deliver(self) -> None:
        """Deliver events to receivers that respond with the body: one delivery ends dead, others succeed."""
        first, *others = self.hooks.claim(free=1000)
        self.hooks.record(
            self.hooks.result(first, AttemptError.HTTP_STATUS, response_excerpt=first.body.decode()[:900]),
            *(self.hooks.result(delivery, response_excerpt=delivery.body.decode()[:900]) for delivery in others),
        )
        self.hooks.fail_until_dead()

    def act(self, work: Any) -> Any:
        return self.world.database.write(work)

    # The erasure -------------------------------------------------------------------------------------------------

    def request(self, customer_id: str | None = None) -> Any:
        customer_id = customer_id or self.customer_id()
        return self.ops.act(lambda tx, actor: erasures.request(tx, actor, customer_id))

    def process(self) -> int:
        """Process due erasures in one transaction, as a worker does, and return the number that is left."""
        world = self.world
        act = lambda tx, owner, ids: erasures.process(tx, world.installation, owner, ids)  # noqa: E731
        return len(self.act(lambda tx: due.process(tx, world.org, erasures.DUE, act)).remaining)

    def erase(self) -> None:
        """Process all erasures."""
        self.world.clock.advance(2 * MINUTE)
        for _ in range(1000):
            if not self.process():
                return
        raise AssertionError("the erasure does not end")

    def process_and_die(self) -> None:
        """Process due erasures in a transaction that is rolled back."""
        world = self.world
        act = lambda tx, owner, ids: erasures.process(tx, world.installation, owner, ids)  # noqa: E731
        world.database.dry_run(lambda tx: due.process(tx, world.org, erasures.DUE, act))

    # Contents ----------------------------------------------------------------------------------------------------

    def dump(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of all tables of the database's catalogue that belong to the organization, or to none.

        The rows are sorted by id, since PostgreSQL moves a changed row. Sealed values are opened.
        """
        with databases.connect(self.url) as connection:
            names = [name for (name,) in connection.execute(_TABLES[databases.is_sqlite(self.url)]).fetchall()]
            tables = [name for name in names if not name.startswith("sqlite_")]
            return {name: sorted(self._rows(connection, name), key=_row_id) for name in tables}

    def _rows(self, connection: Any, table: str) -> Iterator[dict[str, Any]]:
        cursor = connection.execute(f'SELECT * FROM "{table}"')
        names = [column[0] for column in cursor.description]
        for values in cursor.fetchall():
            row = dict(zip(names, values, strict=True))
            if str(row.get("organization_id", self.world.org)) == self.world.org:
                yield row | self._opened(table, {name: str(value) for name, value in row.items()})

    def _opened(self, table: str, row: dict[str, str]) -> dict[str, str]:
        keys = self.world.installation.secret_keys
        if table == "idempotency":
            row_key = (row["organization_id"], row["key"])
            return {"body_sealed": keys.open("idempotency", row["body_sealed"], *row_key).decode()}
        if table == "mails" and row["message"]:
            row_key = (row["organization_id"], row["id"])
            return {"message": keys.open("mail", row["message"], *row_key).decode()}
        return {}

    def traces(self) -> set[str]:
        """Return the columns that contain data of the first guest."""
        return {
            f"{table}.{name}"
            for table, rows in self.dump().items()
            for row in rows
            for name, value in row.items()
            if any(trace in str(value).lower() for trace in TRACES)
        }

    @staticmethod
    def unchanging(row: dict[str, Any]) -> dict[str, Any]:
        """Return the values of a row that an erasure must not change: numbers, seats, money, instants."""
        return {name: value for name, value in row.items() if name not in PERSONAL}
