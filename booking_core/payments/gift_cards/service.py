"""Functions of gift cards. Ids are canonical UUIDs in lower case; the callers normalise them."""

from dataclasses import dataclass
from typing import Any

import orjson

from booking_core.base import gift_codes, tokens
from booking_core.base.context import Actor, Caller
from booking_core.base.errors import Conflict, NotFound
from booking_core.db import tables
from booking_core.db.engine import Row, Tx
from booking_core.db.paging import JsonPage, PageRequest
from booking_core.models.events import EventType
from booking_core.models.gift_cards import GiftCardStatus
from booking_core.models.money import money_json
from booking_core.payments.gift_cards import rules, store
from booking_core.payments.gift_cards.rules import GiftCardIssue, GiftCardRow, LockedCard, TransactionRow
from booking_core.records import events, outbox, timeline
from booking_core.records.events import NewEvent
from booking_core.records.outbox import OutboxKind
from booking_core.records.timeline import TimelineKind

# Reading ---------------------------------------------------------------------------------------------------------


def find(
    tx: Tx,
    caller: Caller,
    page: PageRequest,
    *,
    status: GiftCardStatus | None = None,
    updated_since: int | None = None,
) -> JsonPage:
    """Return a page of gift cards without their codes, filtered by current status and time of the last change."""
    zone = caller.organization.zone
    return store.LIST.find(
        tx,
        caller,
        page,
        lambda row: rules.present(GiftCardRow._make(row), zone),
        **({status.value: {}} if status else {}),
        updated_since=updated_since,
    )


def get(tx: Tx, actor: Actor, gift_card_id: str, *, include_code: bool = False) -> dict[str, Any]:
    """Return a gift card. Its code is included on request, and null if its secret key was dropped.

    Raises:
        NotFound: the organization has no such card.
    """
    row_and_code = store.get(tx, actor.organization.id, gift_card_id, actor.at)
    if row_and_code is None:
        raise NotFound
    row, sealed = row_and_code
    presented = rules.present(row, actor.organization.zone)
    if not include_code:
        return presented
    # A code whose secret key was dropped is no reason to refuse the request.
    code = gift_codes.open_code(actor.secret_keys, actor.organization.id, gift_card_id, sealed)
    return presented | {"code": code}


def find_transactions(tx: Tx, caller: Caller, page: PageRequest, gift_card_id: str) -> JsonPage:
    """Return a page of the changes of a card's balance.

    Raises:
        NotFound: the organization has no such card.
    """
    zone = caller.organization.zone

    def present(row: Row) -> dict[str, Any]:
        return rules.present_transaction(TransactionRow._make(row), zone)

    transactions = store.TRANSACTIONS.find(tx, caller, page, present, gift_card_id=gift_card_id)
    if not transactions["data"] and not store.has_card(tx, caller.organization.id, gift_card_id):
        raise NotFound
    return transactions


def _shown(actor: Actor, card: LockedCard) -> bytes:
    return orjson.dumps(rules.present(card.row, actor.organization.zone))


# Issuing ---------------------------------------------------------------------------------------------------------


def issue(tx: Tx, actor: Actor, request: GiftCardIssue) -> tuple[bytes, str]:
    """Issue a gift card, publish `gift_card.issued`, and return the card as JSON with its code.

    A recipient with an address is mailed the code, unless the request says otherwise.

    Raises:
        Malformed: with one detail for each field that is wrong.
        Conflict: `gift_card_code_taken`.
    """
    rules.check(request)
    keys, organization_id = actor.secret_keys, actor.organization.id
    code = gift_codes.normalise_code(request.code) if request.code is not None else gift_codes.new_code()
    if store.by_code(tx, organization_id, gift_codes.code_hashes(keys, organization_id, code)):
        raise Conflict("gift_card_code_taken", "Another gift card has this code.", "code")
    card = store.with_status(tx, _new(actor, request, code), actor.at)
    columns = card.row._asdict()
    del columns["status"]
    tx.insert(
        tables.gift_cards,
        organization_id=organization_id,
        **columns,
        code_hash=gift_codes.hash_code(keys, organization_id, code),
        code_sealed=gift_codes.seal_code(keys, organization_id, card.row.id, code),
        valid_from=card.valid_from,
        updated_at=card.updated_at,
    )
    _enter(tx, actor, card, "issue", card.row.initial_minor)
    event = NewEvent(EventType.GIFT_CARD_ISSUED, card.row.id, _shown(actor, card))
    events.publish(tx, actor.organization, [event], at=actor.at)
    if request.send_email and card.row.recipient_email:
        payload = {"locale": request.locale}
        outbox.enqueue(tx, organization_id, OutboxKind.GIFT_CARD_MAIL, card.row.id, at=actor.at, payload=payload)
    return event.object, code


def _new(actor: Actor, request: GiftCardIssue, code: str) -> LockedCard:
    row = GiftCardRow(
        created_at=actor.at,
        id=tokens.new_id(),
        code_last4=gift_codes.last4(code),
        status="",
        initial_minor=request.amount_minor,
        balance_minor=request.amount_minor,
        currency=request.currency or actor.organization.default_currency,
        expires_at=request.expires_at,
        purchaser_name=request.purchaser_name or None,
        purchaser_email=request.purchaser_email or None,
        recipient_name=request.recipient_name or None,
        recipient_email=request.recipient_email or None,
    )
    return LockedCard(row, request.valid_from, None, actor.at)


# Activation ------------------------------------------------------------------------------------------------------


def deactivate(tx: Tx, actor: Actor, gift_card_id: str) -> bytes:
    """Deactivate the card and return it as JSON. A card that is deactivated already is not changed.

    Raises:
        NotFound: the organization has no such card.
    """
    return _switch(tx, actor, gift_card_id, actor.at)


def reactivate(tx: Tx, actor: Actor, gift_card_id: str) -> bytes:
    """Reactivate the card and return it as JSON. Its validity and balance still limit its use.

    Raises:
        NotFound: the organization has no such card.
    """
    return _switch(tx, actor, gift_card_id, None)


def _switch(tx: Tx, actor: Actor, gift_card_id: str, deactivated_at: int | None) -> bytes:
    card = store.lock(tx, actor.organization.id, gift_card_id, actor.at)
    if card is None:
        raise NotFound
    if (card.deactivated_at is None) == (deactivated_at is None):
        return _shown(actor, card)
    card = store.with_status(tx, card.changed(actor.at, deactivated_at=deactivated_at), actor.at)
    tx.update(
        tables.gift_cards,
        organization_id=actor.organization.id,
        id=gift_card_id,
        deactivated_at=deactivated_at,
        updated_at=card.updated_at,
    )
    return _shown(actor, card)


# Paying for a booking --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Redeemed:
    """The amount that a card paid for a booking."""

    gift_card_id: str
    amount_minor: int
    event: NewEvent
    """The `gift_card.redeemed` event, for the caller that publishes the transaction's events."""


def redeem(
    tx: Tx,
    actor: Actor,
    *,
    code: str,
    booking_id: str,
    currency: str,
    wanted_minor: int,
    customer_id: str | None = None,
) -> Redeemed:
    """Redeem the amount that the booking needs, or the whole balance. The booking itself may be written later in
    the same transaction.

    Args:
        wanted_minor: the amount to pay, above zero.
        customer_id: the customer whose timeline gets an entry; none: no entry.

    Raises:
        Unprocessable: `gift_card_unknown`, `gift_card_inactive`, `gift_card_expired` (also when not valid yet),
            `gift_card_empty` or `gift_card_currency`.
    """
    organization = actor.organization
    hashes = gift_codes.code_hashes(actor.secret_keys, organization.id, code)
    card = store.lock_by_code(tx, organization.id, hashes, actor.at)
    amount = rules.taken(card, currency=currency, wanted_minor=wanted_minor)
    assert card is not None
    assert amount > 0
    card = card.changed(actor.at, balance_minor=card.row.balance_minor - amount)
    rendered = _shown(actor, store.with_status(tx, card, actor.at))
    _move(tx, actor, card, booking_id, "redeem", -amount)
    _note(tx, actor, TimelineKind.GIFT_CARD_REDEEMED, customer_id, booking_id, card, amount)
    extra = {"redeemed_amount": money_json(amount, currency), "booking_id": booking_id}
    return Redeemed(card.row.id, amount, NewEvent(EventType.GIFT_CARD_REDEEMED, card.row.id, rendered, extra))


@dataclass(frozen=True, slots=True)
class Redemption:
    """An amount that goes back from a booking to its card, which is locked."""

    booking_id: str
    restored: LockedCard
    """The card with the amount returned."""
    amount_minor: int
    number: int
    """Of the entry in the card's ledger: 0 for a cancellation, 1 and so on for changes of the party."""


def lock_redemption(tx: Tx, actor: Actor, booking_id: str, *, part_minor: int | None = None) -> Redemption | None:
    """Lock the card that paid for a booking, whose row the caller has locked; none when no amount is to be restored.

    Args:
        part_minor: is returned now, while the rest stays in force; by default all that was not returned yet.
    """
    redeemed = store.redeemed(tx, actor.organization.id, booking_id)
    if redeemed is None:
        return None
    card = store.lock(tx, actor.organization.id, redeemed.gift_card_id, actor.at)
    assert card is not None
    number, amount = 0, redeemed.amount_minor
    if part_minor is not None:
        number, amount = redeemed.restored_count + 1, part_minor
    restored = card.changed(actor.at, balance_minor=card.row.balance_minor + amount)
    return Redemption(booking_id, store.with_status(tx, restored, actor.at), amount, number)


def restore(tx: Tx, actor: Actor, redemption: Redemption, *, customer_id: str | None = None) -> NewEvent:
    """Return to the card the amount that the booking took, in any status of the card.

    Returns:
        The `gift_card.restored` event, for the caller that publishes the transaction's events.

    Args:
        customer_id: the customer whose timeline gets an entry; none: no entry.
    """
    card, amount, booking_id = redemption.restored, redemption.amount_minor, redemption.booking_id
    _move(tx, actor, card, booking_id, "restore", amount, number=redemption.number)
    # The balance also says that the release that wrote the entry published it (see doctor/events.sql).
    balance = {"balance_minor": card.row.balance_minor}
    _note(tx, actor, TimelineKind.GIFT_CARD_RESTORED, customer_id, booking_id, card, amount, **balance)
    extra = {"restored_amount": money_json(amount, card.row.currency), "booking_id": booking_id}
    return NewEvent(EventType.GIFT_CARD_RESTORED, card.row.id, _shown(actor, card), extra)


def _move(
    tx: Tx, actor: Actor, card: LockedCard, booking_id: str, kind: str, amount_minor: int, *, number: int = 0
) -> None:
    """Write a line of the ledger, and change the card's balance by its amount."""
    _enter(tx, actor, card, kind, amount_minor, booking_id=booking_id, number=number)
    change = {"organization_id": actor.organization.id, "id": card.row.id, "updated_at": card.updated_at}
    tx.update(store.MOVE, **change, balance_minor=amount_minor)


def _enter(tx: Tx, actor: Actor, card: LockedCard, kind: str, amount_minor: int, **of_booking: object) -> None:
    """Write a line of the ledger of a card that has the amount already."""
    tx.insert(
        tables.gift_card_entries,
        organization_id=actor.organization.id,
        id=tokens.new_id(),
        gift_card_id=card.row.id,
        kind=kind,
        amount_minor=amount_minor,
        balance_minor=card.row.balance_minor,
        created_at=card.updated_at,
        **of_booking,
    )


def _note(
    tx: Tx,
    actor: Actor,
    kind: TimelineKind,
    customer_id: str | None,
    booking_id: str,
    card: LockedCard,
    amount_minor: int,
    **data: object,
) -> None:
    timeline.note(
        tx,
        actor.organization.id,
        kind,
        at=card.updated_at,
        customer_id=customer_id,
        booking_id=booking_id,
        gift_card_id=card.row.id,
        amount_minor=amount_minor,
        currency=card.row.currency,
        **data,
    )
