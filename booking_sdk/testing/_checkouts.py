"""Checkouts of the fake: their bookings, and the payments of a Stripe that the test plays."""

from datetime import datetime, timedelta

from booking_core.models.bookings import BookingCreate, PaymentMode
from booking_core.models.checkouts import Checkout, CheckoutCreate, CheckoutPayment
from booking_core.models.gift_cards import GiftCardTransaction
from booking_core.models.sandbox import SandboxCard, SandboxCheckoutPay, SandboxPayment
from booking_sdk.testing._http import conflict, not_found, unprocessable
from booking_sdk.testing._store import Row, Store, shown
from booking_sdk.testing.factories import money, new_id, resource_fields

PENDING = timedelta(minutes=30)
_CARD = {"method": "card", "source": "stripe"}
_GIFT_CARD = {"method": "gift_card", "source": "external", "status": "paid"}
PUBLISHABLE_KEY = "pk_test_fake"


class Checkouts:
    """The checkouts of one organization."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._refunds: list[Row] = []
        store.on_cancel = self._cancelled

    def create(self, request: CheckoutCreate) -> Row:
        """Create the booking of a checkout, and return the checkout."""
        card = self._card(request.gift_card_code)
        fields = request.model_dump(exclude={"gift_card_code"})
        row = self._store.insert_booking(BookingCreate(**fields, payment=PaymentMode.PAY_ON_SITE))
        row |= {"source": "online", "manage_url": None}
        if card is not None:
            self._redeem(card, row)
        self._store.publish("booking.created", row)
        if row["totals"]["total"]["amount_minor"]:
            row |= {"status": "pending", "payment": {**_CARD, "status": "pending"}}
            row |= {"_intent": f"pi_{new_id()}", "_expires_at": self._store.clock.now + PENDING}
        else:
            self._store.publish("booking.confirmed", row)
        return self.shown(row)

    def _card(self, code: str | None) -> Row | None:
        if code is None:
            return None
        card = next((each for each in self._store.gift_cards.values() if each["_code"] == code), None)
        if card is None:
            raise unprocessable("gift_card", "There is no such gift card.", "gift_card_unknown")
        if not card["balance"]["amount_minor"]:
            raise unprocessable("gift_card", "The gift card is spent.", "gift_card_empty")
        return card

    def _redeem(self, card: Row, row: Row) -> None:
        """Take the balance of a gift card off the total."""
        totals = row["totals"]
        currency, total = card["currency"], totals["total"]["amount_minor"]
        amount = min(card["balance"]["amount_minor"], total)
        if not amount:
            return
        left = card["balance"]["amount_minor"] - amount
        self._store.change(card, balance=money(left, currency), status="active" if left else "expired")
        self._enter(card, "redeem", -amount, row)
        row["totals"] = {**totals, "gift_card": money(amount, currency), "total": money(total - amount, currency)}
        if amount == total:
            row["payment"] = _GIFT_CARD
        row |= {"_card": card, "_redeemed": amount}
        self._store.publish("gift_card.redeemed", card, redeemed_amount=money(amount, currency), booking_id=row["id"])

    def _enter(self, card: Row, kind: str, amount: int, row: Row) -> None:
        entry = {"id": new_id(), "type": kind, "amount": money(amount, card["currency"]), "booking_id": row["id"]}
        card["_transactions"].append(
            self._store.keep({}, resource_fields(GiftCardTransaction, **entry, created_at=self._store.now))
        )

    def _cancelled(self, row: Row, is_refunded: bool) -> None:
        """Restore the gift card of a booking at once, and note the refund of its payment."""
        if "_card" in row:
            card, amount = row["_card"], row["_redeemed"]
            balance = money(card["balance"]["amount_minor"] + amount, card["currency"])
            self._store.change(card, balance=balance, status="active")
            self._enter(card, "restore", amount, row)
            restored = money(amount, card["currency"])
            self._store.publish("gift_card.restored", card, restored_amount=restored, booking_id=row["id"])
        if is_refunded:
            self._refunds.append(row)

    def refund(self) -> None:
        """Refund the payments of cancelled bookings, as the worker of the service does behind the cancellation."""
        refunds, self._refunds = self._refunds, []
        for row in refunds:
            self._refund(row)

    def _refund(self, row: Row) -> None:
        payment, total = {**row["payment"], "status": "refunded"}, row["totals"]["total"]
        self._store.update("booking.refunded", row, {"payment": payment}, refunded_amount=total, total_refunded=total)

    def get(self, checkout_id: str) -> Row:
        """Return a checkout."""
        row = self._store.get(self._store.bookings, checkout_id)
        if row["source"] != "online":
            raise not_found()
        return self.shown(row)

    def shown(self, row: Row) -> Row:
        """Return the checkout of a booking."""
        payment = None
        if "_intent" in row:
            can_pay = row["status"] == "pending"
            payment = resource_fields(
                CheckoutPayment,
                intent_id=row["_intent"],
                client_secret=f"{row['_intent']}_secret_fake" if can_pay else None,
                publishable_key=PUBLISHABLE_KEY,
                amount=row["totals"]["total"],
                expires_at=self._store.at(row["_expires_at"]),
            )
        return resource_fields(Checkout, id=row["id"], booking=shown(row), payment=payment)

    def pay(self, checkout_id: str) -> Row:
        """Confirm the booking, as the webhook of a payment that succeeded does."""
        row = self._store.bookings[checkout_id]
        if row["status"] == "pending":
            self._store.change(row, status="confirmed", payment={**_CARD, "status": "paid"})
            self._store.publish("booking.confirmed", row)
        return row

    def pay_by_card(self, checkout_id: str, request: SandboxCheckoutPay) -> Row:
        """Pay for a checkout by a test card, by the rules of a sandbox."""
        checkout = self.get(checkout_id)
        if checkout["payment"] is None:
            raise not_found()
        row = self._store.bookings[checkout_id]
        if row["payment"]["status"] == "paid":
            raise conflict("paid_already", "The checkout is paid.")
        if row["status"] != "pending":
            raise conflict("checkout_expired", "The checkout has ended: its booking no longer waits for a payment.")
        is_declined = request.payment_method is SandboxCard.DECLINED
        if not is_declined:
            self.pay(checkout_id)
        if request.payment_method is SandboxCard.DASHBOARD_REFUND:
            self._refund(row)
        result = ("declined", "card_declined") if is_declined else ("succeeded", None)
        return resource_fields(SandboxPayment, status=result[0], error=result[1], checkout=self.get(checkout_id))

    def abandon_expired(self) -> None:
        """Cancel the bookings of checkouts that ended without a payment."""
        now: datetime = self._store.clock.now
        for row in list(self._store.bookings.values()):
            if row["status"] == "pending" and "_expires_at" in row and row["_expires_at"] <= now:
                row["payment"] = {**_CARD, "status": "failed"}
                self._store.cancel(row["id"], "abandoned")
